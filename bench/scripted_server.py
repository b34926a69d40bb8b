"""A llama-server that computes nothing: the same answer at once, one event per write and stream.

For measuring what stands before it. Speaks what Ollama and `ollama-spec serve` need of
llama-server: /health, /tokenize, /apply-template and streamed /v1/chat/completions. Every turn of
the loop is one decoding step: each open stream gets one token, as a batch of slots would give. A
stream whose reader lags is skipped until its buffer is empty again.

    SCRIPTED_TOKENS   tokens per answer
    SCRIPTED_STEP_MS  pause between two steps; 0: none
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import ClassVar

TOKENS = int(os.environ.get("SCRIPTED_TOKENS", "256"))
PAUSE = float(os.environ.get("SCRIPTED_STEP_MS", "0")) / 1000


def frame(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(delta: dict[str, object], reason: str | None = None, **more: object) -> bytes:
    value = {
        "choices": [{"finish_reason": reason, "index": 0, "delta": delta}],
        "created": 1787306400,
        "id": "chatcmpl-aYz3kqSxTn4pVfLw0hJcRm8dEgUbQo2i",
        "model": "model",
        "system_fingerprint": "b10488-0000000000",
        "object": "chat.completion.chunk",
        **more,
    }
    return frame(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
FIRST = event({"role": "assistant", "content": None})
EACH = event({"content": " word"})
TIMINGS = {
    "cache_n": 8, "prompt_n": 1, "prompt_ms": 1.0, "predicted_n": TOKENS, "predicted_ms": 1.0,
}  # fmt: skip
LAST = event({}, "stop", timings=TIMINGS) + frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    open: ClassVar[set[Connection]] = set()

    def __init__(self) -> None:
        self.received = b""
        self.left = 0
        self.lags = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=0)

    def pause_writing(self) -> None:
        self.lags = True

    def resume_writing(self) -> None:
        self.lags = False

    def connection_lost(self, error: Exception | None) -> None:
        Connection.open.discard(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        if len(body) < length:
            return
        self.received = b""
        path = head.split(b" ", 2)[1]
        if path == b"/v1/chat/completions":
            self.transport.write(HEAD + FIRST)
            self.left = TOKENS
            Connection.open.add(self)
            Steps.wake()
        else:
            self.answer(path)

    def answer(self, path: bytes) -> None:
        known = {b"/tokenize": {"tokens": [1] * 9}, b"/apply-template": {"prompt": "Count."}}
        data = json.dumps(known.get(path, {"status": "ok"})).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.transport.write(head % len(data) + data)

    def step(self) -> None:
        if self.lags:
            return
        if self.left:
            self.left -= 1
            self.transport.write(EACH)
        else:
            self.transport.write(LAST)
            Connection.open.discard(self)


class Steps:
    running = False

    @classmethod
    def wake(cls) -> None:
        if not cls.running:
            cls.running = True
            asyncio.get_running_loop().call_soon(cls.step)

    @classmethod
    def step(cls) -> None:
        for connection in list(Connection.open):
            connection.step()
        cls.running = bool(Connection.open)
        if cls.running:
            asyncio.get_running_loop().call_later(PAUSE, cls.step)


async def main() -> None:
    address = sys.argv[sys.argv.index("--host") + 1]
    loop = asyncio.get_running_loop()
    if address.startswith("/"):
        server = await loop.create_unix_server(Connection, address, backlog=512)
    else:
        port = int(sys.argv[sys.argv.index("--port") + 1])
        server = await loop.create_server(Connection, address, port, backlog=512)
    await server.serve_forever()


if __name__ == "__main__":
    if "--help" in sys.argv:
        print("--host HOST  address to listen on; a path ending in .sock is a UNIX socket")
    elif "--host" in sys.argv:
        asyncio.run(main())
