"""What the client sees when the child fails (CASES 8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.sidecar import FakeRunner, Sidecar, add_model, chat_steps, delta, sidecar

FIVE = [delta(content=str(number)) for number in range(5)]
ENDINGS: dict[str, dict[str, Any]] = {
    "exits with 139": {"exit": 139},
    "is killed": {"exit": -9},
    "closes without a final event": {"close": True},
    "ends without a final event": {"raw": ": end\n\n"},
    "sends an error event": {"data": {"error": {"message": "out of slots"}}},
}


@pytest.mark.parametrize("how", ENDINGS)
async def test_case_8_one_error_line_then_the_next_request_works(front: Sidecar, how: str) -> None:
    front.fake.script(steps=[*FIVE, ENDINGS[how]])
    status, lines = await front.chat()
    assert status == 200
    assert [line["message"]["content"] for line in lines[:5]] == list("01234")
    assert len(lines) == 6
    assert set(lines[5]) == {"error"}
    if how == "exits with 139":
        assert "the fake was told to die" in lines[5]["error"]
    if how == "sends an error event":
        assert lines[5]["error"] == "llama-server chat error: out of slots"
    front.fake.script(steps=chat_steps("well"))
    status, lines = await front.chat()
    assert lines[0]["message"]["content"] == "well"


async def test_case_8_openai_stream_has_no_normal_end(front: Sidecar) -> None:
    front.fake.script(steps=[*FIVE, {"exit": 1}])
    body = {"model": "pair", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with front.session.post(front.url + "/v1/chat/completions", json=body) as response:
        text = await response.text()
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert "[DONE]" not in events
    assert json.loads(events[-1])["error"]["type"] == "api_error"


async def test_case_8_silence_ends_only_by_the_idle_limit(fake: FakeRunner, tmp_path: Path) -> None:
    add_model(tmp_path)
    fake.script(steps=[*FIVE, {"sleep": 60}])
    async with sidecar(fake, stream_idle_timeout=0.5) as front:
        _, lines = await front.chat()
    assert "sent nothing for 0.5 s" in lines[-1]["error"]


async def test_broken_answer_without_streaming_is_a_500(front: Sidecar) -> None:
    front.fake.script(steps=[*FIVE, {"exit": 1}])
    status, lines = await front.chat(stream=False)
    assert status == 500
    assert "an error was encountered while running the model" in lines[0]["error"]


async def test_a_child_that_cannot_start_is_explained(front: Sidecar) -> None:
    front.fake.script(start_exit={"code": 3, "stderr": "noise\nerror: no such thing as a GGUF"})
    status, lines = await front.chat()
    assert status == 500
    assert lines == [
        {
            "error": "llama-server process has terminated: exit status 3: "
            "error: no such thing as a GGUF"
        }
    ]


async def test_a_child_that_crashes_again_and_again_is_started_ever_later(front: Sidecar) -> None:
    front.fake.script(start_exit={"code": 3, "stderr": "error: bad flag"})
    for _ in range(3):
        assert (await front.chat())[0] == 500
    starts = [item["at"] for item in front.fake.events("start")]
    assert len(starts) == 3  # one start a request: never a loop of its own
    assert starts[2] - starts[1] >= 0.5


async def test_no_sign_of_life_ends_the_wait(fake: FakeRunner, tmp_path: Path) -> None:
    add_model(tmp_path)
    fake.script(start_delay=60)
    async with sidecar(fake, load_timeout=0.5) as front:
        status, lines = await front.chat()
    assert status == 500
    assert lines[0]["error"].startswith("timed out waiting for llama-server to start - ")


async def test_a_slow_start_with_signs_of_life_is_waited_for(
    fake: FakeRunner, tmp_path: Path
) -> None:
    add_model(tmp_path)
    fake.script(start_delay=2, start_chatter=20)
    async with sidecar(fake, load_timeout=1) as front:
        assert (await front.chat())[0] == 200


async def test_a_missing_weight_file_is_one_clear_error(front: Sidecar, tmp_path: Path) -> None:
    (tmp_path / "pair.gguf").unlink()
    status, lines = await front.chat()
    assert status == 500
    assert "no such file" in lines[0]["error"]
