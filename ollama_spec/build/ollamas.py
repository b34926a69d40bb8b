"""Find every Ollama on this machine: the server that answers, binaries, and their libraries.

Rules for `lib/ollama` are Ollama's own (contract 10.1); nothing here is started or changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import psutil
from pydantic import Field

from ollama_spec.build import llama_version
from ollama_spec.build.llama_version import LlamaVersion
from ollama_spec.profiles import Strict

DEFAULT_URL = "http://127.0.0.1:11434"
_USUAL = (
    "/usr/local/bin/ollama",
    "/usr/bin/ollama",
    "/bin/ollama",
    "/opt/homebrew/bin/ollama",
    "/Applications/Ollama.app/Contents/Resources/ollama",
)


class Server(Strict):
    url: str
    version: str | None = None
    error: str | None = None


class Binary(Strict):
    """One `ollama` program and what lies in its library folder."""

    path: Path
    found: list[str]  # how: "PATH", "service", "process", "usual place"
    version: str | None = None
    library: Path | None = None
    llama_server: Path | None = None
    llama: LlamaVersion | None = None
    backends: list[str] = Field(default_factory=list)


def server_url(value: str | None) -> str:
    """`OLLAMA_HOST` as the client reads it: scheme and port are optional."""
    text = (value or "").strip().strip("\"'")
    if not text:
        return DEFAULT_URL
    scheme, _, rest = text.partition("://") if "://" in text else ("http", "", text)
    rest = rest.rstrip("/")
    host, _, path = rest.partition("/")
    if not re.search(r":\d+$", host):
        host += {"http": ":11434", "https": ":443"}.get(scheme, ":11434")
        if "://" in text and scheme == "http":
            host = host.removesuffix(":11434") + ":80"
    if host.startswith(":"):
        host = "127.0.0.1" + host
    host = re.sub(r"^(0\.0\.0\.0|\[::\])(?=:)", "127.0.0.1", host)
    return f"{scheme}://{host}" + (f"/{path}" if path else "")


def ask_server(url: str) -> Server:
    """The version the running server reports, or why there is none."""
    try:
        reply = httpx.get(f"{url}/api/version", timeout=3, trust_env=False)
        reply.raise_for_status()
        version = reply.json().get("version")
    except (httpx.HTTPError, ValueError) as error:
        return Server(url=url, error=str(error) or type(error).__name__)
    return Server(url=url, version=str(version))


def candidates() -> dict[Path, list[str]]:
    """Real paths of `ollama` programs and how each was found."""
    found: dict[Path, list[str]] = {}

    def add(path: str | Path | None, how: str) -> None:
        if path and Path(path).is_file() and os.access(path, os.X_OK):
            ways = found.setdefault(Path(path).resolve(), [])
            if how not in ways:
                ways.append(how)

    for folder in os.environ.get("PATH", "").split(os.pathsep):
        add(Path(folder or ".") / "ollama", "PATH")
    add(service_program(), "service")
    for process in psutil.process_iter(["name", "exe"]):
        if process.info["name"] in ("ollama", "ollama.exe"):
            add(process.info["exe"], "process")
    for usual in _USUAL:
        add(usual, "usual place")
    return found


def service_program() -> str | None:
    """The program of systemd's ollama.service, if there is one."""
    systemctl = shutil.which("systemctl")
    if not systemctl:
        return None
    try:
        done = subprocess.run(
            [systemctl, "show", "ollama.service", "--property=ExecStart"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"path=(\S+)", done.stdout)
    return match.group(1) if match else None


def library_root(program: Path) -> Path:
    """First existing library folder of `program`; its own folder when there is none."""
    here = program.parent
    for choice in (
        here / "../lib/ollama",
        here / "lib/ollama",
        here / "build/lib/ollama",
        *sorted(here.glob("dist/*/lib/ollama")),
    ):
        if choice.is_dir():
            return choice.resolve()
    return here


def backends_of(library: Path) -> list[str]:
    """Backends with a loadable module: "cpu", and the names of GPU folders such as cuda_v12."""
    found = ["cpu"] if next(library.glob("libggml-cpu*"), None) else []
    for folder in sorted(path for path in library.iterdir() if path.is_dir()):
        if next(folder.glob("*ggml-*"), None):
            found.append(folder.name)
    return found


def client_version(program: Path) -> str | None:
    """Version of the program itself: with a server in reach it would name the server's."""
    env = {**os.environ, "OLLAMA_HOST": "127.0.0.1:1"}
    try:
        done = subprocess.run(
            [str(program), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=15,
            env=env,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_client_version(done.stdout + done.stderr)


def parse_client_version(text: str) -> str | None:
    """The client line wins: the other one is the server's version."""
    for pattern in (r"client version is (\S+)", r"ollama version is (\S+)"):
        match = re.search(pattern, text)
        if match:
            return match.group(1)
    return None


def inspect(program: Path, found: list[str]) -> Binary:
    library = library_root(program)
    server = library / "llama-server"
    return Binary(
        path=program,
        found=found,
        version=client_version(program),
        library=library,
        llama_server=server if server.is_file() else None,
        llama=llama_version.of_binary(server, library) if server.is_file() else None,
        backends=backends_of(library),
    )
