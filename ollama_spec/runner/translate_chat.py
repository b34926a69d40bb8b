"""POST /api/chat on llama-server's own chat route, as Ollama does for native models
(contract 1.4, 7.5). Yields Ollama's chunks as dicts; the other chat dialects build on these."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from ollama_spec.runner import decode, media, options, tools, truncate, wire
from ollama_spec.runner import request as requests
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.pool import Lease
from ollama_spec.runner.request import Request

Chunk = dict[str, Any]


def decode_chat(raw: dict[str, Any]) -> dict[str, Any]:
    """The request's known fields, checked; messages decoded."""
    body = decode.fields(raw, decode.CHAT, "ChatRequest")
    body["messages"] = [_message(item) for item in body.get("messages") or []]
    if body.get("tools"):
        body["tools"] = [tools.tool(item) for item in body["tools"]]
    requests.check_logprobs(body)
    return body


def _message(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise ApiError(
            400,
            f"json: cannot unmarshal {decode.kind_of(item)} into Go struct field "
            "ChatRequest.messages of type api.Alias",
        )
    message = decode.fields(item, decode.MESSAGE, "ChatRequest.messages")
    message["role"] = message.get("role", "").lower()
    message["images"] = decode.images(message.get("images"))
    return message


async def chat(request: Request) -> AsyncGenerator[Chunk]:
    """The chunks of one chat; ApiError as Ollama words it."""
    body = request.body
    messages = body["messages"]
    if not messages and request.keep_alive == 0:
        request.services.pool.unload(request.record.name)
        yield _notice(request, "unload")
        return
    think = _check(request)
    async with request.lease() as lease:
        request.load_seconds = time.monotonic() - request.started
        if not messages:
            yield _notice(request, "load")
            return
        native = _native_body(request, lease, think)
        native["messages"] = await _fitting(request, lease, native)
        if body.get("_debug_render_only"):
            yield await _debug(request, lease, native)
            return
        async with lease.loaded.slots, aclosing(_stream(request, lease, native)) as chunks:
            async for chunk in chunks:
                yield chunk


def _check(request: Request) -> bool | str | None:
    abilities = request.capabilities
    if "completion" not in abilities:
        raise ApiError(400, f'"{request.model}" does not support chat')
    if request.body.get("tools") and "tools" not in abilities:
        raise ApiError(400, f"{request.full_name} does not support tools")
    return requests.thinking(request, silently=bool(request.body.get("_think_optional")))


def _notice(request: Request, reason: str) -> Chunk:
    return {
        "model": request.model,
        "created_at": wire.now(),
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": reason,
    }


def conversation(request: Request) -> list[dict[str, Any]]:
    """Stored messages, the system text unless the client brought one, then the client's."""
    asked: list[dict[str, Any]] = request.body["messages"]
    stored: list[dict[str, Any]] = [
        {"role": item.role, "content": item.content, "images": []}
        for item in request.record.messages
    ]
    messages = stored + asked
    if request.record.system and asked and asked[0]["role"] != "system":
        messages = [{"role": "system", "content": request.record.system, "images": []}, *messages]
    return messages


def _native_body(request: Request, lease: Lease, think: bool | str | None) -> dict[str, Any]:
    body = request.body
    native: dict[str, Any] = {
        **options.sampling(request.options, lease.num_ctx),
        **requests.template_kwargs(think),
        **request.control(lease).body,
        "messages": conversation(request),
        "stream": True,
    }
    if body.get("tools"):
        native["tools"] = body["tools"]
    if body.get("logprobs"):
        native["logprobs"] = True
        native["top_logprobs"] = max(body.get("top_logprobs", 0), 1)
    form = requests.response_format(body.get("format"))
    if form:
        native["response_format"] = form
    return native


async def _fitting(request: Request, lease: Lease, native: dict[str, Any]) -> list[Any]:
    messages: list[dict[str, Any]] = native["messages"]
    if request.body.get("truncate", True):
        messages = await truncate.fit(lease, native, messages, to_native)
    return [to_native(message) for message in messages]


def to_native(message: Mapping[str, Any]) -> dict[str, Any]:
    """One message as llama-server takes it. Past thinking is not forwarded, as in Ollama."""
    native: dict[str, Any] = {"role": message["role"], "content": message.get("content", "")}
    if message.get("images"):
        parts: list[dict[str, Any]] = []
        if native["content"]:
            parts.append({"type": "text", "text": native["content"]})
        native["content"] = parts + [media.part(data) for data in message["images"]]
    if message.get("tool_call_id"):
        native["tool_call_id"] = message["tool_call_id"]
    if message.get("tool_name"):
        native["name"] = message["tool_name"]
    calls = message.get("tool_calls")
    if calls:
        native["tool_calls"] = [_call_to_native(call) for call in calls]
    return native


def _call_to_native(call: Any) -> dict[str, Any]:
    function = call.get("function", {}) if isinstance(call, dict) else {}
    if not isinstance(function, dict) or not isinstance(function.get("arguments", {}), dict):
        raise ApiError(
            400,
            "json: cannot unmarshal string into Go struct field ToolCallFunction"
            ".messages.tool_calls.function.arguments of type api.ToolCallFunctionArguments",
        )
    identity = {"id": call["id"]} if call.get("id") else {}
    return {
        **identity,
        "index": function.get("index", 0),
        "type": "function",
        "function": {
            "name": function.get("name", ""),
            "arguments": wire.dumps(function.get("arguments", {})).decode(),
        },
    }


async def _debug(request: Request, lease: Lease, native: dict[str, Any]) -> Chunk:
    info: dict[str, Any] = {"rendered_template": await lease.client.apply_template(native)}
    images = sum(len(message.get("images") or []) for message in request.body["messages"])
    if images:
        info["image_count"] = images
    return {
        "model": request.model,
        "created_at": wire.now(),
        "message": {"role": "", "content": ""},
        "done": False,
        "_debug_info": info,
    }


async def _stream(request: Request, lease: Lease, native: dict[str, Any]) -> AsyncGenerator[Chunk]:
    calls = _Calls()
    reason: str | None = None
    timings: Mapping[str, Any] = {}
    top = request.body.get("top_logprobs", 0)
    async with aclosing(lease.client.stream("/v1/chat/completions", native)) as events:
        async for event in events:
            timings = event.get("timings") or timings
            for choice in event.get("choices") or []:
                delta = choice.get("delta") or {}
                calls.add(delta.get("tool_calls") or [])
                reason = choice.get("finish_reason") or reason
                chunk = _chunk(request, delta, choice.get("logprobs"), top)
                if chunk:
                    yield chunk
    if reason is None:
        raise await lease.client.cut()
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    found = calls.finished()
    if found:
        message["tool_calls"] = found
    yield {
        "model": request.model,
        "created_at": wire.now(),
        "message": message,
        "done": True,
        "done_reason": "length" if reason == "length" else "stop",
        **requests.finish(request, lease.loaded, timings, request.control(lease).mode),
    }


def _chunk(request: Request, delta: Mapping[str, Any], logprobs: Any, top: int) -> Chunk | None:
    content, reasoning = delta.get("content"), delta.get("reasoning_content")
    entries = requests.logprob_entries((logprobs or {}).get("content"), top)
    if not content and not reasoning and not entries:
        return None
    message: dict[str, Any] = {"role": "assistant", "content": content or ""}
    if reasoning:
        message["thinking"] = reasoning
    chunk: Chunk = {
        "model": request.model,
        "created_at": wire.now(),
        "message": message,
        "done": False,
    }
    if entries:
        chunk["logprobs"] = entries
    return chunk


class _Calls:
    """Collects tool calls whose arguments arrive in pieces."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, deltas: list[Any]) -> None:
        for delta in deltas:
            index = int(delta.get("index", len(self._calls)))
            call = self._calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
            function = delta.get("function") or {}
            call["id"] += delta.get("id") or ""
            call["name"] += function.get("name") or ""
            call["arguments"] += function.get("arguments") or ""

    def finished(self) -> list[dict[str, Any]]:
        return [_whole_call(index, call) for index, call in sorted(self._calls.items())]


def _whole_call(index: int, call: Mapping[str, str]) -> dict[str, Any]:
    try:
        arguments = json.loads(call["arguments"] or "{}")
        if not isinstance(arguments, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise ApiError(
            500,
            f'llama-server returned invalid tool call arguments for "{call["name"]}": {error}',
        ) from None
    whole: dict[str, Any] = {"id": call["id"]} if call["id"] else {}
    whole["function"] = {"index": index, "name": call["name"], "arguments": arguments}
    return whole


def merge(chunks: list[Chunk], *, with_tools: bool) -> Chunk:
    """The one object of `stream: false`."""
    final = dict(chunks[-1])
    message = dict(final["message"])
    message["content"] = "".join(chunk["message"]["content"] for chunk in chunks)
    thinking = "".join(chunk["message"].get("thinking", "") for chunk in chunks)
    if thinking:
        message["thinking"] = thinking
    calls = [call for chunk in chunks for call in chunk["message"].get("tool_calls", [])]
    message.pop("tool_calls", None)
    if calls and with_tools:
        message["tool_calls"] = calls
    final["message"] = message
    entries = [entry for chunk in chunks for entry in chunk.get("logprobs", [])]
    return wire.with_logprobs(final, entries)
