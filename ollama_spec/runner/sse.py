"""Split a byte stream into server-sent events, whatever the cuts (WHATWG HTML 9.2.6).

llama-server sends comment frames during silence and its bytes arrive cut anywhere, also inside a
UTF-8 sequence, so lines are cut from bytes and only whole ones are decoded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ollama_spec.runner.apierror import ApiError

MAX_EVENT = 8_000_000  # bytes; Ollama's own limit for a line


class Splitter:
    """Feed bytes, get the `data` of every event that is complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        self._buffer += chunk
        if b"\n" not in chunk:
            self._check_size()
            return []
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        self._check_size()
        events = []
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            # comments (":") and other fields carry nothing we need
        return events

    def _check_size(self) -> None:
        if len(self._buffer) > MAX_EVENT:
            raise ApiError(500, "llama-server response stream event exceeded 8 MB limit")


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    splitter = Splitter()
    async for chunk in chunks:
        for event in splitter.feed(chunk):
            yield event
