"""Answers of /v1/messages, whole and as events (contract 1.20)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from ollama_spec.runner import wire
from ollama_spec.runner.apierror import ApiError

Chunk = dict[str, Any]
Event = tuple[str, dict[str, Any]]
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def error_body(error: ApiError) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": _KINDS.get(error.status, "api_error"), "message": error.message},
        "request_id": f"req_{secrets.token_hex(12)}",
    }


def _stop_reason(reason: str | None, had_calls: bool) -> str | None:
    if had_calls:
        return "tool_use"
    known = {"stop": "end_turn", "length": "max_tokens"}
    return known.get(reason, "stop_sequence") if reason else None


class MessageWriter:
    """Turns Ollama chunks into one message or the events of one."""

    def __init__(self, model: str, estimated_tokens: int) -> None:
        self.model = model
        self.id = f"msg_{secrets.token_hex(12)}"
        self._tokens = estimated_tokens
        self._index = 0
        self._open: str | None = None  # kind of the block that is open
        self._started = self._thinking_done = self._had_calls = False

    def complete(self, chunk: Chunk) -> dict[str, Any]:
        message = chunk["message"]
        content: list[dict[str, Any]] = []
        if message.get("thinking"):
            content.append({"type": "thinking", "thinking": message["thinking"]})
        if message["content"]:
            content.append({"type": "text", "text": message["content"]})
        calls = message.get("tool_calls", [])
        content += [_tool_use(call, call["function"]["arguments"]) for call in calls]
        whole: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content or None,
        }
        reason = _stop_reason(chunk.get("done_reason"), bool(calls))
        if reason:
            whole["stop_reason"] = reason
        whole["usage"] = _usage(chunk)
        return whole | {key: chunk[key] for key in ("spec",) if key in chunk}

    def events(self, chunk: Chunk) -> list[Event]:
        message = chunk["message"]
        found: list[Event] = [] if self._started else [self._start(chunk)]
        if message.get("thinking") and not self._thinking_done:
            found += self._enter("thinking", {"type": "thinking", "thinking": ""})
            found.append(self._delta({"type": "thinking_delta", "thinking": message["thinking"]}))
        if message["content"]:
            found += self._enter("text", {"type": "text", "text": ""})
            found.append(self._delta({"type": "text_delta", "text": message["content"]}))
        for call in message.get("tool_calls", []):
            found += self._leave()
            found += self._call(call)
        if chunk["done"]:
            found += self._leave() + self._end(chunk)
        return found

    def _start(self, chunk: Chunk) -> Event:
        self._started = True
        tokens = chunk.get("prompt_eval_count") or self._tokens
        message = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "usage": {"input_tokens": tokens, "output_tokens": 0},
        }
        return "message_start", {"type": "message_start", "message": message}

    def _enter(self, kind: str, block: dict[str, Any]) -> list[Event]:
        if self._open == kind:
            return []
        left = self._leave()
        self._open = kind
        return [*left, self._block_start(block)]

    def _block_start(self, block: dict[str, Any]) -> Event:
        event = {"type": "content_block_start", "index": self._index, "content_block": block}
        return "content_block_start", event

    def _delta(self, delta: dict[str, Any]) -> Event:
        event = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return "content_block_delta", event

    def _leave(self) -> list[Event]:
        """Close the open block, if there is one."""
        if self._open is None:
            return []
        # Later thoughts have no place: a thinking block comes first or not at all.
        self._thinking_done = True
        self._open = None
        self._index += 1
        return [("content_block_stop", {"type": "content_block_stop", "index": self._index - 1})]

    def _call(self, call: Mapping[str, Any]) -> list[Event]:
        self._open, self._had_calls = "tool_use", True
        arguments = wire.dumps(call["function"]["arguments"]).decode()
        start = self._block_start(_tool_use(call, {}))
        delta = self._delta({"type": "input_json_delta", "partial_json": arguments})
        return [start, delta, *self._leave()]

    def _end(self, chunk: Chunk) -> list[Event]:
        reason = _stop_reason(chunk.get("done_reason"), self._had_calls)
        delta = {"stop_reason": reason} if reason else {}
        last = {"type": "message_delta", "delta": delta, "usage": _usage(chunk)}
        if "spec" in chunk:
            last["spec"] = chunk["spec"]
        return [("message_delta", last), ("message_stop", {"type": "message_stop"})]


def _tool_use(call: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call.get("id", ""),
        "name": function["name"],
        "input": arguments,
    }


def _usage(chunk: Mapping[str, Any]) -> dict[str, int]:
    return {
        "input_tokens": chunk.get("prompt_eval_count", 0),
        "output_tokens": chunk.get("eval_count", 0),
    }


async def sse(chunks: AsyncGenerator[Chunk], writer: MessageWriter) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        async for chunk in chunks:
            for name, data in writer.events(chunk):
                yield wire.event(name, data)
