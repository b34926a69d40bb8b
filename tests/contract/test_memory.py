"""Room for a model: other models give theirs up; running out of memory (contract 7.4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fakes.sidecar import FakeRunner, Sidecar, add_model, sidecar

from ollama_spec.runner import room

OOM = {"code": 1, "stderr": "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed"}


class Ollama:
    """An upstream with one loaded model, which it gives up half a second after it was asked."""

    def __init__(self) -> None:
        self.loaded = ["theirs:latest"]
        self.unloads: list[Any] = []
        self.looks = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/ps", self.ps)
        app.router.add_post("/api/generate", self.generate)
        app.router.add_post("/api/show", self.show)
        return app

    async def ps(self, request: web.Request) -> web.Response:
        self.looks += bool(self.unloads)
        if self.looks > 2:
            self.loaded.clear()
        return web.json_response({"models": [{"name": name} for name in self.loaded]})

    async def generate(self, request: web.Request) -> web.Response:
        self.unloads.append(await request.json())
        return web.json_response({"done": True, "done_reason": "unload"})

    async def show(self, request: web.Request) -> web.Response:
        return web.json_response({"error": "no such model"}, status=404)


@pytest.fixture
async def upstream() -> AsyncIterator[tuple[Ollama, str]]:
    ollama = Ollama()
    runner = web.AppRunner(ollama.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    yield ollama, f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    await runner.cleanup()


def contexts(fake: FakeRunner) -> list[str]:
    argvs = [item["argv"] for item in fake.events("start")]
    return [argv[argv.index("-c") + 1] for argv in argvs if "-c" in argv]


async def test_ollama_is_asked_to_unload_and_waited_for(
    fake: FakeRunner, tmp_path: Path, upstream: tuple[Ollama, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama, url = upstream
    monkeypatch.setattr(room, "free", lambda wanted: 0 if ollama.loaded else 2**50)
    add_model(tmp_path)
    async with sidecar(fake, upstream=url) as front:
        status, _ = await front.chat()
    assert status == 200
    assert ollama.unloads[0] == {"model": "theirs:latest", "keep_alive": 0}
    assert not ollama.loaded, "the load waits until Ollama has let go"


async def test_our_own_models_go_first(
    fake: FakeRunner, tmp_path: Path, upstream: tuple[Ollama, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama, url = upstream
    add_model(tmp_path, "one")
    add_model(tmp_path, "two")
    async with sidecar(fake, upstream=url, max_loaded_models=3) as front:
        await front.chat(model="one")
        looks = iter([0, 2**50])  # bytes free: before, and after one model has gone
        monkeypatch.setattr(room, "free", lambda wanted: next(looks))
        await front.chat(model="two")
        loaded = [item["name"] for item in (await front.get("/api/ps"))["models"]]
    assert loaded == ["two:latest", "theirs:latest"]
    assert not ollama.unloads


async def test_out_of_memory_is_tried_with_less_and_then_said(front: Sidecar) -> None:
    front.fake.script(start_exit=OOM)
    status, lines = await front.chat()
    assert status == 500
    assert lines[0]["error"].startswith("out of memory: about 0.0 GiB are needed with num_ctx 4096")
    assert "cudaMalloc failed" in lines[0]["error"]
    assert contexts(front.fake) == ["4096", "2048", "4096"]


async def test_a_context_that_was_asked_for_is_not_made_smaller(front: Sidecar) -> None:
    front.fake.script(start_exit=OOM)
    await front.chat(options={"num_ctx": 4000})
    assert contexts(front.fake) == ["4000", "4000"]


async def test_what_runs_with_less_is_reused(fake: FakeRunner, tmp_path: Path) -> None:
    add_model(tmp_path)
    fake.script(start_exit_above=2048)
    async with sidecar(fake) as front:
        assert (await front.chat())[0] == 200
        assert (await front.chat())[0] == 200
        (model,) = (await front.get("/api/ps"))["models"]
    assert model["context_length"] == 2048
    assert contexts(fake) == ["4096", "2048"]
