"""Framing, comments and cuts between llama-server and client (CASES 2, 4)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fakes.sidecar import Sidecar, chat_steps, delta, raw_request

QUESTION = {"model": "pair", "messages": [{"role": "user", "content": "hi"}]}


async def read_chunks(port: int, body: Any) -> tuple[bytes, list[bytes]]:
    """Headers and the HTTP chunks as they were written."""
    reader, writer = await asyncio.open_connection(sock=raw_request(port, body))
    head = await reader.readuntil(b"\r\n\r\n")
    chunks = []
    while size := int(await reader.readline(), 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    writer.close()
    return head, chunks


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 7, 64, 1000])
async def test_case_2_one_json_object_per_write_whatever_the_cuts(front: Sidecar, cut: int) -> None:
    front.fake.script(steps=chat_steps("Grü", "ße 🎈"), cut=cut)
    head, chunks = await read_chunks(front.port, QUESTION)
    assert b"Content-Type: application/x-ndjson\r\n" in head
    assert len(chunks) == 3
    assert all(chunk.endswith(b"\n") and chunk.count(b"\n") == 1 for chunk in chunks)
    lines = [json.loads(chunk) for chunk in chunks]
    assert [line["message"]["content"] for line in lines] == ["Grü", "ße 🎈", ""]
    assert [line["done"] for line in lines] == [False, False, True]


async def test_case_2_nothing_is_held_back(front: Sidecar) -> None:
    steps = chat_steps("one", "two")
    front.fake.script(steps=[steps[0], steps[1], {"sleep": 30}])
    reader, writer = await asyncio.open_connection(sock=raw_request(front.port, QUESTION))
    await reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(5):
        await reader.readline()
        assert json.loads(await reader.readline())["message"]["content"] == "one"
    writer.close()


async def test_case_4_comments_and_spellings_of_events(front: Sidecar) -> None:
    plain = [item.get("data") for item in chat_steps("a", "b") if "data" in item]
    events = [json.dumps(item) for item in plain]
    spelled = ":\n\n" * 10 + f"data: {events[0]}\n\n" + ": keepalive\n\n"
    spelled += f"data:{events[1]}\r\n\r\n" + ":\r\n\r\n" + f"event: x\ndata: {events[2]}\n\n"
    spelled += f"data: {events[3]}\n\ndata: [DONE]\n\n"
    front.fake.script(steps=[{"raw": spelled}], cut=1)
    _, chunks = await read_chunks(front.port, QUESTION)
    contents = [json.loads(chunk)["message"]["content"] for chunk in chunks]
    assert contents == ["a", "b", ""]


async def test_last_chunk_has_counts_and_receipt(front: Sidecar) -> None:
    front.fake.script(steps=chat_steps("x", "y", "z", draft_n=4, draft_n_accepted=2))
    status, lines = await front.chat()
    last = lines[-1]
    assert status == 200
    assert last["prompt_eval_count"] == 7  # cached and new tokens
    assert last["eval_count"] == 3
    assert last["prompt_eval_duration"] == 1_500_000
    assert last["eval_duration"] == 3_000_000
    assert last["total_duration"] >= last["load_duration"] > 0
    assert last["spec"]["drafted"] == 4
    assert last["spec"]["accepted"] == 2
    assert last["spec"]["acceptance_length"] == 3.0
    assert last["spec"]["lossless"] is True
    assert last["spec"]["mode"] == "strict"


async def test_html_characters_are_escaped_as_go_does(front: Sidecar) -> None:
    front.fake.script(steps=chat_steps("<a & b>"))
    _, chunks = await read_chunks(front.port, QUESTION)
    assert b"\\u003ca \\u0026 b\\u003e" in chunks[0]


async def test_without_stream_one_object_with_a_length(front: Sidecar) -> None:
    url = front.url + "/api/chat"
    async with front.session.post(url, json={**QUESTION, "stream": False}) as response:
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        assert "Content-Length" in response.headers
        assert (await response.json())["message"]["content"] == "Hello"


async def test_case_12_tool_calls_in_pieces(front: Sidecar) -> None:
    text = json.dumps({"city": "Oslo", "days": [1, 2], "note": "a" * 20})
    first = {"index": 0, "id": "call_1", "type": "function"}
    steps = [delta(tool_calls=[{**first, "function": {"name": "weather", "arguments": ""}}])]
    steps += [
        delta(tool_calls=[{"index": 0, "function": {"arguments": character}}]) for character in text
    ]
    second = {"index": 1, "id": "call_2", "function": {"name": "time", "arguments": "{}"}}
    steps += [delta(tool_calls=[second]), *chat_steps(reason="tool_calls")[1:]]
    front.fake.script(steps=steps)
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    status, lines = await front.chat(tools=tools)
    assert status == 400  # the template of `pair` knows no tools
    assert "does not support tools" in lines[0]["error"]


async def test_error_before_the_first_chunk_keeps_its_status(front: Sidecar) -> None:
    body = {"error": {"code": 400, "message": "no such grammar", "type": "x"}}
    front.fake.script(per_path={"/v1/chat/completions": {"status": 400, "body": body}})
    status, lines = await front.chat(format={"type": "nope"})
    assert status == 400
    assert json.loads(lines[0]["error"]) == body
