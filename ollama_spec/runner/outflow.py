"""Write a streamed answer: many small pieces, few system calls.

Pieces that come within one turn of the event loop, as the bytes read from llama-server brought
them, leave together at its end. Each stays an HTTP chunk of its own, because some clients take a
chunk for a JSON object. Nothing is ever held back for longer than that turn.
"""

from __future__ import annotations

import asyncio

from aiohttp import HttpVersion11, web

_MUCH = 256 * 1024  # bytes that the client has not taken yet; above it we wait for the client
_PAUSE = 0.005  # seconds between two looks at them


class Outflow:
    """The body of an answer whose headers have been sent together with the first piece."""

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        self._response = response
        self._transport = request.transport
        self._chunked = request.version >= HttpVersion11
        self._loop = asyncio.get_running_loop()
        self._held: list[bytes] = []

    async def write(self, piece: bytes) -> None:
        """ConnectionResetError when the client has gone."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)
        if self._waiting() > _MUCH:
            await self._drained()

    async def end(self) -> None:
        self._flush()
        await self._response.write_eof()

    def _flush(self) -> None:
        if self._held and self._transport and not self._transport.is_closing():
            self._transport.write(b"".join(self._held))
        self._held.clear()

    def _waiting(self) -> int:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        return transport.get_write_buffer_size()

    async def _drained(self) -> None:
        while self._waiting() > _MUCH:  # noqa: ASYNC110 - a transport has no event for it
            await asyncio.sleep(_PAUSE)
