"""Requests for models of ours that others answer: `attach`, or an Ollama that is faster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fakes.sidecar import FakeRunner, add_model, chat_steps, sidecar

from ollama_spec.runner.rates import Rates


class Ollama:
    """Answers a chat at 1000 tokens per second by its own account."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/api/chat", self.chat)
        app.router.add_post("/api/show", self.show)
        app.router.add_get("/api/ps", self.ps)
        return app

    async def chat(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        last = {"message": {"role": "assistant", "content": "theirs"}, "done": True}
        return web.json_response({**last, "eval_count": 100, "eval_duration": 10**8})

    async def show(self, request: web.Request) -> web.Response:
        return web.json_response({"details": {}})

    async def ps(self, request: web.Request) -> web.Response:
        return web.json_response({"models": [{"name": "pair:latest"}]})


@pytest.fixture
async def ollama() -> AsyncIterator[tuple[Ollama, str]]:
    upstream = Ollama()
    runner = web.AppRunner(upstream.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    yield upstream, f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    await runner.cleanup()


def slow(fake: FakeRunner, seconds: float) -> None:
    """Ours: 100 tokens in so many seconds, by llama-server's account."""
    fake.script(steps=chat_steps("ours", predicted_n=100, predicted_ms=1000 * seconds))


async def says(front: Any) -> str:
    _, lines = await front.chat()
    return str(lines[0]["message"]["content"])


async def test_a_model_that_is_slower_here_goes_to_ollama(
    fake: FakeRunner, tmp_path: Path, ollama: tuple[Ollama, str]
) -> None:
    add_model(tmp_path)
    slow(fake, 0.2)
    async with sidecar(fake, upstream=ollama[1], compare_every=2) as front:
        first = [await says(front) for _ in range(6)]
        assert first == ["ours", "theirs"] * 3, "until both have three answers, in turn"
        assert [await says(front) for _ in range(4)] == ["theirs", "ours", "theirs", "ours"]
        (model,) = (await front.get("/api/ps"))["models"]
        assert "slower than Ollama here (500.0 against 1000.0 tokens/s)" in model["spec"]["problem"]


async def test_a_model_that_is_faster_here_stays(
    fake: FakeRunner, tmp_path: Path, ollama: tuple[Ollama, str]
) -> None:
    add_model(tmp_path)
    slow(fake, 0.05)
    async with sidecar(fake, upstream=ollama[1], compare_every=4) as front:
        said = [await says(front) for _ in range(16)]
    assert said == ["ours", "ours", "ours", "theirs"] * 4


async def test_nothing_is_compared_unless_asked_for(
    fake: FakeRunner, tmp_path: Path, ollama: tuple[Ollama, str]
) -> None:
    add_model(tmp_path)
    slow(fake, 10)
    async with sidecar(fake, upstream=ollama[1]) as front:
        assert [await says(front) for _ in range(5)] == ["ours"] * 5
    assert not ollama[0].asked


async def test_what_ollama_renders_itself_goes_to_attach(
    fake: FakeRunner, tmp_path: Path, ollama: tuple[Ollama, str]
) -> None:
    add_model(tmp_path, renderer="gemma4")
    add_model(tmp_path, "native")
    async with sidecar(fake, attached=ollama[1]) as front:
        assert await says(front) == "theirs"
        _, lines = await front.chat(model="native")
        assert lines[0]["message"]["content"] == "Hel"
    async with sidecar(fake, attached="http://127.0.0.1:9") as front:
        assert await says(front) == "Hel", "our own rendering while attach is down"
    assert json.dumps(ollama[0].asked[0]["model"]) == '"pair"'


def test_rates_need_enough_long_answers_of_both_sides() -> None:
    rates = Rates(3)
    for _ in range(3):
        rates.note("m", "here", 100, 2.0)
        rates.note("m", "ollama", 4, 0.001)  # too short to tell
    assert rates.problem("m:latest") is None
    for _ in range(3):
        rates.note("m:latest", "ollama", 100, 1.0)
    assert rates.problem("m") == (
        "slower than Ollama here (50.0 against 100.0 tokens/s): its requests go to Ollama"
    )
    assert [rates.next_side("m") for _ in range(6)] == ["ollama", "ollama", "here"] * 2
