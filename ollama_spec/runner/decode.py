"""Read request bodies the way Go's `encoding/json` does (contract 0.1).

Keys match without case, unknown keys are ignored, and a value of the wrong type is a 400 with
Go's words for it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any

from ollama_spec.runner.apierror import ApiError

Fields = Mapping[str, str]

GENERATE: Fields = {
    "model": "string",
    "prompt": "string",
    "suffix": "string",
    "system": "string",
    "template": "string",
    "context": "[]int",
    "stream": "bool",
    "raw": "bool",
    "format": "any",
    "keep_alive": "any",
    "images": "[][]uint8",
    "options": "map[string]interface {}",
    "think": "any",
    "truncate": "bool",
    "shift": "bool",
    "logprobs": "bool",
    "top_logprobs": "int",
    "_debug_render_only": "bool",
}
CHAT: Fields = {
    "model": "string",
    "messages": "[]api.Message",
    "stream": "bool",
    "format": "any",
    "keep_alive": "any",
    "tools": "api.Tools",
    "options": "map[string]interface {}",
    "think": "any",
    "truncate": "bool",
    "shift": "bool",
    "logprobs": "bool",
    "top_logprobs": "int",
    "_debug_render_only": "bool",
}
MESSAGE: Fields = {
    "role": "string",
    "content": "string",
    "thinking": "string",
    "images": "[][]uint8",
    "tool_calls": "[]api.ToolCall",
    "tool_name": "string",
    "tool_call_id": "string",
}

_KINDS = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}


def kind_of(value: Any) -> str:
    """Go's word for a JSON value's type."""
    return _KINDS.get(type(value), "value")


def parse(body: bytes) -> dict[str, Any]:
    """The request's JSON object; a 400 worded as Go words it otherwise."""
    if not body.strip():
        raise ApiError(400, "missing request body")
    try:
        text = body.decode("utf-8", "replace")
        value = json.loads(text, parse_constant=_constant, parse_float=_finite)
    except RecursionError:
        raise ApiError(400, "exceeded max depth") from None
    except json.JSONDecodeError as error:
        raise ApiError(400, _syntax_text(error)) from None
    except ValueError as error:
        raise ApiError(400, str(error)) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        kind = _KINDS.get(type(value), "value")
        raise ApiError(400, f"json: cannot unmarshal {kind} into Go value of type api.Request")
    return value


def _constant(text: str) -> float:
    """NaN and Infinity, which Python would take and JSON does not have."""
    raise ApiError(400, f"invalid character '{text[0]}' looking for beginning of value")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ApiError(400, f"json: cannot unmarshal number {text} into Go value of type float64")
    return value


def _syntax_text(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :].lstrip()
    if not rest:
        return "unexpected EOF"
    if error.msg.startswith("Extra data"):
        # Go's decoder stops after the first value; callers never get here with a valid object.
        return f"invalid character '{rest[0]}' after top-level value"
    if error.msg.startswith("Unterminated string"):
        return "unexpected EOF"
    if error.msg.startswith("Expecting property name"):
        return f"invalid character '{rest[0]}' looking for beginning of object key string"
    if "':' delimiter" in error.msg:
        return f"invalid character '{rest[0]}' after object key"
    if "',' delimiter" in error.msg:
        where = "object key:value pair" if _inside_object(error) else "array element"
        return f"invalid character '{rest[0]}' after {where}"
    return f"invalid character '{rest[0]}' looking for beginning of value"


def _inside_object(error: json.JSONDecodeError) -> bool:
    before = error.doc[: error.pos]
    return before.rfind("{") > before.rfind("[")


def fields(value: Mapping[str, Any], known: Fields, struct: str) -> dict[str, Any]:
    """Only the known fields, spelled as we spell them and checked for type. Null is absent."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = key if key in known else key.lower()
        if name not in known or item is None:
            continue
        _check(item, known[name], f"{struct}.{name}")
        found[name] = item
    return found


def _check(item: Any, kind: str, where: str) -> None:
    got = kind_of(item)
    wanted = {
        "string": "string",
        "bool": "bool",
        "int": "number",
        "float32": "number",
        "float64": "number",
        "any": got,
    }.get(kind, "array" if kind.startswith("[]") or kind == "api.Tools" else "object")
    if got != wanted:
        raise ApiError(
            400, f"json: cannot unmarshal {got} into Go struct field {where} of type {kind}"
        )
    if kind == "int" and isinstance(item, float):
        raise ApiError(
            400, f"json: cannot unmarshal number {item} into Go struct field {where} of type int"
        )
    if kind == "[]int" and not all(type(part) is int for part in item):
        raise ApiError(
            400, f"json: cannot unmarshal value into Go struct field {where} of type int"
        )


def images(value: list[Any] | None) -> list[bytes]:
    """Base64 images (or audio) as bytes; standard alphabet, padding required, no data URI."""
    decoded = []
    for item in value or []:
        if not isinstance(item, str):
            kind = _KINDS.get(type(item), "value")
            raise ApiError(400, f"json: cannot unmarshal {kind} into Go value of type []uint8")
        text = item.replace("\n", "").replace("\r", "")
        try:
            decoded.append(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            raise ApiError(400, f"illegal base64 data at input byte {_bad_byte(text)}") from None
    return decoded


def _bad_byte(text: str) -> int:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for index, character in enumerate(text):
        if character not in alphabet:
            return index
    return len(text) - len(text) % 4
