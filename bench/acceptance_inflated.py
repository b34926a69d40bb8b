"""Table 1: the inflated pair, whose target is bound by memory as on a GPU.

All of n_max would take hours on two cores, so this is successive halving: every n_max on a few
prompts first, then the best of each mode in turns on all prompts with all repeats. Only the second
table is judged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from acceptance_pairs import (
    RELAXED,
    STRICT,
    best,
    lines_of,
    pair_servers,
    speed_of,
    table,
    take_turns,
)

from ollama_spec.measure import prompts
from ollama_spec.measure.client import Client
from ollama_spec.measure.fixtures import inflate
from ollama_spec.measure.matrix import Configuration

SAMPLING = {"temperature": 0.6, "ignore_eos": True}


def large_target(target: Path, factor: int) -> Path:
    large = target.with_name(f"{target.stem}.x{factor}-f16.gguf")
    return inflate.inflate(target, large, factor, half=True)


def choice(plain: Client, pair: Client, kind: str, n_max: int) -> Configuration:
    if kind == "plain":
        return Configuration("plain", plain)
    rule = STRICT if kind == "strict" else RELAXED
    return Configuration(f"{kind} n{n_max}", pair, {**rule, "speculative.n_max": n_max})


def inflated(a: argparse.Namespace, runner: Path, target: Path, drafter: Path) -> dict[str, Any]:
    large = large_target(target, a.factor)
    more = ["--spec-draft-trace", str(a.trace)] if a.trace else []
    with pair_servers(runner, large, drafter, "draft-simple", max(a.depths), a.threads, *more) as (
        plain,
        pair,
    ):
        asked = [plain.render(text) for text in prompts.mixture(a.prompts)]
        modes = [choice(plain, pair, "plain", 0)]
        for n in a.depths:
            modes += [choice(plain, pair, kind, n) for kind in ("strict", "relaxed")]
        few = asked[: a.scan_prompts]
        scan = lines_of(take_turns(a.rows, "scan", modes, few, a.tokens, 1, **SAMPLING))
        chosen = {
            line["config"]
            for kind in ("plain", "strict", "relaxed")
            for line in best(scan, kind, a.finalists)
        }
        finalists = [mode for mode in modes if mode.name in chosen]
        rows = take_turns(a.rows, "final", finalists, asked, a.tokens, a.repeats, **SAMPLING)
    lines = lines_of(rows)
    title = f"inflated pair: SmolLM2 F16 x{a.factor}, drafter {drafter.name}, T 0.6"
    print(f"\n## {title}\n\nEvery n_max, {len(few)} prompts, 1 repeat, {a.tokens} tokens:\n")
    print(table(scan))
    print(f"\nThe best of each, {len(asked)} prompts, {a.repeats} repeats, in turns:\n")
    print(table(lines))
    (plain_line,), (strict,), (relaxed,) = (best(lines, k) for k in ("plain", "strict", "relaxed"))
    found = {
        "factor": a.factor,
        "drafter": drafter.name,
        "prompts": len(asked),
        "tokens": a.tokens,
        "repeats": a.repeats,
        "best_strict": strict["config"],
        "best_relaxed": relaxed["config"],
        "relaxed_over_strict": round(speed_of(relaxed) / speed_of(strict), 3),
        "relaxed_over_plain": round(speed_of(relaxed) / speed_of(plain_line), 3),
        "regret_nats_per_token": relaxed["regret_nats_per_token"],
    }
    found["holds"] = found["relaxed_over_strict"] >= 1.25 and found["relaxed_over_plain"] >= 1.15
    print(
        f"\nrelaxed over strict {found['relaxed_over_strict']} (goal 1.25), over plain "
        f"{found['relaxed_over_plain']} (goal 1.15), regret {found['regret_nats_per_token']} "
        "nats/token (goal 0.05)"
    )
    return {**found, "scan": scan, "final": lines}
