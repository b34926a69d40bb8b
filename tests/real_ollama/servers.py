"""Start a real Ollama and our sidecar, each with a home and a store of its own."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

_TAKEN = ("OLLAMA_", "LLAMA_ARG_", "XDG_", "HF_")


@dataclass(frozen=True)
class Server:
    url: str
    home: Path
    env: dict[str, str]
    pid: int

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")


@dataclass(frozen=True)
class RealOllama(Server):
    tree: Path
    models: Path

    @property
    def program(self) -> Path:
        return self.tree / "bin" / "ollama"

    @property
    def runner(self) -> Path:
        return self.tree / "lib" / "ollama" / "llama-server"

    def blob(self, model: str, kind: str = "model") -> Path:
        """File of a layer of a stored model."""
        manifest = self.models / "manifests/registry.ollama.ai/library" / model / "latest"
        layers = json.loads(manifest.read_bytes())["layers"]
        digest = next(item["digest"] for item in layers if item["mediaType"].endswith(kind))
        return self.models / "blobs" / digest.replace(":", "-")


def clean_environment(home: Path) -> dict[str, str]:
    """Ours without anything that steers Ollama, with `home` as the user's folder."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_TAKEN)}
    kept = {key: value for key, value in kept.items() if not key.lower().endswith("_proxy")}
    folders = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CONFIG", "DATA")}
    folders |= {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "STATE")}
    return {**kept, "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), **folders}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(argv: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended, with its children, on leaving."""
    with log.open("ab") as stream:
        process = subprocess.Popen(
            argv, env=env, stdout=stream, stderr=stream, start_new_session=True
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_until_up(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            httpx.get(url, trust_env=False)
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"no answer from {url}: {log.read_text()[-2000:]}")


def wait_until_ok(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """As above, and until the answer is a success: llama-server says 503 while it loads."""
    wait_until_up(url, process, log)
    deadline = time.monotonic() + 120
    while not httpx.get(url, trust_env=False).is_success:
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)


@contextmanager
def ollama(tree: Path, home: Path, **settings: str) -> Iterator[RealOllama]:
    """`ollama serve` of the tree. `settings`: more of Ollama's environment variables."""
    address = f"127.0.0.1:{free_port()}"
    models = home / "models"
    log = home / "ollama.log"
    env = clean_environment(home) | {"OLLAMA_HOST": address, "OLLAMA_MODELS": str(models)}
    env |= {"OLLAMA_NO_CLOUD": "1", **settings}
    with running([str(tree / "bin" / "ollama"), "serve"], env, log) as process:
        wait_until_up(f"http://{address}", process, log)
        yield RealOllama(f"http://{address}", home, env, process.pid, tree, models)


def create(server: Server, name: str, gguf: Path, **more: object) -> None:
    """What `ollama create` does with a Modelfile of one FROM line."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=300) as http:
        digest = "sha256:" + hashlib.sha256(gguf.read_bytes()).hexdigest()
        http.post(f"/api/blobs/{digest}", content=gguf.read_bytes()).raise_for_status()
        body = {"model": name, "files": {gguf.name: digest}, "stream": False, **more}
        reply = http.post("/api/create", json=body)
        assert reply.json().get("status") == "success", reply.text


@contextmanager
def sidecar(
    home: Path, runner: Path, upstream: str, *flags: str, **settings: str
) -> Iterator[Server]:
    """`ollama-spec serve` on a free port; its store lies below `home`.

    `settings`: more environment variables.
    """
    ready, log = home / "ready.json", home / "sidecar.log"
    env = clean_environment(home) | settings
    argv = [sys.executable, "-m", "ollama_spec", "serve", "--host", "127.0.0.1:0"]
    argv += ["--upstream", upstream, "--runner", str(runner), "--ready-file", str(ready), *flags]
    with running(argv, env, log) as process:
        deadline = time.monotonic() + 60
        while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ready.exists(), log.read_text()[-2000:]
        url = json.loads(ready.read_bytes())["url"]
        yield Server(url, home, env, process.pid)
