"""What two answers must have in common. Times, ids and sizes differ by nature: only their type
counts. Everything else, texts and key order included, must be equal."""

from __future__ import annotations

import json
from typing import Any

import httpx
from real_ollama.cases import Case

HEADERS = (
    "content-type", "cache-control", "location",
    "access-control-allow-origin", "access-control-allow-methods",
)  # fmt: skip
_VOLATILE = {
    "created_at", "completed_at", "created", "id", "item_id", "response_id", "request_id",
    "total_duration", "load_duration", "prompt_eval_duration", "eval_duration",
    "modified_at", "expires_at", "digest", "size", "logprob", "fingerprint", "call_id",
}  # fmt: skip
# Accepted differences: what we add to an answer.
_OURS = {"spec"}


def outcome(reply: httpx.Response) -> dict[str, Any]:
    headers = {name: reply.headers[name] for name in HEADERS if name in reply.headers}
    return {"status": reply.status_code, "headers": headers, "items": _items(reply)}


def _items(reply: httpx.Response) -> list[Any]:
    kind = reply.headers.get("content-type", "")
    if "event-stream" in kind:
        return [_event(block) for block in reply.text.split("\n\n")]
    if "json" not in kind:
        return [reply.text]
    ended = "with newline" if reply.content.endswith(b"\n") else "without newline"
    return [*[_value(line) for line in reply.text.splitlines()], ended]


def _value(text: str) -> Any:
    try:
        return stable(json.loads(text))
    except ValueError:
        return text


def _event(block: str) -> list[Any]:
    fields = [line.partition(": ") for line in block.split("\n") if line]
    return [[key, _value(value) if key == "data" else value] for key, _, value in fields]


def stable(value: Any, key: str = "") -> Any:
    """`value` as pairs in order, volatile parts replaced by their type."""
    if key in _VOLATILE and value is not None:
        return type(value).__name__
    if key in ("parameters", "modelfile") and isinstance(value, str):
        return sorted(value.splitlines())  # Ollama writes parameters in random order
    if isinstance(value, dict):
        return {name: stable(item, name) for name, item in value.items() if name not in _OURS}
    if isinstance(value, list):
        if len(value) > 8 and all(isinstance(item, float | int) for item in value):
            return ["numbers", len(value)]
        return [stable(item) for item in value]
    return value


def differences(theirs: Any, ours: Any, where: str = "") -> list[str]:
    """One line per difference, innermost first found; key order of objects counts."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        if list(theirs) != list(ours):
            found.append(f"{where} keys: {list(theirs)} != {list(ours)}")
        for key in theirs.keys() & ours.keys():
            found += differences(theirs[key], ours[key], f"{where}.{key}")
        return found
    if isinstance(theirs, list) and isinstance(ours, list):
        found = []
        if len(theirs) != len(ours):
            found.append(f"{where} length: {len(theirs)} != {len(ours)}")
        for index, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            found += differences(one, other, f"{where}[{index}]")
        return found
    same = theirs == ours and isinstance(theirs, bool) == isinstance(ours, bool)
    return [] if same else [f"{where}: {theirs!r} != {ours!r}"]


def ask(http: httpx.Client, case: Case) -> dict[str, Any]:
    request = http.build_request(case.method, case.path, content=case.body, headers=case.headers)
    return outcome(http.send(request, follow_redirects=False))
