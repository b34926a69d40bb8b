"""`ps`, `stop`, `status` and the readiness notice, as a user and systemd see them."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path

import pytest
from fakes.sidecar import FakeRunner, Sidecar, add_model

from .test_processes import start_serve


async def run(*argv: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ollama_spec",
        *argv,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_ps_status_and_stop(front: Sidecar) -> None:
    await front.chat()
    host = ["--host", f"127.0.0.1:{front.port}"]
    code, out, _ = await run("ps", *host)
    assert code == 0
    assert out.split("\n")[0].split() == [
        "NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "DRAFTING", "UNTIL",
    ]  # fmt: skip
    assert "pair:latest" in out and "minutes from now" in out
    _, out, _ = await run("ps", *host, "--json")
    assert json.loads(out)[0]["spec"]["type"] == "draft-simple"
    code, out, _ = await run("status", *host, "--json")
    assert code == 0
    assert json.loads(out)["models"][0]["name"] == "pair:latest"
    assert (await run("stop", "pair", *host))[:2] == (0, "stopped pair\n")
    assert (await front.get("/api/ps"))["models"] == []
    code, _, err = await run("stop", "nope", *host)
    assert code == 4
    assert "model 'nope' not found" in err


async def test_a_sidecar_that_is_down_is_said() -> None:
    host = ["--host", "127.0.0.1:1"]
    code, _, err = await run("ps", *host)
    assert code == 8
    assert "no sidecar answers on http://127.0.0.1:1" in err
    assert "ollama-spec serve" in err
    code, out, _ = await run("status", *host)
    assert code == 8
    assert out.startswith("sidecar: down:")


def test_systemd_is_told_when_requests_are_answered(
    fake: FakeRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_model(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        process, _ = start_serve(fake, tmp_path)
        assert channel.recv(100) == b"READY=1"
        process.terminate()
        assert channel.recv(100) == b"STOPPING=1"
        assert process.wait(timeout=20) == 0
