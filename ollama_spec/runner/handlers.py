"""The routes that know models of ours. Each gets the request, the record and the decoded body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

from ollama_spec.runner import (
    decode,
    embed,
    handlers_v1,
    inventory,
    replies,
    rescue,
    translate_chat,
    translate_generate,
)
from ollama_spec.runner import request as requests
from ollama_spec.runner.call import Call

ModelHandler = Callable[[Call], Awaitable[web.StreamResponse]]


async def api_chat(call: Call) -> web.StreamResponse:
    body = translate_chat.decode_chat(call.raw)
    prepared = requests.prepare(call.services, call.record, body, call.mode)
    merge = partial(translate_chat.merge, with_tools=bool(body.get("tools")))
    chunks = rescue.rescued(prepared, translate_chat.chat(prepared), "/api/chat")
    return await replies.native(call.http, chunks, merge, stream=body.get("stream", True))


async def api_generate(call: Call) -> web.StreamResponse:
    body = translate_generate.decode_generate(call.raw)
    prepared = requests.prepare(call.services, call.record, body, call.mode)
    chunks = rescue.rescued(prepared, translate_generate.generate(prepared), "/api/generate")
    return await replies.native(
        call.http, chunks, translate_generate.merge, stream=body.get("stream", True)
    )


async def api_show(call: Call) -> web.StreamResponse:
    record = call.record
    if call.raw.get("system"):
        record = record.model_copy(update={"system": call.raw["system"]})
    return replies.json_reply(inventory.show(record, verbose=bool(call.raw.get("verbose"))))


async def api_embed(call: Call) -> web.StreamResponse:
    body = decode.fields(call.raw, embed.EMBED, "EmbedRequest")
    prepared = requests.prepare(call.services, call.record, body, call.mode)
    return replies.json_reply(await embed.embed(prepared))


async def api_embeddings(call: Call) -> web.StreamResponse:
    body = decode.fields(call.raw, embed.EMBEDDINGS, "EmbeddingRequest")
    prepared = requests.prepare(call.services, call.record, body, call.mode)
    return replies.json_reply(await embed.embed_one(prepared))


MODEL_ROUTES: dict[str, ModelHandler] = {
    "/api/chat": api_chat,
    "/api/generate": api_generate,
    "/api/show": api_show,
    "/api/embed": api_embed,
    "/api/embeddings": api_embeddings,
    "/v1/chat/completions": handlers_v1.chat_completions,
    "/v1/completions": handlers_v1.completions,
    "/v1/embeddings": handlers_v1.embeddings,
    "/v1/messages": handlers_v1.messages,
    "/v1/responses": handlers_v1.responses,
}
