"""The routes that know models of ours. Each gets the request, the record and the decoded body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from ollama_spec.runner import (
    control,
    inventory,
    replies,
    translate_chat,
    translate_generate,
    translate_openai,
    wire,
)
from ollama_spec.runner import (
    request as requests,
)
from ollama_spec.runner.apierror import ApiError, openai_body
from ollama_spec.runner.request import Services
from ollama_spec.store import ModelRecord


@dataclass(frozen=True)
class Call:
    """One request for a model of ours."""

    http: web.Request
    services: Services
    record: ModelRecord
    raw: dict[str, Any]  # the body as it came

    @property
    def mode(self) -> str | None:
        return self.http.headers.get(control.HEADER)


ModelHandler = Callable[[Call], Awaitable[web.StreamResponse]]


async def api_chat(call: Call) -> web.StreamResponse:
    body = translate_chat.decode_chat(call.raw)
    prepared = requests.prepare(call.services, call.record, body, call.mode)
    merge = partial(translate_chat.merge, with_tools=bool(body.get("tools")))
    chunks = translate_chat.chat(prepared)
    return await replies.native(call.http, chunks, merge, stream=body.get("stream", True))


async def api_generate(call: Call) -> web.StreamResponse:
    body = translate_generate.decode_generate(call.raw)
    prepared = requests.prepare(call.services, call.record, body, call.mode)
    chunks = translate_generate.generate(prepared)
    return await replies.native(
        call.http, chunks, translate_generate.merge, stream=body.get("stream", True)
    )


async def api_show(call: Call) -> web.StreamResponse:
    return replies.json_reply(inventory.show(call.record, verbose=bool(call.raw.get("verbose"))))


async def openai_chat(call: Call) -> web.StreamResponse:
    try:
        body = translate_chat.decode_chat(translate_openai.to_chat(call.raw))
        prepared = requests.prepare(call.services, call.record, body, call.mode)
        chunks = translate_chat.chat(prepared)
        usage = (call.raw.get("stream_options") or {}).get("include_usage")
        writer = translate_openai.ChatWriter(prepared.model, include_usage=bool(usage))
        if not body["stream"]:
            merged = translate_chat.merge(
                [chunk async for chunk in chunks], with_tools=bool(body.get("tools"))
            )
            return replies.json_reply(
                writer.complete(merged), content_type="application/json", end=b"\n"
            )
        return await replies.events(call.http, translate_openai.sse(chunks, writer), _sse_error)
    except ApiError as error:
        return replies.openai_error(error)


def _sse_error(error: ApiError) -> bytes:
    return b"data: " + wire.dumps(openai_body(error)) + b"\n\n"


# Other modules add their routes here: path -> handler.
MODEL_ROUTES: dict[str, ModelHandler] = {
    "/api/chat": api_chat,
    "/api/generate": api_generate,
    "/api/show": api_show,
    "/v1/chat/completions": openai_chat,
}
