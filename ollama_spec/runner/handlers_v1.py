"""The `/v1/*` routes: other dialects on top of our own chat, generate and embed.

Ollama translates in a middleware, so what that refuses looks a little different from what the
route itself refuses (`replies.v1_error`): hence `_refused` around each translation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial, wraps
from typing import Any, Protocol

from aiohttp import web

from ollama_spec.runner import (
    anthropic_writer,
    embed,
    replies,
    rescue,
    responses_writer,
    translate_anthropic,
    translate_chat,
    translate_completions,
    translate_embeddings,
    translate_generate,
    translate_openai,
    translate_responses,
    wire,
)
from ollama_spec.runner import request as requests
from ollama_spec.runner.apierror import ApiError, openai_body
from ollama_spec.runner.call import Call

Chunk = dict[str, Any]
_NO_CACHE = {"Cache-Control": "no-cache", "Connection": "keep-alive"}


class Refused(ApiError):
    """A translation that failed."""


class _Writer(Protocol):
    def complete(self, chunk: Chunk) -> Chunk: ...


def _refused(translate: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return translate(*arguments)
    except ApiError as error:
        raise Refused(error.status, error.message) from None
    except (AttributeError, TypeError, KeyError) as error:
        # Something nested has a type that no client library can send.
        raise Refused(400, f"json: cannot unmarshal request: {error}") from None


def _v1(
    handler: Callable[[Call], Awaitable[web.StreamResponse]],
) -> Callable[[Call], Awaitable[web.StreamResponse]]:
    @wraps(handler)
    async def guarded(call: Call) -> web.StreamResponse:
        try:
            return await handler(call)
        except ApiError as error:
            return replies.v1_error(call.http.path, error, early=isinstance(error, Refused))

    return guarded


async def _answer(
    call: Call,
    chunks: AsyncGenerator[Chunk],
    writer: _Writer,
    merge: Callable[[list[Chunk]], Chunk],
    sse: Callable[..., AsyncGenerator[bytes]],
    *,
    stream: bool,
    error_event: Callable[[ApiError], bytes],
    headers: dict[str, str] | None = None,
) -> web.StreamResponse:
    if not stream:
        merged = merge([chunk async for chunk in chunks])
        return replies.v1_reply(writer.complete(merged))
    return await replies.events(call.http, sse(chunks, writer), error_event, headers)


async def _chat(call: Call, body: dict[str, Any], writer: _Writer, **how: Any) -> Any:
    """Run a translated chat and answer in the writer's dialect."""
    optional = bool(body.get("_think_optional"))
    body = {**translate_chat.decode_chat(body), "_think_optional": optional}
    prepared = requests.prepare(call.services, call.record, body, call.mode)
    merge = partial(translate_chat.merge, with_tools=bool(body.get("tools")))
    chunks = rescue.rescued(prepared, translate_chat.chat(prepared), "/api/chat")
    return await _answer(call, chunks, writer, merge, stream=body["stream"], **how)


@_v1
async def chat_completions(call: Call) -> web.StreamResponse:
    body = _refused(translate_openai.to_chat, call.raw)
    usage = bool((call.raw.get("stream_options") or {}).get("include_usage"))
    writer = translate_openai.ChatWriter(str(call.raw["model"]), include_usage=usage)
    return await _chat(call, body, writer, sse=translate_openai.sse, error_event=_data_error)  # type: ignore[no-any-return]


@_v1
async def completions(call: Call) -> web.StreamResponse:
    body = _refused(translate_completions.to_generate, call.raw)
    usage = bool((call.raw.get("stream_options") or {}).get("include_usage"))
    writer = translate_completions.CompletionWriter(body["model"], include_usage=usage)
    body = translate_generate.decode_generate(body)
    prepared = requests.prepare(call.services, call.record, body, call.mode)
    return await _answer(
        call,
        rescue.rescued(prepared, translate_generate.generate(prepared), "/api/generate"),
        writer,
        translate_generate.merge,
        translate_openai.sse,
        stream=body["stream"],
        error_event=_data_error,
    )


@_v1
async def messages(call: Call) -> web.StreamResponse:
    body = _refused(translate_anthropic.to_chat, call.raw)
    estimate = _refused(translate_anthropic.estimate, call.raw)
    writer = anthropic_writer.MessageWriter(body["model"], estimate)
    return await _chat(  # type: ignore[no-any-return]
        call,
        body,
        writer,
        sse=anthropic_writer.sse,
        error_event=_anthropic_error,
        headers=_NO_CACHE,
    )


@_v1
async def responses(call: Call) -> web.StreamResponse:
    asked = _refused(translate_responses.decode_request, call.raw)
    body = _refused(translate_responses.to_chat, asked)
    writer = responses_writer.ResponsesWriter(body["model"], asked)
    return await _chat(  # type: ignore[no-any-return]
        call,
        body,
        writer,
        sse=responses_writer.sse,
        error_event=_responses_error,
        headers=_NO_CACHE,
    )


@_v1
async def embeddings(call: Call) -> web.StreamResponse:
    body = _refused(translate_embeddings.to_embed, call.raw)
    prepared = requests.prepare(call.services, call.record, body, call.mode)
    reply = await embed.embed(prepared)
    return replies.v1_reply(translate_embeddings.answer(reply, call.raw.get("encoding_format")))


# After a stream began, Ollama just stops; one clear error is better for whoever waits.
def _data_error(error: ApiError) -> bytes:
    return b"data: " + wire.dumps(openai_body(error)) + b"\n\n"


def _anthropic_error(error: ApiError) -> bytes:
    return wire.event("error", anthropic_writer.error_body(error))


def _responses_error(error: ApiError) -> bytes:
    return wire.event("error", {"type": "error", "code": None, "message": error.message})
