"""Our runner is killed in the middle of an answer: the real Ollama says the rest of the text."""

from __future__ import annotations

import json
from typing import Any

import httpx
import psutil
import pytest
from real_ollama.servers import RealOllama, Server

OPTIONS = {"temperature": 0, "num_predict": 48, "num_thread": 1}
ASKED: dict[str, dict[str, Any]] = {
    "/api/chat": {"messages": [{"role": "user", "content": "Tell me about the moon."}]},
    "/api/generate": {"prompt": "Tell me about the moon."},
}


def body(route: str) -> dict[str, Any]:
    return {"model": "smol", "options": OPTIONS, **ASKED[route]}


def text_of(chunk: dict[str, Any]) -> str:
    return str(chunk["message"]["content"] if "message" in chunk else chunk["response"])


def runner_of(sidecar: Server) -> psutil.Process:
    children = psutil.Process(sidecar.pid).children(recursive=True)
    return next(child for child in children if "llama-server" in child.name())


@pytest.mark.parametrize("route", ASKED)
def test_the_stream_goes_on_with_the_same_text(
    sidecar: Server, real_ollama: RealOllama, route: str
) -> None:
    whole = httpx.post(
        f"{real_ollama.url}{route}", json={**body(route), "stream": False}, timeout=120
    ).json()
    chunks: list[dict[str, Any]] = []
    with httpx.stream("POST", f"{sidecar.url}{route}", json=body(route), timeout=120) as reply:
        assert reply.status_code == 200
        for line in reply.iter_lines():
            chunks.append(json.loads(line))
            if len(chunks) == 8:
                runner_of(sidecar).kill()
    assert "".join(map(text_of, chunks)) == text_of(whole)
    last = chunks[-1]
    assert (last["done"], last["done_reason"]) == (True, whole["done_reason"])
    assert last["eval_count"] == whole["eval_count"]
    assert last["spec"]["fallback"].endswith("unexpected EOF")
    again = httpx.post(f"{sidecar.url}{route}", json={**body(route), "stream": False}, timeout=120)
    assert "fallback" not in again.json()["spec"]


def test_in_a_json_answer_there_is_one_clear_error(sidecar: Server) -> None:
    asked = {**body("/api/chat"), "format": "json"}
    with httpx.stream("POST", f"{sidecar.url}/api/chat", json=asked, timeout=120) as reply:
        lines = reply.iter_lines()
        next(lines)
        runner_of(sidecar).kill()
        last = [json.loads(line) for line in lines][-1]
    assert set(last) == {"error"}
    assert "an error was encountered while running the model" in last["error"]
