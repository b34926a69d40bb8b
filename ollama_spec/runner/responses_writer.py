"""Answers of /v1/responses, whole and as events (contract 1.18)."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from ollama_spec.runner import wire

Chunk = dict[str, Any]
Event = tuple[str, dict[str, Any]]


class ResponsesWriter:
    """Turns Ollama chunks into one response object or the events of one.

    `body`: the decoded request, whose settings every response repeats.
    """

    def __init__(self, model: str, body: Mapping[str, Any]) -> None:
        number = random.randint(0, 998)
        self.model = model
        self.id = f"resp_{number}"
        self._body = body
        self._item = f"msg_{number}"
        self._sequence = 0
        self._index = 0
        self._done_items: list[dict[str, Any]] = []
        self._reasoning: str | None = None  # id of the open reasoning item
        self._thought = self._text = ""
        self._started = self._text_started = self._calls_sent = False

    def complete(self, chunk: Chunk) -> dict[str, Any]:
        message = chunk["message"]
        output: list[dict[str, Any]] = []
        if message.get("thinking"):
            output.append(_reasoning_item(_identifier("rs"), message["thinking"]))
        calls = message.get("tool_calls", [])
        for index, call in enumerate(calls):
            item = _call_item(f"fc_{self.id}_{index}", call, "completed")
            order = ("id", "type", "status", "call_id", "name", "arguments")
            output.append({key: item[key] for key in order})
        if not calls:
            output.append(self._message(message["content"]))
        answer = self._response("completed", output, _usage(chunk))
        answer["completed_at"] = int(time.time())
        return answer | {key: chunk[key] for key in ("spec",) if key in chunk}

    def events(self, chunk: Chunk) -> list[Event]:
        message, found = chunk["message"], []
        if not self._started:
            self._started = True
            for name in ("created", "in_progress"):
                response = self._response("in_progress", [], None)
                found.append(self._event(f"response.{name}", response=response))
        if message.get("thinking"):
            found += self._think(message["thinking"])
        calls = message.get("tool_calls", [])
        if calls:
            found += self._finish_thinking()
            for call in calls:
                found += self._call(call)
            self._calls_sent = True
        elif message["content"] and not self._calls_sent:
            found += self._write(message["content"])
        if chunk["done"]:
            found += self._finish(chunk)
        return found

    def _event(self, name: str, **data: Any) -> Event:
        data |= {"type": name, "sequence_number": self._sequence}
        self._sequence += 1
        return name, data

    def _think(self, text: str) -> list[Event]:
        found: list[Event] = []
        if self._reasoning is None:
            self._reasoning = _identifier("rs")
            item = {"id": self._reasoning, "type": "reasoning", "summary": []}
            found.append(
                self._event("response.output_item.added", output_index=self._index, item=item)
            )
        self._thought += text
        found.append(
            self._event(
                "response.reasoning_summary_text.delta",
                item_id=self._reasoning,
                output_index=self._index,
                summary_index=0,
                delta=text,
            )
        )
        return found

    def _finish_thinking(self) -> list[Event]:
        if self._reasoning is None:
            return []
        item = _reasoning_item(self._reasoning, self._thought)
        done = self._event(
            "response.reasoning_summary_text.done",
            item_id=self._reasoning,
            output_index=self._index,
            summary_index=0,
            text=self._thought,
        )
        last = self._event("response.output_item.done", output_index=self._index, item=item)
        self._done_items.append(item)
        self._reasoning, self._thought = None, ""
        self._index += 1
        return [done, last]

    def _call(self, call: Mapping[str, Any]) -> list[Event]:
        identifier = _identifier("fc")
        item = _call_item(identifier, call, "completed")
        started = {**item, "status": "in_progress", "arguments": ""}
        place = {"item_id": identifier, "output_index": self._index}
        found = [
            self._event("response.output_item.added", output_index=self._index, item=started),
            self._event("response.function_call_arguments.delta", **place, delta=item["arguments"]),
            self._event(
                "response.function_call_arguments.done", **place, arguments=item["arguments"]
            ),
            self._event("response.output_item.done", output_index=self._index, item=item),
        ]
        self._done_items.append(item)
        self._index += 1
        return found

    def _write(self, text: str) -> list[Event]:
        found = self._finish_thinking()
        place = {"item_id": self._item, "output_index": self._index, "content_index": 0}
        if not self._text_started:
            self._text_started = True
            item = {**self._message(""), "status": "in_progress", "content": []}
            found += [
                self._event("response.output_item.added", output_index=self._index, item=item),
                self._event("response.content_part.added", **place, part=_part("")),
            ]
        self._text += text
        found.append(self._event("response.output_text.delta", **place, delta=text, logprobs=[]))
        return found

    def _finish(self, chunk: Chunk) -> list[Event]:
        found = self._finish_thinking()
        output = list(self._done_items)
        if self._text_started:
            item = self._message(self._text)
            output.append(item)
        if self._text_started and not self._calls_sent:
            place = {"item_id": self._item, "output_index": self._index, "content_index": 0}
            found += [
                self._event("response.output_text.done", **place, text=self._text, logprobs=[]),
                self._event("response.content_part.done", **place, part=_part(self._text)),
                self._event("response.output_item.done", output_index=self._index, item=item),
            ]
        response = self._response("completed", output, _usage(chunk))
        response["completed_at"] = int(time.time())
        if "spec" in chunk:
            response["spec"] = chunk["spec"]
        return [*found, self._event("response.completed", response=response)]

    def _message(self, text: str) -> dict[str, Any]:
        return {
            "id": self._item,
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [_part(text)],
        }

    def _response(self, status: str, output: list[Any], usage: Any) -> dict[str, Any]:
        body = self._body
        return {
            "id": self.id,
            "object": "response",
            "created_at": int(time.time()),
            "completed_at": None,
            "status": status,
            "incomplete_details": None,
            "model": self.model,
            "previous_response_id": None,
            "instructions": body.get("instructions") or None,
            "output": output,
            "error": None,
            "tools": [_tool(item) for item in body.get("tools", [])],
            "tool_choice": "auto",
            "truncation": body.get("truncation", "disabled"),
            "parallel_tool_calls": True,
            "text": {"format": _format(body)},
            "top_p": body.get("top_p", 1),
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "top_logprobs": 0,
            "temperature": body.get("temperature", 1),
            "reasoning": _reasoning(body),
            "usage": usage,
            "max_output_tokens": body.get("max_output_tokens"),
            "max_tool_calls": None,
            "store": False,
            "background": bool(body.get("background")),
            "service_tier": "default",
            "metadata": {},
            "safety_identifier": None,
            "prompt_cache_key": None,
        }


def _identifier(kind: str) -> str:
    return f"{kind}_{random.randint(0, 999_999)}"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _reasoning_item(identifier: str, text: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}]
    return {
        "id": identifier,
        "type": "reasoning",
        "summary": summary,
        "encrypted_content": text,
    }


def _call_item(identifier: str, call: Mapping[str, Any], status: str) -> dict[str, Any]:
    function = call["function"]
    return {
        "id": identifier,
        "type": "function_call",
        "status": status,
        "call_id": call.get("id", ""),
        "name": function["name"],
        "arguments": wire.dumps(function["arguments"]).decode(),
    }


def _tool(item: Mapping[str, Any]) -> dict[str, Any]:
    whole = {
        key: item.get(key, "" if key in ("type", "name") else None)
        for key in ("type", "name", "description", "strict", "parameters")
    }
    return {**whole, "parameters": wire.sorted_keys(whole["parameters"])}


def _format(body: Mapping[str, Any]) -> dict[str, Any]:
    form = (body.get("text") or {}).get("format")
    if not form:
        return {"type": "text"}
    kept = {key: form[key] for key in ("name", "schema", "strict") if form.get(key) is not None}
    return {"type": form.get("type", ""), **kept}


def _reasoning(body: Mapping[str, Any]) -> dict[str, Any] | None:
    asked = body.get("reasoning") or {}
    if not (asked.get("effort") or asked.get("summary")):
        return None
    return {"effort": asked.get("effort") or None, "summary": asked.get("summary") or None}


def _usage(chunk: Mapping[str, Any]) -> dict[str, Any]:
    read, written = chunk.get("prompt_eval_count", 0), chunk.get("eval_count", 0)
    return {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }


async def sse(chunks: AsyncGenerator[Chunk], writer: ResponsesWriter) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        async for chunk in chunks:
            for name, data in writer.events(chunk):
                # Ollama builds these events as Go maps, whose keys are written in order.
                yield wire.event(name, wire.sorted_keys(data))
