"""Write answers: one JSON object, NDJSON lines, or server-sent events."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from aiohttp import web

from ollama_spec.runner import anthropic_writer, wire
from ollama_spec.runner.apierror import ApiError, native_body, openai_body
from ollama_spec.runner.outflow import Outflow

log = logging.getLogger(__name__)

Chunk = dict[str, Any]
_JSON = "application/json; charset=utf-8"


def json_reply(
    value: Any, status: int = 200, content_type: str = _JSON, end: bytes = b""
) -> web.Response:
    return web.Response(
        body=wire.dumps(value) + end, status=status, headers={"Content-Type": content_type}
    )


def native_error(error: ApiError, *, streamed: bool = False) -> web.Response:
    plain = streamed and error.late
    return json_reply(native_body(error), error.status, "application/json" if plain else _JSON)


def v1_reply(value: Any) -> web.Response:
    return json_reply(value, content_type="application/json", end=b"\n")


def v1_error(path: str, error: ApiError, *, early: bool = False) -> web.Response:
    """An error of a `/v1/*` route in its dialect; `early`: refused before the route proper."""
    shape = anthropic_writer.error_body if path == "/v1/messages" else openai_body
    if early:
        return json_reply(shape(error), error.status)
    return json_reply(shape(error), error.status, "application/json", b"\n")


def is_single(chunk: Chunk) -> bool:
    """Load, unload and debug replies are one object even where a stream was asked for."""
    return chunk.get("done_reason") in ("load", "unload") or "_debug_info" in chunk


async def native(
    request: web.Request,
    chunks: AsyncGenerator[Chunk],
    merge: Callable[[list[Chunk]], Chunk],
    *,
    stream: bool,
) -> web.StreamResponse:
    """An `/api/*` answer. Headers wait for the first chunk, so an early error keeps its status."""
    async with aclosing(chunks):
        try:
            first = await anext(chunks)
            if is_single(first):
                return json_reply(first)
            if not stream:
                return json_reply(merge([first, *[chunk async for chunk in chunks]]))
        except ApiError as error:
            return native_error(error, streamed=stream)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        await response.write(wire.line(first))
        out = Outflow(request, response)
        try:
            async for chunk in chunks:
                await out.write(wire.line(chunk))
        except ApiError as error:
            log.error("answer broken off: %s", error.message)
            await out.write(wire.line(native_body(error)))
        await out.end()
        return response


async def events(
    request: web.Request,
    pieces: AsyncGenerator[bytes],
    error_event: Callable[[ApiError], bytes],
    headers: dict[str, str] | None = None,
) -> web.StreamResponse:
    """A server-sent-event answer. ApiError before the first piece is raised to the caller."""
    async with aclosing(pieces):
        first = await anext(pieces)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", **(headers or {})}
        )
        await response.prepare(request)
        await response.write(first)
        out = Outflow(request, response)
        try:
            async for piece in pieces:
                await out.write(piece)
        except ApiError as error:
            log.error("answer broken off: %s", error.message)
            await out.write(error_event(error))
        await out.end()
        return response
