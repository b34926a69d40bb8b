"""Disconnects and deaths with the real runner (Done-when 4)."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import ollama
import psutil
import pytest

from .conftest import MODEL, Served, start

pytestmark = [pytest.mark.real_runner, pytest.mark.timeout(600)]

LONG = "Tell me a very long story. " * 60


def send(served: Served, prompt: str, **body: Any) -> socket.socket:
    question = {"model": MODEL, "messages": [{"role": "user", "content": prompt}]}
    data = json.dumps({**question, "options": {"num_predict": 2000}, **body}).encode()
    port = int(served.url.rsplit(":", 1)[1])
    connection = socket.create_connection(("127.0.0.1", port))
    head = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


def wait_until(condition: Any, limit: float) -> float:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit, f"not within {limit} s"
        time.sleep(0.02)
    return time.monotonic() - started


@pytest.mark.parametrize("phase", ["before the first token", "mid-stream", "no streaming"])
def test_a_disconnect_frees_the_slot(served: Served, phase: str) -> None:
    # A batch that is being computed is finished first: small ones, so that this is soon.
    options = {"num_batch": 16, "num_predict": 2000}
    served.client.generate(MODEL, options=options)
    # A fresh number in front, so that the prompt cache cannot shorten the prefill.
    prompt = f"{time.time_ns()} {LONG}" if phase == "before the first token" else "Count to 500."
    connection = send(served, prompt, stream=phase != "no streaming", options=options)
    wait_until(served.busy, 60)
    if phase == "mid-stream":
        connection.recv(100)
    elif phase == "no streaming":
        time.sleep(0.5)
    connection.close()
    seconds = wait_until(lambda: not served.busy(), 20)
    # Our runner looks five times a second (stock once), and then finishes its batch.
    busy_machine = psutil.getloadavg()[0] > 2 * (psutil.cpu_count() or 1)
    assert seconds < (20 if busy_machine else 1)
    print(f"freed after {seconds:.2f} s")


def test_kill_9_of_the_child_is_one_error_line_and_a_restart(served: Served) -> None:
    served.client.generate(MODEL)
    (child,) = served.children()
    lines = []
    with send(served, "Count to 500.") as connection, connection.makefile("rb") as file:
        for line in file:
            if line.startswith(b"{"):
                lines.append(json.loads(line))
                if len(lines) == 3:
                    child.kill()
            if line == b"0\r\n":
                break
    assert "error" in lines[-1]
    assert [line for line in lines if "error" in line] == lines[-1:]
    assert not any(line.get("done") for line in lines)
    reply = served.client.chat(
        MODEL, messages=[{"role": "user", "content": "Hi"}], options={"num_predict": 4}
    )
    assert reply.message.content


def test_stop_unloads(served: Served) -> None:
    served.client.generate(MODEL)
    (child,) = served.children()
    served.client.generate(MODEL, keep_alive=0)
    wait_until(lambda: not child.is_running(), 10)
    assert served.client.ps().models == []


def test_kill_9_of_serve_leaves_no_child(serve_root: Path, patched_runner: Path) -> None:
    own = start(serve_root, patched_runner)
    own.client.generate(MODEL)
    (child,) = own.children()
    own.client.close()
    own.process.kill()
    own.process.wait()
    wait_until(lambda: not child.is_running(), 2)


def test_a_truncated_model_is_one_clear_error(
    served: Served, serve_root: Path, smollm2: Path, tmp_path: Path
) -> None:
    from ollama_spec.profiles import WeightFile
    from ollama_spec.store import ModelRecord, ModelStore

    broken = tmp_path / "broken.gguf"
    with smollm2.open("rb") as file:
        broken.write_bytes(file.read(5_000_000))
    store = ModelStore(serve_root / "data" / "ollama-spec" / "models")
    store.put(ModelRecord(name="broken", target=WeightFile(path=broken, size=5_000_000)))
    try:
        with pytest.raises(ollama.ResponseError) as failed:
            served.client.generate("broken", "x")
        assert failed.value.status_code == 500
        assert "truncated" in failed.value.error
        assert httpx.get(f"{served.url}/api/tags").status_code == 200
    finally:
        store.remove("broken")
