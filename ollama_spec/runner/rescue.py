"""A runner that dies in the middle of an answer: the real Ollama goes on, where its API allows.

Ollama renders the conversation itself (`_debug_render_only`); the text so far goes behind that
prompt, and /api/generate in raw mode continues it. Not possible, and so one clear error as before:
after thoughts, tool calls or log probabilities were sent, with tools, images or a `format`, or
when Ollama does not have the model.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal

from ollama_spec.runner import wire
from ollama_spec.runner.apierror import ApiError, RunnerLost
from ollama_spec.runner.passthrough import Unreachable
from ollama_spec.runner.receipts import receipt
from ollama_spec.runner.request import Request

log = logging.getLogger(__name__)

Chunk = dict[str, Any]
Route = Literal["/api/chat", "/api/generate"]
_RENDERED_FROM = ("model", "messages", "prompt", "system", "template", "context", "think")


async def rescued(
    request: Request, chunks: AsyncGenerator[Chunk], route: Route
) -> AsyncGenerator[Chunk]:
    """The chunks of `route`, from Ollama after our runner was lost; RunnerLost if it cannot."""
    said: list[str] = []
    plain = _is_plain(request.body)
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                part = chunk.get("message") or chunk
                said.append(part.get("content") or part.get("response") or "")
                if "thinking" in part or "tool_calls" in part or "logprobs" in chunk:
                    plain = False
                yield chunk
        return
    except RunnerLost as error:
        lost = error
    if not plain or not await request.services.upstream.has_model(request.model):
        raise lost
    log.warning("%s goes on in Ollama after %d pieces: %s", request.model, len(said), lost.message)
    try:
        async with aclosing(_rest(request, route, said, lost)) as rest:
            async for chunk in rest:
                yield chunk
    except (Unreachable, ApiError) as error:
        log.error("Ollama could not go on: %s", error)
        raise lost from error


def _is_plain(body: Mapping[str, Any]) -> bool:
    pictures = body.get("images") or any(item.get("images") for item in body.get("messages", []))
    return not (pictures or body.get("tools") or body.get("format") or body.get("logprobs"))


async def _rest(
    request: Request, route: Route, said: list[str], lost: RunnerLost
) -> AsyncGenerator[Chunk]:
    body, upstream = request.body, request.services.upstream
    prompt = str(body.get("prompt", ""))
    if not body.get("raw"):
        asked = {key: body[key] for key in _RENDERED_FROM if key in body}
        reply = await upstream.post(route, {**asked, "stream": False, "_debug_render_only": True})
        prompt = reply["_debug_info"]["rendered_template"]
    options = {**request.record.parameters, **(body.get("options") or {})}
    if options.get("num_predict", -1) > 0:
        # A piece is a token, but for characters that take several; the limit is met or just missed.
        options["num_predict"] = max(1, options["num_predict"] - len(said))
    more = {"keep_alive": body["keep_alive"]} if "keep_alive" in body else {}
    continued = {"model": request.model, "raw": True, "options": options, **more}
    continued["prompt"] = prompt + "".join(said)
    async with aclosing(upstream.stream("/api/generate", continued)) as items:
        async for item in items:
            yield _chunk(request, route, item, len(said), lost)


def _chunk(request: Request, route: Route, item: Chunk, before: int, lost: RunnerLost) -> Chunk:
    """Ollama's generate chunk as one of this route; the last one says who spoke."""
    text = item.get("response", "")
    chunk: Chunk = {"model": request.model, "created_at": item.get("created_at") or wire.now()}
    if route == "/api/chat":
        chunk["message"] = {"role": "assistant", "content": text}
    else:
        chunk["response"] = text
    kept = ("done", "done_reason", "prompt_eval_count", "prompt_eval_duration", "eval_duration")
    chunk |= {key: item[key] for key in kept if key in item}
    if item.get("done"):
        chunk["total_duration"] = wire.nanoseconds(time.monotonic() - request.started)
        chunk["eval_count"] = before + int(item.get("eval_count", 0))
        chunk["spec"] = receipt({}, "off", "Ollama") | {"fallback": lost.message}
    return chunk
