"""The llama-server that serves: which one, and what it can do (read from its `--help`)."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ollama_spec.artefacts import ArtefactStore
from ollama_spec.config import Config
from ollama_spec.errors import OllamaSpecError, StartFailed

_LONG_FLAG = re.compile(r"--?[a-zA-Z][\w-]*")
_FLAG_NAMES = re.compile(r"--?[a-zA-Z][\w-]*(?:,\s+--?[a-zA-Z][\w-]*)*")
_SPEC_TYPES = re.compile(r"--spec-type\s+([a-z0-9,\[\]|-]+)")
_VERSION = re.compile(r"version:\s*(.+)")
_TIMEOUT = 60  # seconds; a cold binary on a slow disk takes a few


@dataclass(frozen=True)
class Binary:
    """A llama-server and what its help text offers."""

    path: Path
    flags: frozenset[str]
    spec_types: frozenset[str]
    unix_socket: bool
    build: str  # named in receipts

    @property
    def relaxed(self) -> bool:
        """Ours: relaxed acceptance and control per request."""
        return "--spec-draft-relaxed-top-n" in self.flags

    @property
    def specprefill(self) -> bool:
        return "--specprefill" in self.flags


def find(config: Config) -> Binary:
    """The configured runner, else the newest build in use, else the one Ollama brings."""
    if config.runner:
        return probe(Path(config.runner))
    artefact = ArtefactStore().current()
    if artefact:
        return probe(artefact.server, artefact.manifest.key)
    ollamas = ollama_runner()
    if ollamas:
        return probe(ollamas)
    raise StartFailed(
        "llama-server binary not found "
        "(checked: the setting `runner`, built runners, Ollama's own)",
        hint="run `ollama-spec build`",
    )


def describe(config: Config) -> dict[str, Any]:
    """For `status`: the runner and what it offers, or why there is none."""
    try:
        found = find(config)
    except OllamaSpecError as error:
        return {"runner": None, "runner_problem": error.message}
    return {
        "runner": str(found.path),
        "build": found.build,
        "relaxed": found.relaxed,
        "specprefill": found.specprefill,
    }


def ollama_runner() -> Path | None:
    """llama-server beside an installed Ollama (contract 10.1); lossless flags only."""
    program = shutil.which("ollama")
    if not program:
        return None
    folder = Path(program).resolve().parent
    for candidate in (folder.parent / "lib" / "ollama", folder / "lib" / "ollama", folder):
        server = candidate / "llama-server"
        if server.is_file():
            return server
    return None


def probe(path: Path, build: str | None = None) -> Binary:
    """Ask a binary what it offers; remembered until the file changes."""
    if not path.is_file():
        raise StartFailed(f"no such llama-server: {path}", hint="run `ollama-spec build`")
    return _probe(path.resolve(), path.stat().st_mtime_ns, build)


@functools.lru_cache(maxsize=8)
def _probe(path: Path, _mtime: int, build: str | None) -> Binary:
    return parse_help(path, _run(path, "--help"), build or _version(path))


def parse_help(path: Path, text: str, build: str) -> Binary:
    types = _SPEC_TYPES.search(text)
    return Binary(
        path=path,
        flags=frozenset(_listed(text)),
        spec_types=frozenset(re.split(r"[,|]", types[1].strip("[]"))) if types else frozenset(),
        unix_socket="UNIX socket" in text or "unix socket" in text,
        build=build,
    )


def _listed(text: str) -> list[str]:
    """Options that work. Removed ones are still listed, with a sentence that says so."""
    found: list[str] = []
    current: list[str] = []
    for line in text.splitlines():
        names = _FLAG_NAMES.match(line)
        if names:
            current = _LONG_FLAG.findall(names[0])
            found += current
        if "argument has been removed" in line:
            found = [flag for flag in found if flag not in current]
    return found


def _version(path: Path) -> str:
    match = _VERSION.search(_run(path, "--version"))
    return f"llama-server {match[1].strip()}" if match else "llama-server"


def _run(path: Path, flag: str) -> str:
    try:
        done = subprocess.run(
            [str(path), flag], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartFailed(
            f"{path} does not run: {error}", hint="build again with `ollama-spec build`"
        ) from error
    if done.returncode != 0:
        raise StartFailed(
            f"{path} {flag} ended with {done.returncode}: {done.stderr.strip()[-300:]}",
            hint="build again with `ollama-spec build`",
        )
    return done.stdout + done.stderr
