"""What is not ours goes to Ollama and back, byte for byte; who may ask (contract 12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.sidecar import FakeRunner, Sidecar, add_model, sidecar


class Ollama:
    """A scripted upstream: records what it gets, answers given bytes."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        self.closed = asyncio.Event()
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = b""
        lowered = head.lower()
        if b"content-length: " in lowered:
            length = int(lowered.split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
        self.requests.append(head + body)
        writer.write(self.answer)
        await writer.drain()
        if self.answer.endswith(b"more"):
            await reader.read(1)
            self.closed.set()
        writer.close()


@pytest.fixture
async def ollama() -> AsyncIterator[Ollama]:
    upstream = Ollama()
    server = await asyncio.start_server(upstream.handle, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    async with server:
        yield upstream


@pytest.fixture
async def both(fake: FakeRunner, tmp_path: Path, ollama: Ollama) -> AsyncIterator[Sidecar]:
    add_model(tmp_path)
    async with sidecar(fake, upstream=f"http://127.0.0.1:{ollama.port}") as front:
        yield front


async def raw(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_request_and_answer_are_unchanged(both: Sidecar, ollama: Ollama) -> None:
    body = b'{ "model" : "theirs",\n "prompt":"\\u00fc" }'
    ollama.answer = (
        b"HTTP/1.1 418 Odd\r\nContent-Type: application/x-ndjson\r\nX-Any: Thing\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n6\r\n{} \n\r\n\r\n0\r\n\r\n"
    )
    head = "POST /api/generate?a=%2F HTTP/1.1\r\nHost: localhost\r\nX-Own: 1\r\n"
    head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = await raw(both.port, head.encode() + body)
    assert ollama.requests[0].endswith(b"\r\n\r\n" + body)
    sent = ollama.requests[0].decode().lower()
    assert sent.startswith("post /api/generate?a=%2f http/1.1\r\n")
    assert f"host: 127.0.0.1:{ollama.port}" in sent
    assert "x-own: 1" in sent
    for invented in ("user-agent", "accept:", "accept-encoding", "content-type", "origin"):
        assert invented not in sent
    assert answer.startswith(b"HTTP/1.1 418 Odd\r\n")
    assert b"X-Any: Thing\r\n" in answer
    assert b"Server:" not in answer
    assert answer.endswith(b"{} \n\r\n\r\n0\r\n\r\n")


async def test_blobs_are_streamed(both: Sidecar, ollama: Ollama) -> None:
    blob = bytes(range(256)) * 4096
    async with both.session.post(both.url + "/api/blobs/sha256:00", data=blob) as response:
        assert response.status == 200
    assert ollama.requests[0].endswith(blob)


async def test_disconnect_reaches_ollama(both: Sidecar, ollama: Ollama) -> None:
    ollama.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmore"
    body = json.dumps({"model": "theirs", "prompt": "x"}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", both.port)
    head = f"POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await asyncio.sleep(0.3)
    writer.close()
    async with asyncio.timeout(1):
        await ollama.closed.wait()


async def test_lists_are_unions_and_ours_wins(both: Sidecar, ollama: Ollama) -> None:
    theirs = {"models": [{"name": "PAIR:latest"}, {"name": "theirs:latest"}]}
    data = json.dumps(theirs).encode()
    ollama.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)
    names = [item["name"] for item in (await both.get("/api/tags"))["models"]]
    assert names == ["pair:latest", "theirs:latest"]
    await both.chat()
    names = [item["name"] for item in (await both.get("/api/ps"))["models"]]
    assert names == ["pair:latest", "theirs:latest"]


async def test_ours_never_reaches_ollama(both: Sidecar, ollama: Ollama) -> None:
    assert (await both.chat())[0] == 200
    assert ollama.requests == []
    await both.chat(model="pair:cloud")
    assert len(ollama.requests) == 1


async def test_a_runner_that_does_not_start_falls_back_to_ollama(
    both: Sidecar, ollama: Ollama
) -> None:
    both.fake.script(start_exit={"code": 1, "stderr": "error: no"})
    body = json.dumps({"model": "theirs"}).encode()
    ollama.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    assert await both.chat() == (200, [{"model": "theirs"}])
    shown, asked = ollama.requests
    assert shown.startswith(b"POST /api/show ")
    assert asked.startswith(b"POST /api/chat ")
    ollama.answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"
    status, lines = await both.chat()
    assert status == 500
    assert "exit status 1: error: no" in lines[0]["error"]


async def test_a_broken_upstream_answer_is_broken_for_the_client(
    both: Sidecar, ollama: Ollama
) -> None:
    ollama.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"
    answer = await raw(both.port, b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"Content-Length: 100" in answer
    assert answer.endswith(b"only this")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "pc.local:1"}, 200),
        ({"Host": "192.168.1.5"}, 200),
        ({"Host": "8.8.8.8"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "app://obsidian.md"}, 200),
        ({"Origin": "http://localhost.evil.example"}, 403),
    ],
)
async def test_hosts_and_origins(front: Sidecar, headers: dict[str, str], status: int) -> None:
    async with front.session.get(front.url + "/", headers=headers) as response:
        assert response.status == status
        if status == 403:
            assert await response.read() == b""
        elif "Origin" in headers:
            assert response.headers["Access-Control-Allow-Origin"] == headers["Origin"]


async def test_streams_carry_cors_too(front: Sidecar) -> None:
    body = {"model": "pair", "messages": [{"role": "user", "content": "x"}]}
    headers = {"Origin": "http://localhost:3000"}
    async with front.session.post(front.url + "/api/chat", json=body, headers=headers) as response:
        assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"


async def test_preflight(front: Sidecar) -> None:
    headers = {"Origin": "http://127.0.0.1:9", "Access-Control-Request-Method": "POST"}
    async with front.session.options(front.url + "/api/chat", headers=headers) as response:
        assert response.status == 204
        assert response.headers["Access-Control-Max-Age"] == "43200"
        assert "Authorization" in response.headers["Access-Control-Allow-Headers"]
