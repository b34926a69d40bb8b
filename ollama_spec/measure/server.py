"""A llama-server of our own for the length of a measurement, on a free local port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from ollama_spec.errors import Crashed, RunnerError, StartFailed
from ollama_spec.runner import launch

_POLL = 0.1  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(argv: Sequence[str], port: int, *, limit: float = 300.0) -> Iterator[str]:
    """Start `argv`, which must listen on `port`; yields the address once it is healthy.

    It dies with this process. StartFailed with its last words if it ends or takes over `limit` s.
    """
    with tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *argv]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_healthy(child, url, log.fileno(), limit)
            yield url
        except RunnerError as error:
            if child.poll() is None or isinstance(error, StartFailed):
                raise
            raise Crashed(
                f"llama-server ended with {child.returncode}: {_last_words(log.fileno())}",
                hint=error.message,
            ) from error
        finally:
            child.terminate()
            try:
                child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _wait_healthy(child: subprocess.Popen[bytes], url: str, log: int, limit: float) -> None:
    end = time.monotonic() + limit
    with httpx.Client(trust_env=False, timeout=2) as client:
        while time.monotonic() < end:
            if child.poll() is not None:
                raise StartFailed(
                    f"llama-server ended with {child.returncode}: {_last_words(log)}",
                    hint="the model's profile may ask for what this runner cannot do",
                )
            try:
                if client.get(f"{url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(_POLL)
    raise StartFailed(
        f"llama-server was not ready after {limit:.0f} s: {_last_words(log)}",
        hint="a large model on a slow disk may need longer",
    )


def _last_words(log: int) -> str:
    size = os.fstat(log).st_size
    text = os.pread(log, 4000, max(0, size - 4000)).decode(errors="replace")
    return " | ".join(line.strip() for line in text.splitlines()[-6:])


def basic_argv(runner: Path, target: Path, port: int, context: int = 4096) -> list[str]:
    """A plain server of one slot: what every measurement adds its options to."""
    return [
        str(runner),
        *("--model", str(target)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("-c", str(context), "-np", "1"),
        "--no-webui",
        "--offline",
    ]
