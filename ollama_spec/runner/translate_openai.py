"""POST /v1/chat/completions on top of /api/chat, as Ollama's middleware does (contract 1.14)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from ollama_spec.runner import decode, wire
from ollama_spec.runner.apierror import ApiError

Chunk = dict[str, Any]
_CHECKED: decode.Fields = {
    "messages": "[]openai.Message",
    "stream": "bool",
    "max_tokens": "int",
    "seed": "int",
    "temperature": "float64",
    "top_p": "float64",
    "frequency_penalty": "float64",
    "presence_penalty": "float64",
    "logprobs": "bool",
    "top_logprobs": "int",
    "tools": "[]api.Tool",
}
_MESSAGE: decode.Fields = {
    "role": "string",
    "content": "any",
    "reasoning": "string",
    "name": "string",
    "tool_call_id": "string",
    "tool_calls": "[]openai.ToolCall",
}
_CALL: decode.Fields = {"id": "string", "function": "struct"}
_FUNCTION: decode.Fields = {"name": "string", "arguments": "string"}
_EFFORTS: dict[str, bool | str] = {"none": False, "minimal": "low", "xhigh": "max", "ultra": "max"}
_EFFORTS |= {level: level for level in ("low", "medium", "high", "max")}
_DATA_PREFIXES = tuple(f"data:image/{kind};base64," for kind in ("jpeg", "jpg", "png", "webp"))
_DATA_PREFIXES += ("data:;base64,",)


def to_chat(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the /api/chat request that stands for an OpenAI one; 400 as Ollama words it."""
    decode.fields(raw, _CHECKED, "ChatCompletionRequest")
    messages = raw.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "[] is too short - 'messages'")
    chat: dict[str, Any] = {
        "model": raw.get("model", ""),
        "messages": [part for item in messages for part in _messages(item, messages)],
        "stream": bool(raw.get("stream")),
        "options": _options(raw),
    }
    form = raw.get("response_format")
    if isinstance(form, dict):
        if form.get("type") == "json_object":
            chat["format"] = "json"
        elif form.get("type") == "json_schema":
            schema = form.get("json_schema")
            chat["format"] = schema.get("schema") if isinstance(schema, dict) else None
    if raw.get("tools"):
        chat["tools"] = raw["tools"]
    reasoning = raw.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    effort = effort or raw.get("reasoning_effort")
    think = think_of(effort)
    if think is not None:
        chat["think"] = think
    for key in ("logprobs", "top_logprobs", "_debug_render_only"):
        if raw.get(key) is not None:
            chat[key] = raw[key]
    return chat


def think_of(effort: Any) -> bool | str | None:
    """Ollama's think value for an effort; None when nothing was asked."""
    if not effort:
        return None
    if not isinstance(effort, str) or effort not in _EFFORTS:
        known = '"minimal", "low", "medium", "high", "xhigh", "ultra", "max", or "none"'
        raise ApiError(400, f'invalid reasoning value: "{effort}" (must be {known})')
    return _EFFORTS[effort]


def _options(raw: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0}
    stop = raw.get("stop")
    if stop is not None:
        options["stop"] = [stop] if isinstance(stop, str) else stop
    if raw.get("max_tokens") is not None:
        options["num_predict"] = raw["max_tokens"]
    for key in ("temperature", "top_p", "seed", "frequency_penalty", "presence_penalty"):
        if raw.get(key) is not None:
            options[key] = raw[key]
    # Ours: Ollama ignores an `options` key here, so clients may send the control of a request.
    ours = raw.get("options")
    if isinstance(ours, dict):
        options |= {key: value for key, value in ours.items() if key.startswith("spec_")}
    return options


def _messages(item: Any, everything: list[Any]) -> list[dict[str, Any]]:
    """One OpenAI message as one or more of Ollama's: each content part becomes its own."""
    item = _object(item, _MESSAGE, "ChatCompletionRequest.messages", "openai.Message")
    base: dict[str, Any] = {"role": item.get("role", "")}
    if item.get("reasoning"):
        base["thinking"] = item["reasoning"]
    if item.get("tool_call_id"):
        base["tool_call_id"] = item["tool_call_id"]
        base["tool_name"] = item.get("name") or _tool_name(item["tool_call_id"], everything)
    elif item.get("name"):
        base["tool_name"] = item["name"]
    if item.get("tool_calls"):
        base["tool_calls"] = [_call(call) for call in item["tool_calls"]]
    content = item.get("content")
    if isinstance(content, str):
        return [{**base, "content": content}]
    if isinstance(content, list):
        return [{**base, **_part(part)} for part in content]
    if content is None and (item.get("tool_calls") or item.get("reasoning")):
        return [base]
    raise ApiError(400, f"invalid message content type: {_go_type(content)}")


def _go_type(value: Any) -> str:
    kinds = {type(None): "<nil>", bool: "bool", int: "float64", float: "float64"}
    return kinds.get(type(value), "map[string]interface {}")


def _tool_name(identifier: str, everything: list[Any]) -> str:
    for item in everything:
        calls = item.get("tool_calls") if isinstance(item, dict) else None
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and call.get("id") == identifier:
                return str(function.get("name", ""))
    return ""


def _object(value: Any, known: decode.Fields, where: str, kind: str) -> dict[str, Any]:
    """A JSON object with its known fields checked; 400 in Go's words otherwise."""
    if not isinstance(value, dict):
        got = decode.kind_of(value)
        raise ApiError(
            400, f"json: cannot unmarshal {got} into Go struct field {where} of type {kind}"
        )
    return decode.fields(value, known, where)


def _call(value: Any) -> dict[str, Any]:
    where = "ChatCompletionRequest.messages.tool_calls"
    call = _object(value, _CALL, where, "openai.ToolCall")
    function = decode.fields(call.get("function", {}), _FUNCTION, f"{where}.function")
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except (TypeError, ValueError):
        raise ApiError(400, "invalid tool call arguments") from None
    return {
        "id": call.get("id", ""),
        "function": {"name": function.get("name", ""), "arguments": arguments},
    }


def _part(part: Any) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return {"content": part["text"]}
    if kind == "image_url":
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        return {"content": "", "images": [image_data(url)]}
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
        return {"content": "", "images": [part["input_audio"].get("data", "")]}
    raise ApiError(400, "invalid message format")


def image_data(url: Any) -> str:
    """The base64 text of a data URL."""
    if not isinstance(url, str):
        raise ApiError(400, "invalid message format")
    if url.startswith(("http://", "https://")):
        raise ApiError(
            400,
            "image URLs are not currently supported, please use base64 encoded data instead",
        )
    for prefix in _DATA_PREFIXES:
        if url.startswith(prefix):
            return url.removeprefix(prefix)
    raise ApiError(400, "invalid image input")


class ChatWriter:
    """Ollama chunks to OpenAI objects; one id and one `created` per answer."""

    def __init__(self, model: str, *, include_usage: bool = False) -> None:
        self.model = model
        self.id = f"chatcmpl-{random.randint(0, 998)}"
        self.created = int(time.time())
        self._include_usage = include_usage
        self._first = True
        self._had_calls = False

    def complete(self, chunk: Chunk) -> Chunk:
        """The object of a non-streamed answer."""
        message = chunk["message"]
        calls = _calls(message)
        converted: dict[str, Any] = {"role": message["role"], "content": message["content"]}
        if message.get("thinking"):
            converted["reasoning"] = message["thinking"]
        if calls:
            converted["tool_calls"] = calls
        choice: dict[str, Any] = {
            "index": 0,
            "message": converted,
            "finish_reason": _finish(chunk, bool(calls)),
        }
        if chunk.get("logprobs"):
            choice["logprobs"] = {"content": chunk["logprobs"]}
        answer = self._envelope("chat.completion", [choice])
        answer["usage"] = usage(chunk)
        for key in ("_debug_info", "spec"):
            if key in chunk:
                answer[key] = chunk[key]
        return answer

    def stream(self, chunk: Chunk) -> list[Chunk]:
        """The objects that stand for one chunk, in order."""
        message = chunk["message"]
        pieces: list[Chunk] = []
        if message.get("thinking"):
            pieces.append(self._delta({"content": "", "reasoning": message["thinking"]}, None))
        calls = _calls(message)
        if message["content"] or calls or (not message.get("thinking") and not chunk["done"]):
            delta: dict[str, Any] = {"content": message["content"]}
            if calls:
                delta["tool_calls"] = calls
                self._had_calls = True
            pieces.append(self._delta(delta, chunk.get("logprobs")))
        if chunk["done"]:
            reason = _finish(chunk, self._had_calls)
            finish = {"index": 0, "delta": {}, "finish_reason": reason}
            last = self._envelope("chat.completion.chunk", [finish])
            if "spec" in chunk:
                last["spec"] = chunk["spec"]
            pieces.append(last)
            if self._include_usage:
                totals = self._envelope("chat.completion.chunk", [])
                totals["usage"] = usage(chunk)
                pieces.append(totals)
        return pieces

    def _delta(self, delta: dict[str, Any], logprobs: Any) -> Chunk:
        if self._first:
            delta = {"role": "assistant", **delta}
            self._first = False
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
        if logprobs:
            choice["logprobs"] = {"content": logprobs}
        return self._envelope("chat.completion.chunk", [choice])

    def _envelope(self, kind: str, choices: list[Any]) -> Chunk:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": "fp_ollama",
            "choices": choices,
        }


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": call.get("id", ""),
            "index": call["function"]["index"],
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": wire.dumps(call["function"]["arguments"]).decode(),
            },
        }
        for call in message.get("tool_calls", [])
    ]


def _finish(chunk: Chunk, calls: bool) -> str | None:
    reason = chunk.get("done_reason")
    return "tool_calls" if reason == "stop" and calls else reason


def usage(chunk: Mapping[str, Any]) -> dict[str, int]:
    prompt, completion = chunk.get("prompt_eval_count", 0), chunk.get("eval_count", 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


class Writer(Protocol):
    def stream(self, chunk: Chunk) -> list[Chunk]: ...


async def sse(chunks: AsyncGenerator[Chunk], writer: Writer) -> AsyncGenerator[bytes]:
    """The whole event stream of an answer."""
    async with aclosing(chunks):
        async for chunk in chunks:
            for piece in writer.stream(chunk):
                yield b"data: " + wire.dumps(piece) + b"\n\n"
    yield b"data: [DONE]\n\n"
