"""JSON, times and identifiers as Ollama's Go server writes them (contract 0.2)."""

from __future__ import annotations

import json
import re
import secrets
import string
import time
from datetime import UTC, datetime
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_ALPHABET = string.ascii_lowercase + string.digits
# Go escapes these in strings; outside strings JSON never holds them, so plain replacement is safe.
_ESCAPES = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON with Go's escapes; lone surrogates become U+FFFD as Go makes them."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.translate(_ESCAPES)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text).encode()


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


def now() -> str:
    """UTC in RFC 3339 with nanoseconds, trailing zeros dropped."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}{_fraction(nanoseconds)}Z"


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
