"""Receipts for answers that Ollama gives with our runner: from the runner's trace.

Ollama drops llama-server's `timings`. Our runner also writes one JSON line per verification round
(`--spec-draft-trace`); the lines added since a request began are that answer's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ollama_spec.runner import wire


def size(trace: Path) -> int:
    return trace.stat().st_size if trace.exists() else 0


def rounds_since(trace: Path, mark: int) -> list[dict[str, Any]]:
    """The rounds written after the file had `mark` bytes."""
    if size(trace) <= mark:
        return []
    with trace.open("rb") as stream:
        stream.seek(mark)
        whole = stream.read().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def receipt(rounds: Iterable[dict[str, Any]], build: str) -> dict[str, Any]:
    """Counts of one answer. A replayed round repeats tokens that were counted before."""
    drafted = accepted = relaxed = fresh = 0
    regret, mode = 0.0, "strict"
    for item in rounds:
        if item["replay"]:
            continue
        fresh += 1
        drafted += len(item["drafts"])
        accepted += item["n_accepted"]
        mode = "relaxed" if item["relaxed"] else mode
        taken = [place for place in item["positions"] if place["verdict"] == "relaxed"]
        relaxed += len(taken)
        regret -= sum(place["log_ratio"] for place in taken)
    return {
        "mode": mode if drafted else "off",
        "lossless": relaxed == 0,
        "drafted": drafted,
        "accepted": accepted,
        "relaxed": relaxed,
        "acceptance_length": round((accepted + fresh) / fresh, 3) if drafted else 1.0,
        "regret_nats": round(max(regret, 0.0), 6),
        "build": build,
    }


# What only the last object of a streamed answer has. In a text the quotes would be escaped.
_LAST = {
    "/api/chat": b'"done":true',
    "/api/generate": b'"done":true',
    "/v1/chat/completions": b'"finish_reason":"',
    "/v1/completions": b'"finish_reason":"',
    "/v1/messages": b'"type":"message_delta"',
    "/v1/responses": b'"type":"response.completed"',
}
ROUTES = frozenset(_LAST)


def is_last(route: str, line: bytes) -> bool:
    """Whether a line of an answer holds its last object, or the only one of an unstreamed one."""
    if line.startswith(b"data:") or route.startswith("/api/"):
        return _LAST[route] in line
    return line.startswith(b"{")


def with_receipt(line: bytes, spec: dict[str, Any]) -> bytes:
    """The last object of an answer with a `spec`; its other bytes stay Ollama's own."""
    body = line.rstrip()
    if not body.endswith(b"}"):
        return line
    return body[:-1] + b',"spec":' + wire.dumps(spec) + b"}" + line[len(body) :]
