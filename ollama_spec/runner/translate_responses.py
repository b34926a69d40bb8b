"""POST /v1/responses (stateless) on top of /api/chat: the request's side (contract 1.18)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ollama_spec.runner import decode, translate_openai, wire
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.translate_anthropic import NO_SEARCH

Message = dict[str, Any]
FIELDS: decode.Fields = {
    "model": "string",
    "background": "bool",
    "input": "any",
    "instructions": "string",
    "max_output_tokens": "int",
    "reasoning": "openai.ResponsesReasoning",
    "temperature": "float64",
    "text": "openai.ResponsesText",
    "top_p": "float64",
    "truncation": "string",
    "tools": "[]openai.ResponsesTool",
    "stream": "bool",
    "options": "any",
}
_TEXT_PARTS = ("input_text", "output_text")


def decode_request(raw: Mapping[str, Any]) -> dict[str, Any]:
    return decode.fields(raw, FIELDS, "ResponsesRequest")


def to_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the /api/chat request that stands for this one; 400 as Ollama words it."""
    messages: list[Message] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    given = body.get("input", "")
    if isinstance(given, str):
        messages += [{"role": "user", "content": given}] if given else []
    elif isinstance(given, list):
        _add_items(messages, given)
    else:
        kind = decode.kind_of(given)
        raise ApiError(
            400,
            "input must be a string or array: json: cannot unmarshal "
            f"{kind} into Go value of type []json.RawMessage",
        )
    chat: dict[str, Any] = {
        "model": body.get("model", ""),
        "messages": messages,
        "stream": bool(body.get("stream")),
        "options": _options(body),
    }
    think = translate_openai.think_of((body.get("reasoning") or {}).get("effort"))
    if think is not None:
        chat["think"] = think
    tools = [tool for item in body.get("tools", []) for tool in _tools(item)]
    if tools:
        chat["tools"] = tools
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema" and form.get("schema") is not None:
        chat["format"] = form["schema"]
    return chat


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"temperature": body.get("temperature", 1.0)}
    if "top_p" in body:
        options["top_p"] = body["top_p"]
    if "max_output_tokens" in body:
        options["num_predict"] = body["max_output_tokens"]
    ours = body.get("options")
    if isinstance(ours, dict):
        options |= {key: value for key, value in ours.items() if key.startswith("spec_")}
    return options


def _add_items(messages: list[Message], items: list[Any]) -> None:
    """Input items as messages; a reasoning item belongs to the assistant's next message."""
    thought = ""
    for index, item in enumerate(items):
        kind = item.get("type") if isinstance(item, dict) else None
        if not kind and isinstance(item, dict) and item.get("role"):
            kind = "message"
        if kind == "message":
            text, images = _content(item.get("content"), index)
            message: Message = {"role": item.get("role", ""), "content": text}
            if images:
                message["images"] = images
            if message["role"] == "assistant" and thought:
                message["thinking"], thought = thought, ""
            messages.append(message)
        elif kind == "function_call":
            _add_call(messages, item, thought)
            thought = ""
        elif kind == "function_call_output":
            output = item.get("output", "")
            text, images = _content(output, index)
            reply = {"role": "tool", "content": text, "tool_call_id": item.get("call_id", "")}
            messages.append(reply | ({"images": images} if images else {}))
        elif kind == "reasoning":
            thought = item.get("encrypted_content") or ""
        elif kind != "web_search_call":
            text = (
                f'unknown input item type: "{kind}"'
                if kind
                else "input item missing required 'type' field"
            )
            raise ApiError(400, f"input[{index}]: {text}")


def _add_call(messages: list[Message], item: Mapping[str, Any], thought: str) -> None:
    try:
        arguments = json.loads(item.get("arguments") or "{}")
    except ValueError as error:
        raise ApiError(400, f"failed to parse function call arguments: {error}") from None
    function = {"name": item.get("name", ""), "arguments": arguments}
    call = {"id": item.get("call_id", ""), "function": function}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    messages[-1].setdefault("tool_calls", []).append(call)
    if thought:
        messages[-1]["thinking"] = thought


def _content(content: Any, index: int) -> tuple[str, list[str]]:
    if isinstance(content, str) or content is None:
        return content or "", []
    if not isinstance(content, list):
        kind = decode.kind_of(content)
        raise ApiError(
            400,
            f"input[{index}]: content must be a string or array: json: cannot unmarshal "
            f"{kind} into Go value of type []json.RawMessage",
        )
    texts, images = [], []
    for number, part in enumerate(content):
        kind = part.get("type", "") if isinstance(part, dict) else ""
        if kind in _TEXT_PARTS:
            texts.append(part.get("text") or "")
        elif kind == "input_image":
            images.append(translate_openai.image_data(part.get("image_url")))
        elif kind == "input_file":
            raise ApiError(400, "file inputs are not currently supported")
        else:
            text = f"input[{index}]: content[{number}]: unknown content type: {kind}"
            raise ApiError(400, text)
    return "".join(texts), images


def _tools(item: Any, prefix: str = "") -> list[dict[str, Any]]:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "web_search":
        # Ollama searches through its own account; a model of ours has none.
        raise ApiError(403, NO_SEARCH)
    if kind == "namespace":
        name = f"{item.get('name', '')}."
        return [tool for member in item.get("tools") or [] for tool in _tools(member, name)]
    function = {
        "name": prefix + item.get("name", ""),
        "description": item.get("description") or "",
        "parameters": wire.sorted_keys(item.get("parameters") or {}),
    }
    return [{"type": kind, "function": function}]
