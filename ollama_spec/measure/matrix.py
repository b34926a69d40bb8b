"""Configurations measured against each other, interleaved, and the table that comes of it."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ollama_spec.measure import energy, sample, stats
from ollama_spec.measure.client import Client
from ollama_spec.measure.sample import Row

_NOTE_EVERY = 15.0  # seconds
_WARM_UP = 1000  # characters; brings the weights into memory without reading a long document


@dataclass(frozen=True)
class Configuration:
    """A name, the endpoint that runs it and what its requests carry."""

    name: str
    client: Client
    options: dict[str, Any] = field(default_factory=dict)
    chat: bool = False  # prompts are user turns, for the model's template; else the text as it is
    salted: bool = False  # for servers that cannot be told to forget a prompt: each begins anew

    def text_of(self, prompt: str, *where: object) -> str:
        """What is sent for `prompt`; `where` tells salted requests apart."""
        if self.salted:
            # A few tokens no other request starts with: a prompt cache then has nothing to offer.
            prompt = f"[{zlib.crc32(repr((self.name, *where)).encode()):08x}] {prompt}"
        return self.client.render(prompt) if self.chat else prompt


def measure(
    configurations: Sequence[Configuration],
    prompts: Sequence[str],
    n_predict: int,
    repeats: int,
    *,
    note: Callable[[str], None],
    prompt_set: str = "",
    first: int = 0,
    **options: Any,
) -> list[Row]:
    """Ask every prompt of every configuration, `repeats` times, after one warm-up each.

    For each prompt all configurations follow one another at once, in an order that turns round
    with every repeat (A B C, C B A, ...), so that drift of the machine hits all alike. The same
    seed is used for all configurations of a repeat. Repeats are numbered from `first`.
    """
    for configuration in configurations:
        text = configuration.text_of(prompts[0][:_WARM_UP], "warm-up")
        configuration.client.ask(text, min(8, n_predict), **{**options, **configuration.options})
    rows: list[Row] = []
    total, last_note = repeats * len(prompts) * len(configurations), time.monotonic()
    for repeat in range(first, first + repeats):
        for index, prompt in enumerate(prompts):
            turn = configurations if (repeat + index) % 2 == 0 else configurations[::-1]
            for configuration in turn:
                asked = {"seed": 1000 * repeat + index + 1, **options, **configuration.options}
                where = {"config": configuration.name, "set": prompt_set, "prompt": index}
                text = configuration.text_of(prompt, prompt_set, index, repeat)
                before = energy.joules()
                answer = configuration.client.ask(text, n_predict, **asked)
                used = energy.since(before)
                rows.append(sample.row(answer, **where, repeat=repeat, energy_j=used))
            if time.monotonic() - last_note > _NOTE_EVERY:
                last_note = time.monotonic()
                note(f"{prompt_set or 'prompts'}: {len(rows)} of {total} answers")
    return rows


def summarise(rows: Sequence[Row], baseline: str) -> list[dict[str, Any]]:
    """One line per prompt set and configuration, compared with `baseline` pair by pair."""
    lines = []
    for prompt_set in dict.fromkeys(row["set"] for row in rows):
        inside = [row for row in rows if row["set"] == prompt_set]
        for name in dict.fromkeys(row["config"] for row in inside):
            mine = of_config(inside, name)
            line = {"set": prompt_set, "config": name, **_line(mine, of_config(inside, baseline))}
            if name == baseline:
                line["verdict"] = "baseline"
            lines.append(line)
    return lines


def of_config(rows: Sequence[Row], name: str) -> list[Row]:
    mine = [row for row in rows if row["config"] == name]
    return sorted(mine, key=lambda row: (row["repeat"], row["prompt"]))


def _line(rows: Sequence[Row], baseline: Sequence[Row]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "answers": len(rows),
        "tokens": sum(row["tokens"] for row in rows),
        "tokens_per_second": stats.speed(sample.timed(rows)).rounded(2),
        "ttft_ms": stats.median([row["ttft_ms"] for row in rows]).rounded(1),
        "tpot_ms": round(1000 / stats.speed(sample.timed(rows)).value, 3),
        "prompt_tokens": sample.prompt_tokens(rows),
        "prefill_tokens_per_second": _rounded(sample.prefill_rate(rows), 1),
        "prefill_status": dict(Counter((row["prefill"] or {}).get("status") for row in rows)),
        "acceptance": _rounded(sample.acceptance(rows), 4),
        "acceptance_length": _rounded(sample.acceptance_length(rows), 3),
        "accepted_per_position": sample.per_position(rows),
        "relaxed_share": round(sample.relaxed_share(rows), 4),
        "regret_nats_per_token": round(sample.regret_per_token(rows), 5),
        "joules_per_token": _rounded(sample.joules_per_token(rows), 3),
    }
    if len(baseline) == len(rows):
        ratio = stats.speed_ratio(sample.timed(rows), sample.timed(baseline))
        line["speed_ratio"] = ratio.rounded()
        line["verdict"] = stats.verdict(ratio)
        line["ttft_gain"] = sample.wait_gain(baseline, rows).rounded()
    return line


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
