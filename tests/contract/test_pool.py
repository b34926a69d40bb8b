"""Loading, unloading, queueing and eviction as users see them (contract 9)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes.sidecar import FakeRunner, Sidecar, add_model, chat_steps, delta, sidecar


async def loaded(front: Sidecar) -> list[str]:
    return [item["name"] for item in (await front.get("/api/ps"))["models"]]


async def test_load_and_unload_forms(front: Sidecar) -> None:
    status, lines = await front.post("/api/generate", {"model": "pair"})
    assert status == 200
    assert lines[0]["done_reason"] == "load"
    assert lines[0]["response"] == ""
    assert await loaded(front) == ["pair:latest"]
    status, lines = await front.post("/api/chat", {"model": "pair", "messages": []})
    assert lines[0]["done_reason"] == "load"
    assert lines[0]["message"] == {"role": "assistant", "content": ""}
    status, lines = await front.post("/api/generate", {"model": "pair", "keep_alive": 0})
    assert lines[0]["done_reason"] == "unload"
    assert await loaded(front) == []
    status, lines = await front.post("/api/chat", {"model": "pair", "keep_alive": "0s"})
    assert lines[0]["done_reason"] == "unload"


async def test_load_form_is_one_object_with_a_charset(front: Sidecar) -> None:
    url = front.url + "/api/generate"
    async with front.session.post(url, json={"model": "pair", "stream": True}) as response:
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        assert set(await response.json()) == {
            "model",
            "created_at",
            "response",
            "done",
            "done_reason",
        }


@pytest.mark.parametrize(
    ("value", "seconds"), [("5m", 300), (90, 90), ("1h30m", 5400), (1.5, 1.5), ("2m0.5s", 120.5)]
)
async def test_keep_alive_sets_the_expiry(front: Sidecar, value: object, seconds: float) -> None:
    await front.chat(keep_alive=value)
    entry = (await front.get("/api/ps"))["models"][0]
    left = datetime.fromisoformat(entry["expires_at"]) - datetime.now(UTC)
    assert seconds - 5 < left.total_seconds() <= seconds


async def test_keep_alive_for_ever_and_absent(front: Sidecar) -> None:
    await front.chat(keep_alive=-1)
    await front.chat()  # absent: what was set holds
    entry = (await front.get("/api/ps"))["models"][0]
    assert datetime.fromisoformat(entry["expires_at"]).year > 2100


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("300", 'time: missing unit in duration "300"'),
        ("-1", 'time: missing unit in duration "-1"'),
        ("soon", 'time: invalid duration "soon"'),
        (True, "Unsupported type: 'bool'"),
    ],
)
async def test_bad_keep_alive(front: Sidecar, value: object, text: str) -> None:
    assert await front.chat(keep_alive=value) == (400, [{"error": text}])


async def test_idle_models_are_unloaded(front: Sidecar) -> None:
    await front.chat(keep_alive=0.3)
    assert await loaded(front) == ["pair:latest"]
    await asyncio.sleep(0.8)
    assert await loaded(front) == []


async def test_keep_alive_zero_unloads_after_the_answer(front: Sidecar) -> None:
    _, lines = await front.chat(keep_alive=0)
    assert lines[-1]["done"] is True
    assert await loaded(front) == []


async def test_unload_during_an_answer_lets_it_finish(front: Sidecar) -> None:
    front.fake.script(steps=[delta(content="a"), {"sleep": 0.5}, *chat_steps("b")])
    answer = asyncio.create_task(front.chat())
    await front.fake.wait_for("request")
    await front.post("/api/generate", {"model": "pair", "keep_alive": 0})
    _, lines = await answer
    assert lines[-1]["done_reason"] == "stop"
    assert await loaded(front) == []


async def test_changed_load_options_reload(front: Sidecar) -> None:
    await front.chat(options={"num_ctx": 2048})
    await front.chat(options={"num_ctx": 2048, "temperature": 0.1})
    assert len(front.fake.events("start")) == 1
    await front.chat(options={"num_ctx": 4096})
    starts = front.fake.events("start")
    assert len(starts) == 2
    argv = starts[1]["argv"]
    assert argv[argv.index("-c") + 1] == "4096"
    assert (await front.get("/api/ps"))["models"][0]["context_length"] == 4096


async def test_context_is_capped_at_what_the_model_was_trained_for(front: Sidecar) -> None:
    await front.chat(options={"num_ctx": 999_999})
    assert (await front.get("/api/ps"))["models"][0]["context_length"] == 8192


async def test_the_idle_model_makes_room(fake: FakeRunner, tmp_path: Path) -> None:
    for name in ("pair", "other"):
        add_model(tmp_path, name)
    async with sidecar(fake, max_loaded_models=1) as front:
        await front.chat()
        await front.chat(model="other")
        assert await loaded(front) == ["other:latest"]
        first, second = fake.events("start")
        assert first["pid"] != second["pid"]


async def test_two_models_stay_when_two_may(fake: FakeRunner, tmp_path: Path) -> None:
    for name in ("pair", "other"):
        add_model(tmp_path, name)
    async with sidecar(fake, max_loaded_models=2) as front:
        await asyncio.gather(front.chat(), front.chat(model="other"))
        assert sorted(await loaded(front)) == ["other:latest", "pair:latest"]


async def test_eviction_waits_for_a_running_answer(fake: FakeRunner, tmp_path: Path) -> None:
    for name in ("pair", "other"):
        add_model(tmp_path, name)
    async with sidecar(fake, max_loaded_models=1) as front:
        fake.script(steps=[delta(content="a"), {"sleep": 0.7}, *chat_steps("b")])
        slow = asyncio.create_task(front.chat())
        await fake.wait_for("request")
        fake.script(steps=chat_steps("c"))
        _, others = await front.chat(model="other")
        _, lines = await slow
        assert lines[-1]["done"] is True
        assert others[-1]["done"] is True


async def test_a_full_queue_is_busy(fake: FakeRunner, tmp_path: Path) -> None:
    for name in ("pair", "other", "third"):
        add_model(tmp_path, name)
    fake.script(start_delay=1)
    async with sidecar(fake, max_queue=1) as front:
        first = asyncio.create_task(front.chat())
        await fake.wait_for("start")
        assert await front.chat(model="other") == (
            503,
            [{"error": "server busy, please try again.  maximum pending requests exceeded"}],
        )
        assert (await first)[0] == 200


async def test_requests_of_one_model_share_one_load(front: Sidecar) -> None:
    answers = await asyncio.gather(*(front.chat() for _ in range(8)))
    assert all(status == 200 for status, _ in answers)
    assert len(front.fake.events("start")) == 1
