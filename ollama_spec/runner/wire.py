"""JSON, times and identifiers as Ollama's Go server writes them (contract 0.2)."""

from __future__ import annotations

import json
import re
import secrets
import string
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

_SURROGATE = re.compile("[\ud800-\udfff]")
_ALPHABET = string.ascii_lowercase + string.digits
# Go escapes these in strings; outside strings JSON never holds them, so plain replacement is safe.
_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def loads(data: bytes) -> Any:
    """JSON as Python's own reader takes it; ValueError when it is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)  # lone surrogates, NaN


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON with Go's escapes; lone surrogates become U+FFFD as Go makes them."""
    try:
        data = orjson.dumps(value)
    except orjson.JSONEncodeError:  # lone surrogates, numbers beyond 64 bits
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        data = _SURROGATE.sub("\ufffd", text).encode()
    for plain, escaped in _ESCAPES:
        if plain in data:
            data = data.replace(plain, escaped)
    return data


def sorted_keys(value: Any) -> Any:
    """The value as Go writes a map: keys in order, on every level."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(item) for item in value] if isinstance(value, list) else value


def line(value: Any) -> bytes:
    """One NDJSON line."""
    return dumps(value) + b"\n"


def event(name: str, value: Any) -> bytes:
    """One server-sent event with a name."""
    return b"event: " + name.encode() + b"\ndata: " + dumps(value) + b"\n\n"


def with_logprobs(chunk: dict[str, Any], entries: list[Any]) -> dict[str, Any]:
    """The chunk with its log probabilities where Ollama's struct has them: before the metrics."""
    if not entries:
        return chunk
    found: dict[str, Any] = {}
    for key, value in chunk.items():
        if key.endswith(("_duration", "_count", "spec")) and "logprobs" not in found:
            found["logprobs"] = entries
        found[key] = value
    found.setdefault("logprobs", entries)
    return found


def _fraction(nanoseconds: int) -> str:
    digits = f"{nanoseconds:09d}".rstrip("0")
    return f".{digits}" if digits else ""


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def now() -> str:
    """UTC in RFC 3339 with nanoseconds, trailing zeros dropped."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    return f"{_second(seconds)}{_fraction(nanoseconds)}Z"


def local_time(seconds: float) -> str:
    """RFC 3339 with the machine's offset, as `modified_at` and `expires_at` are given."""
    whole, nanoseconds = divmod(int(seconds * 10**6) * 1000, 10**9)
    moment = datetime.fromtimestamp(whole, UTC).astimezone()
    offset = moment.strftime("%z")
    zone = "Z" if offset == "+0000" else f"{offset[:3]}:{offset[3:]}"
    return f"{moment.strftime('%Y-%m-%dT%H:%M:%S')}{_fraction(nanoseconds)}{zone}"


def random_id(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
