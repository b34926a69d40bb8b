"""R4: the fastest settings of drafting for one model on this machine, from few runs.

1. A trace of strict decoding at the greatest depth, with the cost of a round at every depth.
2. Every rule replayed offline on that trace; predicted speed = tokens per round / cost of a round.
3. The best three measured against plain decoding and each other, interleaved.
4. A gate: regret within the budget and valid JSON, else the best lossless rule.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ollama_spec.measure import prompts, quality, replay, sample, session, trace
from ollama_spec.measure.client import Client
from ollama_spec.measure.matrix import Configuration, measure, summarise
from ollama_spec.measure.replay import Rule
from ollama_spec.profiles import AcceptSettings, Profile
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord

Note = Callable[[str], None]
DEPTH = 7  # greatest depth traced: batches above 8 fall onto another kernel on CUDA
_FINALISTS = 3
_MARGIN = 0.02  # predicted speeds within this share of the best are worth measuring
_SERVERS = 2  # the plain target and the pair; rules are changed per request


@dataclass(frozen=True)
class Effort:
    prompts: int
    tokens: int
    repeats: int
    schemas: int


FULL = Effort(prompts=32, tokens=128, repeats=5, schemas=100)
QUICK = Effort(prompts=4, tokens=32, repeats=2, schemas=6)


def tune(
    runner: Binary, record: ModelRecord, effort: Effort, *, lossy: bool, temperature: float,
    note: Note,
) -> dict[str, Any]:  # fmt: skip
    """The evidence and, under "chosen", the rule; nothing is written."""
    depths = list(range(1, DEPTH + 1))
    with tempfile.TemporaryDirectory(prefix="ollama-spec-tune-") as folder:
        path = Path(folder) / "trace.ndjson"
        traced = {"n_max": DEPTH, "extra": ["--spec-draft-trace", str(path)]}
        with (
            session.serving(runner, record, drafting=False) as plain,
            session.serving(runner, record, **traced) as pair,
        ):
            asked = [pair.render(text) for text in prompts.mixture(effort.prompts)]
            sampling = {"temperature": temperature, "ignore_eos": True}
            note("1/4 trace of strict decoding")
            for index, prompt in enumerate(asked):
                pair.ask(prompt, effort.tokens, seed=index + 1, **sampling, **Rule(DEPTH).options())
            rounds = [trace.drafted(one) for one in trace.read(path) if not one.replay]
            note(f"2/4 cost of a round at {len(depths)} depths")
            costs = cost_table(plain, pair, asked, effort, depths, sampling)
            predicted = predict(rounds, costs, depths, lossy=lossy)
            finalists = choose_finalists(predicted)
            note(f"3/4 measuring {', '.join(rule.label() for rule in finalists)}")
            lines = confirm(plain, pair, finalists, asked, effort, sampling, note)
            note("4/4 quality gate")
            best = winner(finalists, lines)
            gate = quality_gate(pair, best, lines, effort, note)
            if not gate["passed"]:
                strict = [rule for rule in finalists if rule.lossless]
                best = winner(strict, lines)
    return {
        "model": record.name,
        "runner": runner.build,
        "servers_started": _SERVERS,
        "temperature": temperature,
        "lossy_allowed": lossy,
        "rounds_traced": len(rounds),
        "round_ms": {str(depth): round(cost, 3) for depth, cost in costs.items()},
        "rules_replayed": len(predicted),
        "predicted": [_shown(rule, *values) for rule, values in list(predicted.items())[:10]],
        "confirmed": lines,
        "gate": gate,
        "chosen": {**asdict(best), "label": best.label(), "lossless": best.lossless},
    }


def cost_table(
    plain: Client, pair: Client, asked: Sequence[str], effort: Effort, depths: Sequence[int],
    sampling: dict[str, Any],
) -> dict[int, float]:  # fmt: skip
    """Milliseconds of a round at each depth, draft and verification together; 0: a plain step.

    Depths take turns, and the median over prompts stands for each, as the machine may be busy.
    """
    found: dict[int, list[float]] = {depth: [] for depth in (0, *depths)}
    for index, prompt in enumerate(asked[: max(2, len(asked) // 4)]):
        for depth in (0, *depths):
            client = pair if depth else plain
            options = Rule(depth).options() if depth else {}
            answer = client.ask(prompt, effort.tokens, seed=index + 1, **sampling, **options)
            row = sample.row(answer)
            rounds = row["rounds"] if depth else row["tokens"] - 1
            found[depth].append(row["decode_ms"] / max(1, rounds))
    return {depth: median(values) for depth, values in found.items()}


Predicted = dict[Rule, tuple[float, replay.Outcome]]


def predict(
    rounds: Sequence[Sequence[trace.Drafted]], costs: dict[int, float], depths: Sequence[int],
    *, lossy: bool,
) -> Predicted:  # fmt: skip
    """Predicted tokens per second of every rule within its budget, fastest first; rule with
    n_max 0 is plain decoding."""
    found: Predicted = {Rule(0): (1000 / costs[0], replay.Outcome(1.0, 0.0, 0.0))}
    for rule in replay.grid(depths, lossy=lossy):
        outcome = replay.simulate(rounds, rule)
        if outcome.regret_per_token <= rule.budget:
            found[rule] = (1000 * outcome.tokens_per_round / costs[rule.n_max], outcome)
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def choose_finalists(predicted: Predicted) -> list[Rule]:
    """Three rules: the fastest, of those about as fast the one with the least regret, and always
    the fastest lossless one. Rules that differ in name only are measured once."""
    order = list(predicted)
    top = predicted[order[0]][0]
    near = [rule for rule in order if predicted[rule][0] >= top * (1 - _MARGIN)]
    near.sort(key=lambda rule: predicted[rule][1].regret_per_token)
    strict = [rule for rule in order if rule.lossless]
    depth = [rule for rule in order if rule.n_max != order[0].n_max]
    wanted = [order[0], strict[0], near[0], *depth, *order]
    chosen: list[Rule] = []
    for rule in wanted:
        known = {(item.n_max, predicted[item][1]) for item in chosen}
        if (rule.n_max, predicted[rule][1]) not in known:
            chosen.append(rule)
    return chosen[:_FINALISTS]


def confirm(
    plain: Client, pair: Client, finalists: Sequence[Rule], asked: Sequence[str], effort: Effort,
    sampling: dict[str, Any], note: Note,
) -> list[dict[str, Any]]:  # fmt: skip
    configurations = [Configuration("plain", plain)]
    configurations += [
        Configuration(rule.label(), pair, dict(rule.options())) for rule in finalists if rule.n_max
    ]
    rows = measure(configurations, asked, effort.tokens, effort.repeats, note=note, **sampling)
    return summarise(rows, "plain")


def winner(finalists: Sequence[Rule], lines: Sequence[dict[str, Any]]) -> Rule:
    """The fastest measured rule; plain decoding unless a rule is shown to be faster."""
    by_name = {line["config"]: line for line in lines}
    faster = [
        rule for rule in finalists if rule.n_max and by_name[rule.label()]["verdict"] == "faster"
    ]
    if not faster:
        return Rule(0)
    return max(faster, key=lambda rule: by_name[rule.label()]["tokens_per_second"]["value"])


def quality_gate(
    pair: Client, rule: Rule, lines: Sequence[dict[str, Any]], effort: Effort, note: Note
) -> dict[str, Any]:
    """Lossless rules pass; a lossy one must keep its budget and break no JSON."""
    if rule.lossless:
        return {"passed": True, "why": "lossless"}
    regret = next(ln["regret_nats_per_token"] for ln in lines if ln["config"] == rule.label())
    checked = quality.check_json(pair, effort.schemas, dict(rule.options()), note)
    passed = regret <= rule.budget and not checked.errors and not checked.invalid
    return {"passed": passed, "regret_nats_per_token": regret, "json": asdict(checked)}


def profile_with(profile: Profile, rule: Rule) -> Profile:
    """The profile with drafting set by `rule`; everything else as it was."""
    accept = profile.spec.accept.model_copy(update={"mode": "strict"})
    if not rule.lossless:
        accept = AcceptSettings(
            mode="relaxed",
            top_n=rule.top_n,
            ratio=rule.ratio,
            window=rule.window,
            budget_nats=rule.budget,
        )
    spec = profile.spec.model_copy(update={"n_max": rule.n_max, "accept": accept, "preset": None})
    return profile.model_copy(update={"spec": spec})


def _shown(rule: Rule, speed: float, outcome: replay.Outcome) -> dict[str, Any]:
    return {
        "rule": rule.label(),
        "tokens_per_second": round(speed, 2),
        "tokens_per_round": round(outcome.tokens_per_round, 3),
        "regret_nats_per_token": round(outcome.regret_per_token, 5),
    }
