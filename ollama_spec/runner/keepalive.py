"""`keep_alive` values (contract 4.7): seconds as a number, or a Go duration string."""

from __future__ import annotations

import re
from typing import Any

from ollama_spec.runner.apierror import ApiError

FOREVER = float("inf")

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_TERM = re.compile(r"(\d+\.?\d*|\.\d+)([a-zµμ]*)", re.IGNORECASE)
_GO_KINDS = {bool: "bool", list: "[]interface {}", dict: "map[string]interface {}"}


def go_duration(text: str) -> float:
    """Seconds; raises ValueError worded as Go's time.ParseDuration."""
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    rest = text
    sign = -1 if rest.startswith("-") else 1
    if rest[:1] in ("-", "+"):
        rest = rest[1:]
    if rest == "0":
        return 0.0
    if not rest:
        raise ValueError(f"time: invalid duration {quoted}")
    total = 0.0
    while rest:
        term = _TERM.match(rest)
        if not term:
            raise ValueError(f"time: invalid duration {quoted}")
        if not term[2]:
            raise ValueError(f"time: missing unit in duration {quoted}")
        if term[2] not in _UNITS:
            raise ValueError(f'time: unknown unit "{term[2]}" in duration {quoted}')
        total += float(term[1]) * _UNITS[term[2]]
        rest = rest[term.end() :]
    return sign * total


def parse(value: Any) -> float | None:
    """Seconds, FOREVER for negative values, None when absent; 400 for anything else."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            seconds = go_duration(value)
        except ValueError as error:
            raise ApiError(400, str(error)) from None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise ApiError(400, f"Unsupported type: '{_GO_KINDS.get(type(value), 'unknown')}'")
    return FOREVER if seconds < 0 else seconds


def from_setting(text: str) -> float:
    """The setting `keep_alive`: a Go duration or whole seconds (contract 3.5)."""
    try:
        seconds = float(int(text))
    except ValueError:
        try:
            seconds = go_duration(text)
        except ValueError:
            seconds = 300.0
    return FOREVER if seconds < 0 else seconds
