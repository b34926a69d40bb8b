"""Prove a freshly built llama-server before it is published: version, flags, one real request."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from ollama_spec.build import tiny_model
from ollama_spec.build.overlay import tag_number
from ollama_spec.errors import ArtefactUnusable

_START_SECONDS = 60.0
_OPTION_COLUMN = re.compile(r"^(?:-{1,2}[A-Za-z0-9][\w-]*(?:,\s*|\s+|$))+")


@dataclass(frozen=True)
class Proof:
    version: str
    flags: list[str]  # long options that --help lists, sorted


def check(server: Path, tag: str, env: dict[str, str] | None = None) -> Proof:
    """Raises ArtefactUnusable, with the runner's own words, at the first thing that is wrong."""
    # Settings meant for the user's own runners must not decide whether this one is sound.
    env = {k: v for k, v in (env or os.environ).items() if not k.startswith("LLAMA_ARG_")}
    version = version_text(server, env)
    if not names_tag(version, tag):
        raise ArtefactUnusable(f"{server.name} calls itself {version!r}, which is not {tag}")
    flags = option_names(_output([str(server), "--help"], env))
    if "--model" not in flags:
        raise ArtefactUnusable(f"{server.name} --help lists no options")
    _one_request(server, env)
    return Proof(version, flags)


def version_text(server: Path, env: dict[str, str] | None = None) -> str:
    text = _output([str(server), "--version"], env)
    found = re.search(r"^version:.*$", text, re.MULTILINE)
    if not found:
        raise ArtefactUnusable(f"{server} --version prints no version: {text.strip()[-300:]!r}")
    return found.group(0)


def names_tag(version: str, tag: str) -> bool:
    """Both formats seen: "version: 10380 (abc)" and "version: 0.1.2-dev (build 10488, ...)"."""
    return re.search(rf"\b{tag_number(tag)}\b", version) is not None


def option_names(help_text: str) -> list[str]:
    found: set[str] = set()
    for line in help_text.splitlines():
        column = _OPTION_COLUMN.match(line)
        if column:
            found.update(re.findall(r"--[A-Za-z0-9][\w-]*", column.group(0)))
    return sorted(found)


def _output(argv: list[str], env: dict[str, str] | None) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=60, env=env, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArtefactUnusable(f"{argv[0]} does not run here: {error}") from error
    text = done.stdout + done.stderr
    if done.returncode != 0:
        raise ArtefactUnusable(
            f"`{Path(argv[0]).name} {argv[1]}` ended with code {done.returncode}: "
            f"{text.strip()[-300:]}"
        )
    return text


def _one_request(server: Path, env: dict[str, str] | None) -> None:
    with _running(server, env) as (client, log):
        # Random weights speak random bytes, which are no text: make it say "aaaa".
        body: dict[str, object] = {"prompt": "hello", "n_predict": 4, "temperature": 0}
        body["logit_bias"] = [[tiny_model.LETTER_A, 100.0]]
        try:
            reply = client.post("/completion", json=body)
        except httpx.HTTPError as error:
            raise ArtefactUnusable(f"a test request failed: {error}: {_tail(log)}") from error
    if reply.status_code != 200 or reply.json().get("tokens_predicted") != 4:
        raise ArtefactUnusable(f"a test request failed: {reply.text[:300]}")


def positions(server: Path) -> str:
    """How this runner places the tokens of a sparse prefill: "original" or "compact".

    It tries a gap in a real context when it loads a model, and says what came of it.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}
    with _running(server, env, sparse=True) as (_, log):
        found = re.search(r"specprefill: ready, (\w+) positions", log.read_text(errors="replace"))
    if not found:
        raise ArtefactUnusable(f"{server.name} does not say how it places tokens: {_tail(log)}")
    return found.group(1)


@contextmanager
def _running(
    server: Path, env: dict[str, str] | None, *, sparse: bool = False
) -> Iterator[tuple[httpx.Client, Path]]:
    """A client of `server` with a tiny model loaded, and its log."""
    with tempfile.TemporaryDirectory(prefix="os-test-") as scratch:
        model, place = tiny_model.write(Path(scratch) / "tiny.gguf"), Path(scratch) / "s.sock"
        log = Path(scratch) / "log"
        argv = [str(server), "--model", str(model), "--host", str(place), "--ctx-size", "128"]
        argv += ["--parallel", "1", "--threads", "1", "--offline"]
        argv += ["--specprefill-model", str(model)] if sparse else []
        with log.open("w") as file:
            child = subprocess.Popen(argv, stdout=file, stderr=file, env=env)
        transport = httpx.HTTPTransport(uds=str(place))
        try:
            with httpx.Client(transport=transport, base_url="http://runner", timeout=60) as client:
                if not healthy(child, client, place, _START_SECONDS):
                    raise ArtefactUnusable(
                        f"the new runner does not start with a tiny model: {_tail(log)}"
                    )
                yield client, log
        finally:
            child.kill()
            child.wait()


def healthy(
    child: subprocess.Popen[bytes], client: httpx.Client, place: Path, seconds: float
) -> bool:
    """Wait until the server at the Unix socket `place` is ready; False when it ends or is late."""
    limit = time.monotonic() + seconds
    while child.poll() is None and time.monotonic() < limit:
        try:
            if _listens(place) and client.get("/health").status_code == 200:
                return True
        except httpx.TransportError:
            pass  # it ended meanwhile
        time.sleep(0.05)
    return False


def _listens(place: Path) -> bool:
    # httpx leaves a Unix socket open that it could not connect.
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(place))
        except OSError:
            return False
    return True


def _tail(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-500:] if log.is_file() else ""
