"""One measured answer as a row of a result, and what a set of rows says together."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from ollama_spec.measure import stats
from ollama_spec.measure.client import Answer
from ollama_spec.measure.stats import Timed

Row = dict[str, Any]


def row(answer: Answer, **where: Any) -> Row:
    """`where` says which configuration, prompt and repeat it was. Times in ms."""
    timings, spec = answer.timings, answer.spec
    drafted = timings.get("draft_n", spec.get("drafted") or 0)
    accepted = timings.get("draft_n_accepted", spec.get("accepted") or 0)
    return {
        **where,
        "tokens": answer.n_tokens,
        "ttft_ms": answer.ttft * 1000,
        "decode_ms": _decode_ms(answer),
        "prompt_tokens": timings.get("prompt_n"),
        "prompt_ms": timings.get("prompt_ms"),
        "drafted": drafted,
        "accepted": accepted,
        "rounds": timings.get("draft_n_rounds"),
        "relaxed": timings.get("draft_n_relaxed", spec.get("relaxed") or 0),
        "regret_nats": timings.get("draft_regret_nats", spec.get("regret_nats") or 0.0),
        "accepted_per_pos": timings.get("draft_accepted_per_pos"),
        "prefill": timings.get("specprefill"),
        "text": answer.text,
    }


def _decode_ms(answer: Answer) -> float:
    """As seen here, but no less than what the server says it took: on a busy machine the client may
    wake up so late that the first token and the last arrive together."""
    seen = (answer.total - answer.ttft) * 1000
    tokens = max(2, answer.n_tokens)
    told = float(answer.timings.get("predicted_ms") or 0.0) * (tokens - 1) / tokens
    return max(seen, told)


def timed(rows: Sequence[Row]) -> list[Timed]:
    """What `stats.speed` takes. The first token belongs to the prompt's time, not to decoding."""
    return [Timed(max(1, row["tokens"] - 1), row["decode_ms"] / 1000) for row in rows]


def wait_gain(slow: Sequence[Row], quick: Sequence[Row]) -> stats.Interval:
    """Median over pairs of answers (same prompt and repeat) of the one wait over the other."""
    pairs = zip(slow, quick, strict=True)
    return stats.median([one["ttft_ms"] / other["ttft_ms"] for one, other in pairs])


def acceptance(rows: Sequence[Row]) -> float | None:
    """Accepted over drafted tokens; None where nothing was drafted."""
    drafted = sum(row["drafted"] for row in rows)
    return sum(row["accepted"] for row in rows) / drafted if drafted else None


def acceptance_length(rows: Sequence[Row]) -> float | None:
    """Tokens per verification round, 1 + accepted / rounds. A server that does not count rounds
    still emits one token more than it accepts in each, so their number follows."""
    if not sum(row["drafted"] for row in rows):
        return None
    accepted = sum(row["accepted"] for row in rows)
    rounds = sum(
        row["tokens"] - row["accepted"] - 1 if row["rounds"] is None else row["rounds"]
        for row in rows
    )
    return 1 + accepted / rounds if rounds else None


def per_position(rows: Sequence[Row]) -> list[float]:
    """Unconditional rate per draft position: accepted there over rounds."""
    counts = [row["accepted_per_pos"] or [] for row in rows]
    rounds = sum(row["rounds"] or 0 for row in rows)
    depth = max((len(count) for count in counts), default=0)
    if not rounds:
        return []
    return [
        round(sum(count[i] for count in counts if i < len(count)) / rounds, 4) for i in range(depth)
    ]


def regret_per_token(rows: Sequence[Row]) -> float:
    tokens = sum(row["tokens"] for row in rows)
    return sum(row["regret_nats"] for row in rows) / tokens if tokens else 0.0


def relaxed_share(rows: Sequence[Row]) -> float:
    tokens = sum(row["tokens"] for row in rows)
    return sum(row["relaxed"] for row in rows) / tokens if tokens else 0.0


def prefill_rate(rows: Sequence[Row]) -> float | None:
    """Prompt tokens per second, as the server counts and times them."""
    known = [row for row in rows if row["prompt_ms"]]
    total = sum(row["prompt_ms"] for row in known)
    return 1000 * sum(row["prompt_tokens"] for row in known) / total if total else None


def prompt_tokens(rows: Sequence[Row]) -> float | None:
    """Median size of the prompts as the server counts them."""
    known = [row["prompt_tokens"] for row in rows if row["prompt_tokens"]]
    return float(median(known)) if known else None


def joules_per_token(rows: Sequence[Row]) -> float | None:
    """Energy of the whole answer, prompt included, over its tokens."""
    known = [row for row in rows if row.get("energy_j") is not None]
    tokens = sum(row["tokens"] for row in known)
    return sum(row["energy_j"] for row in known) / tokens if tokens else None


def median_of(rows: Sequence[Row], key: str) -> float:
    return float(median(row[key] for row in rows))
