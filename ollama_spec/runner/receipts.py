"""The receipt `spec`: what was drafted, kept and given up for one answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ollama_spec.runner.control import Mode


def receipt(timings: Mapping[str, Any], mode: Mode, build: str) -> dict[str, Any]:
    """From llama-server's `timings`.

    `lossless`: no token was accepted by relaxation and no prompt token was left out, so the answer
    is distributed as the target's own. `acceptance_length`: tokens per verification round, from
    the rounds counted by our runner, else from predicted and accepted (each round yields its
    accepted drafts and one token of the target's).
    """
    predicted = int(timings.get("predicted_n") or 0)
    drafted = int(timings.get("draft_n") or 0)
    accepted = int(timings.get("draft_n_accepted") or 0)
    relaxed = int(timings.get("draft_n_relaxed") or 0)
    rounds = int(timings.get("draft_n_rounds") or 0) or predicted - accepted
    prefill = _prefill(timings)
    return {
        "mode": mode,
        "lossless": relaxed == 0 and prefill["kept"] == prefill["total"],
        "drafted": drafted,
        "accepted": accepted,
        "relaxed": relaxed,
        "acceptance_length": round(predicted / rounds, 3) if drafted and rounds > 0 else 1.0,
        "regret_nats": round(float(timings.get("draft_regret_nats") or 0), 6),
        "prefill": prefill,
        "build": build,
    }


def _prefill(timings: Mapping[str, Any]) -> dict[str, Any]:
    total = int(timings.get("prompt_n") or 0) + int(timings.get("cache_n") or 0)
    sparse = timings.get("specprefill")
    if not isinstance(sparse, Mapping):
        return {"status": "dense", "kept": total, "total": total}
    total = int(sparse.get("n_prompt") or total)
    status = str(sparse.get("status", "dense"))
    # Only these two left something out; the others say why nothing was.
    dropped = status in ("active", "reused")
    return {"status": status, "kept": int(sparse["n_kept"]) if dropped else total, "total": total}
