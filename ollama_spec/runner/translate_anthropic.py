"""POST /v1/messages on top of /api/chat: the request's side (contract 1.20)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from ollama_spec.runner import decode
from ollama_spec.runner.apierror import ApiError

Message = dict[str, Any]
NO_SEARCH = "ollama cloud is disabled: web search is unavailable"
_FIELDS: decode.Fields = {
    "model": "string",
    "max_tokens": "int",
    "messages": "[]anthropic.MessageParam",
    "system": "any",
    "stream": "bool",
    "temperature": "float64",
    "top_p": "float64",
    "top_k": "int",
    "stop_sequences": "[]string",
    "tools": "[]anthropic.Tool",
    "thinking": "anthropic.ThinkingConfig",
    "output_config": "anthropic.OutputConfig",
    "options": "any",
}
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "max": "max", "xhigh": "high"}


def to_chat(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the /api/chat request that stands for this one; 400 as Ollama words it."""
    body = decode.fields(raw, _FIELDS, "MessagesRequest")
    given = [_blocks(item) for item in body.get("messages", [])]
    if not body.get("model"):
        raise ApiError(400, "model is required")
    if body.get("max_tokens", 0) <= 0:
        raise ApiError(400, "max_tokens is required and must be positive")
    if not given:
        raise ApiError(400, "messages is required")
    messages = _system(body.get("system"))
    for role, blocks in given:
        messages += _convert(role.lower(), blocks)
    chat: dict[str, Any] = {
        "model": body["model"],
        "messages": messages,
        "stream": bool(body.get("stream")),
        "options": _options(body),
        "_think_optional": True,
    }
    tools = [_tool(tool) for tool in body.get("tools", [])]
    if tools:
        chat["tools"] = tools
    think = _think(body)
    if think is not None:
        chat["think"] = think
    return chat


def estimate(raw: Mapping[str, Any]) -> int:
    """Input tokens as `message_start` gives them before they are known: characters / 4."""
    total = _length(raw.get("system"))
    messages = raw.get("messages") or []
    for message in messages:
        total += len(str(message.get("role", ""))) + _length(message.get("content"))
    for tool in raw.get("tools") or []:
        schema = tool.get("input_schema")
        total += len(tool.get("name", "")) + len(tool.get("description") or "")
        total += len(json.dumps(schema, separators=(",", ":"))) if schema is not None else 0
    return max(total // 4, 1) if messages or raw.get("system") is not None else total // 4


def _length(content: Any) -> int:
    if isinstance(content, str):
        return len(content.encode(errors="replace"))
    total = 0
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict):
            total += sum(_length(block.get(key)) for key in ("text", "thinking"))
            if block.get("type") in ("tool_use", "tool_result"):
                total += len(json.dumps(block, separators=(",", ":")))
    return total


def _blocks(item: Any) -> tuple[str, list[dict[str, Any]]]:
    where = "MessagesRequest.messages"
    if not isinstance(item, dict):
        raise ApiError(400, f"json: cannot unmarshal value into Go struct field {where}")
    content = item.get("content")
    if isinstance(content, str):
        return str(item.get("role", "")), [{"type": "text", "text": content}]
    if content is None:
        return str(item.get("role", "")), []
    if not isinstance(content, list):
        kind = decode.kind_of(content)
        raise ApiError(
            400,
            f"json: cannot unmarshal {kind} into Go struct field {where} "
            "of type []anthropic.ContentBlock",
        )
    return str(item.get("role", "")), [block for block in content if isinstance(block, dict)]


def _system(value: Any) -> list[Message]:
    if isinstance(value, list):
        texts = [item.get("text") for item in value if isinstance(item, dict)]
        value = "".join(text for text in texts if isinstance(text, str))
    return [{"role": "system", "content": value}] if isinstance(value, str) and value else []


def _convert(role: str, blocks: list[dict[str, Any]]) -> list[Message]:
    """One message as one of Ollama's, tool results before it (user) or after it."""
    message: Message = {"role": role, "content": ""}
    results: list[Message] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            message["content"] += block.get("text") or ""
        elif kind == "image":
            message.setdefault("images", []).append(_image(block.get("source")))
        elif kind in ("tool_use", "server_tool_use"):
            message.setdefault("tool_calls", []).append(_call(block))
        elif kind == "tool_result":
            results.append(_result(block))
        elif kind == "thinking" and block.get("thinking"):
            message["thinking"] = block["thinking"]
    own = [message] if len(message) > 2 or message["content"] else []
    return results + own if role == "user" else own + results


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    for key in ("id", "name") if block["type"] == "tool_use" else ():
        if not block.get(key):
            raise ApiError(400, f"tool_use block missing required '{key}' field")
    function = {"name": block.get("name", ""), "arguments": block.get("input") or {}}
    return {"id": block.get("id", ""), "function": function}


def _result(block: Mapping[str, Any]) -> Message:
    message: Message = {"role": "tool", "content": "", "tool_call_id": block.get("tool_use_id")}
    content = block.get("content")
    if isinstance(content, str):
        message["content"] = content
    for part in content if isinstance(content, list) else []:
        if part.get("type") == "text":
            message["content"] += part.get("text") or ""
        elif part.get("type") == "image":
            message.setdefault("images", []).append(_image(part.get("source")))
    return message


def _image(source: Any) -> str:
    if not isinstance(source, dict):
        raise ApiError(400, "invalid image source")
    kind, data = source.get("type", ""), source.get("data", "")
    if kind != "base64":
        raise ApiError(400, f"invalid image source type: {kind}. Only base64 images are supported.")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, "invalid base64 image data") from None
    return str(data)


def _tool(tool: Any) -> dict[str, Any]:
    if str(tool.get("type") or "").startswith("web_search"):
        # Ollama searches through its own account; a model of ours has none.
        raise ApiError(403, NO_SEARCH)
    function = {"name": tool.get("name", ""), "parameters": tool.get("input_schema") or {}}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"num_predict": body["max_tokens"]}
    for key in ("temperature", "top_p", "top_k"):
        if key in body:
            options[key] = body[key]
    if body.get("stop_sequences"):
        options["stop"] = body["stop_sequences"]
    # Ours: Ollama ignores an `options` key here, so clients may send the control of a request.
    ours = body.get("options")
    if isinstance(ours, dict):
        options |= {key: value for key, value in ours.items() if key.startswith("spec_")}
    return options


def _think(body: Mapping[str, Any]) -> bool | str | None:
    kind = body.get("thinking", {}).get("type")
    if kind in ("enabled", "disabled"):
        return bool(kind == "enabled")
    effort = str(body.get("output_config", {}).get("effort", "")).strip().lower()
    return _EFFORTS.get(effort)
