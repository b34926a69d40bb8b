"""A client that goes away frees the child, in every phase (CASES 1)."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest
from fakes.sidecar import Sidecar, chat_steps, delta, raw_request

ENDLESS = [delta(content="x"), *[{"sleep": 0.02}, delta(content="x")] * 2000]
PHASES: dict[str, dict[str, Any]] = {
    "before headers": {"headers_delay": 30},
    "before the first chunk": {"steps": [{"sleep": 30}]},
    "mid-stream": {"steps": ENDLESS},
    "no streaming": {"steps": ENDLESS, "stream": False},
}


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("phase", PHASES)
async def test_case_1_disconnect_frees_the_child(front: Sidecar, phase: str, how: str) -> None:
    await front.chat()  # loaded: only the answer itself is measured
    rules = dict(PHASES[phase])
    stream = rules.pop("stream", True)
    front.fake.script(**rules)
    question = [{"role": "user", "content": "hi"}]
    body = {"model": "pair", "messages": question, "stream": stream}
    connection = raw_request(front.port, body)
    await front.fake.wait_for("request", 2)
    await asyncio.sleep(0.2)
    if how == "RST":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    assert await front.fake.wait_for("closed") < 1
    front.fake.script(steps=chat_steps("free"), headers_delay=0)
    async with asyncio.timeout(2):
        status, lines = await front.chat()
    assert status == 200
    assert lines[0]["message"]["content"] == "free"


async def test_disconnect_while_loading_ends_the_load(front: Sidecar) -> None:
    front.fake.script(start_delay=30)
    connection = raw_request(
        front.port, {"model": "pair", "messages": [{"role": "user", "content": "hi"}]}
    )
    await front.fake.wait_for("start")
    connection.close()
    front.fake.script(start_delay=0)
    async with asyncio.timeout(5):
        assert (await front.chat())[0] == 200
    assert len(front.fake.events("start")) == 2


async def test_conversation_id_is_not_forwarded(front: Sidecar) -> None:
    question = {"model": "pair", "messages": [{"role": "user", "content": "hi"}]}
    status, _ = await front.post("/api/chat", question, **{"X-Conversation-Id": "1"})
    assert status == 200
    assert all("conversation" not in item["head"] for item in front.fake.events("request"))
