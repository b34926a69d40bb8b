"""Table 4: adaptive depth against every fixed one, on four kinds of prompt.

Drafting is strict here, so with one seed all configurations write the same text and differ in time
only. An oracle that knew the best fixed depth of each kind beforehand bounds what a policy can gain
by telling the kinds apart; a policy that also tells tokens apart may pass it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from acceptance_inflated import SAMPLING, large_target
from acceptance_pairs import STRICT, lines_of, pair_servers, speed_of, take_turns

from ollama_spec import output
from ollama_spec.measure import prompts
from ollama_spec.measure.matrix import Configuration

KINDS = ("code", "list", "prose", "chat")
POLICIES = ("cost", "ema")


def adaptive(a: argparse.Namespace, runner: Path, target: Path, drafter: Path) -> dict[str, Any]:
    large = large_target(target, a.factor)
    with pair_servers(runner, large, drafter, "draft-simple", max(a.depths), a.threads) as (
        plain,
        pair,
    ):
        modes = [Configuration("plain", plain)]
        for n in a.depths:
            modes.append(Configuration(f"n{n}", pair, {**STRICT, "speculative.n_max": n}))
        for policy in POLICIES:
            modes.append(Configuration(policy, pair, {**STRICT, "speculative.adaptive": policy}))
        warm_up(pair, plain.render("Tell me about the weather."))
        asked = {
            kind: [plain.render(text) for text in prompts.shipped(kind, a.kind_prompts)]
            for kind in KINDS
        }
        rows = {
            kind: take_turns(a.rows, f"kind {kind}", modes, asked[kind], a.tokens,
                             a.kind_repeats, **SAMPLING)
            for kind in KINDS
        }  # fmt: skip
    speeds = {
        kind: {line["config"]: speed_of(line) for line in lines_of(found)}
        for kind, found in rows.items()
    }
    together = [row | {"set": "mixture"} for found in rows.values() for row in found]
    speeds["mixture"] = {line["config"]: speed_of(line) for line in lines_of(together)}
    print(f"\n## adaptive depth, SmolLM2 F16 x{a.factor}, drafter {drafter.name}, strict, T 0.6\n")
    names = [mode.name for mode in modes]
    print(
        output.table(
            ["tok/s", *names],
            [[kind, *(f"{row[name]:.2f}" for name in names)] for kind, row in speeds.items()],
        )
    )
    return {"tokens_per_second": speeds, **judged(speeds, rows, a.depths)}


def warm_up(pair: Any, prompt: str) -> None:
    """A policy belongs to the slot and is kept over requests; let it meet this machine first."""
    for policy in POLICIES:
        pair.ask(prompt, 96, **SAMPLING, **STRICT, **{"speculative.adaptive": policy})


def judged(
    speeds: dict[str, dict[str, float]], rows: dict[str, Any], depths: list[int]
) -> dict[str, Any]:
    fixed = [f"n{n}" for n in depths]
    kinds = [kind for kind in speeds if kind != "mixture"]
    single = max(fixed, key=lambda name: speeds["mixture"][name])
    oracle = mixed(rows, {kind: max(fixed, key=lambda n: speeds[kind][n]) for kind in kinds})
    found: dict[str, Any] = {
        "best_fixed": single,
        "oracle_over_best_fixed": round(oracle / speeds["mixture"][single], 3),
    }
    for policy in POLICIES:
        own = speeds["mixture"][policy]
        worst_kind = min(speeds[k][policy] / max(speeds[k][n] for n in fixed) for k in kinds)
        worst_plain = min(row[policy] / row["plain"] for row in speeds.values())
        found[policy] = {
            "over_best_fixed": round(own / speeds["mixture"][single], 3),
            "over_oracle": round(own / oracle, 3),
            "over_plain": round(own / speeds["mixture"]["plain"], 3),
            "worst_kind_over_its_best_fixed": round(worst_kind, 3),
            "worst_over_plain": round(worst_plain, 3),
            "holds": own >= 1.05 * speeds["mixture"][single]
            and worst_kind >= 0.98
            and worst_plain >= 0.98,
        }
        print(f"\n{policy}: {found[policy]}")
    print(
        f"\nbest single fixed depth {single}; an oracle with the best fixed depth of each kind: "
        f"{found['oracle_over_best_fixed']} of it"
    )
    return found


def mixed(rows: dict[str, Any], choice: dict[str, str]) -> float:
    """Tokens per second over all kinds when each runs the configuration chosen for it."""
    mine = [row for kind, found in rows.items() for row in found if row["config"] == choice[kind]]
    tokens = sum(row["tokens"] - 1 for row in mine)
    return float(tokens / sum(row["decode_ms"] / 1000 for row in mine))
