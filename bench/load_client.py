"""A client that costs little itself: raw HTTP/1.1, tokens counted in the bytes, never parsed."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_TOKEN = re.compile(rb'"content":"[^"]')
_OVERLAP = 11  # bytes: one less than the shortest match, so that none is counted twice


@dataclass(frozen=True)
class Timing:
    first: float  # seconds from sending the request to the first token
    per_token: float  # seconds between tokens, on average
    tokens: int


class _Stream(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self._tail = b""
        self._first = self._last = self._sent = 0.0
        self._tokens = 0
        self.done: asyncio.Future[Timing] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._sent = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._tail and not data.startswith(b"HTTP/1.1 200"):
            self._fail(f"not a success: {data[:300]!r}")
            return
        seen = self._tail + data
        found = len(_TOKEN.findall(seen))
        self._tail = seen[-_OVERLAP:]
        if found:
            self._last = time.perf_counter()
            self._first = self._first or self._last
            self._tokens += found
        if seen.endswith(b"\r\n0\r\n\r\n"):
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the connection ended early: {error}")

    def _fail(self, text: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(text))
            self._transport.abort()

    def _finish(self) -> None:
        spread = (self._last - self._first) / max(self._tokens - 1, 1)
        self.done.set_result(Timing(self._first - self._sent, spread, self._tokens))
        self._transport.close()


async def ask(url: str, path: str, body: dict[str, Any]) -> Timing:
    """One streamed answer; RuntimeError when it is no 200 or is cut off."""
    address = urlsplit(url)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(
        lambda: _Stream(request), address.hostname, address.port
    )
    return await stream.done
