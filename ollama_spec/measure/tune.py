"""R4: the fastest settings of drafting for one model on this machine, from few runs.

1. A lossless trace at the greatest depth, one more for each early stop (`p_min`), and the cost of a
   round at every depth.
2. Every rule replayed offline on these; predicted speed = tokens per round / cost of a round.
3. The best three measured against plain decoding and each other, interleaved.
4. A gate: regret within the budget, valid JSON, a paired task; else the best lossless rule.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ollama_spec.measure import paired, prompts, quality, replay, sample, session, stats, trace
from ollama_spec.measure.client import Client
from ollama_spec.measure.matrix import Configuration, measure, of_config, summarise
from ollama_spec.measure.replay import Answers, Rule
from ollama_spec.profiles import AcceptSettings, Profile, SpecSettings
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord

Note = Callable[[str], None]
DEPTH = 7  # greatest depth traced: batches above 8 fall onto another kernel on CUDA
BUDGET = 0.05  # regret a rule may cost, nats per token (R5)
_FINALISTS = 3
_MARGIN = 0.02  # predicted speeds within this share of the best are worth measuring


@dataclass(frozen=True)
class Effort:
    """How much is asked: `prompts` are traced, `confirmed` of them timed for the finalists."""

    prompts: int
    confirmed: int
    tokens: int
    repeats: int
    p_mins: tuple[float, ...]
    schemas: int
    tasks: int


FULL = Effort(prompts=32, confirmed=12, tokens=128, repeats=5, p_mins=(0.5, 0.8), schemas=100,
              tasks=100)  # fmt: skip
QUICK = Effort(prompts=8, confirmed=4, tokens=32, repeats=3, p_mins=(0.6,), schemas=6, tasks=12)


class Servers:
    """The model with its drafter, once per `p_min`; settings beside it go with each request."""

    def __init__(
        self, runner: Binary, record: ModelRecord, folder: Path, threads: int | None
    ) -> None:
        self.runner, self.record, self.folder, self.threads = runner, record, folder, threads
        self.started = 0

    @contextlib.contextmanager
    def plain(self) -> Iterator[Client]:
        self.started += 1
        how: dict[str, Any] = {"drafting": False, "dense": True, "threads": self.threads}
        with session.serving(self.runner, self.record, **how) as client:
            yield client

    @contextlib.contextmanager
    def drafting(self, p_min: float) -> Iterator[Client]:
        self.started += 1
        spec = SpecSettings(type=self.record.profile.spec.type, p_min=p_min)
        profile = self.record.profile.model_copy(update={"spec": spec})
        record = self.record.model_copy(update={"profile": profile})
        extra = ["--spec-draft-trace", str(self.trace_of(p_min))]
        how: dict[str, Any] = {"n_max": DEPTH, "dense": True, "threads": self.threads}
        with session.serving(self.runner, record, extra=extra, **how) as client:
            yield client

    def trace_of(self, p_min: float) -> Path:
        return self.folder / f"trace-{p_min:g}.ndjson"


def tune(
    runner: Binary, record: ModelRecord, effort: Effort, *, lossy: bool, temperature: float,
    threads: int | None, tasks: Sequence[paired.Task] | None, note: Note,
) -> dict[str, Any]:  # fmt: skip
    """The evidence and, under "chosen", the rule; nothing is written."""
    depths = list(range(1, DEPTH + 1))
    sampling = {"temperature": temperature, "ignore_eos": True}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ollama-spec-tune-"))
        servers = Servers(runner, record, Path(folder), threads)
        plain = stack.enter_context(servers.plain())
        pair = stack.enter_context(servers.drafting(0.0))
        asked = [pair.render(text) for text in prompts.mixture(effort.prompts)]

        note("1/4 tracing lossless decoding")
        traces = {0.0: trace_answers(pair, servers.trace_of(0.0), asked, effort.tokens, sampling)}
        step_ms = trace.draft_step_ms(trace.read(servers.trace_of(0.0)))
        for p_min in effort.p_mins:
            with servers.drafting(p_min) as client:
                traces[p_min] = trace_answers(
                    client, servers.trace_of(p_min), asked, effort.tokens, sampling
                )
        note(f"2/4 timing a round at {len(depths)} depths")
        costs = cost_table(plain, pair, asked, effort, depths, sampling)
        predicted = predict(traces, costs, step_ms, depths, lossy=lossy)
        finalists = choose_finalists(predicted)
        note(f"3/4 measuring {', '.join(rule.label() for rule in finalists)}")
        clients = {0.0: pair}
        for p_min in {rule.p_min for rule in finalists} - {0.0}:
            clients[p_min] = stack.enter_context(servers.drafting(p_min))
        chosen_from = asked[: effort.confirmed]
        rows = confirm(plain, clients, finalists, chosen_from, effort, sampling, note)
        lines = summarise(rows, "plain")

        note("4/4 quality gate")
        best = winner(finalists, rows)
        gate = quality_gate(plain, clients[best.p_min], best, lines, effort, tasks, note)
        if not gate["passed"]:
            best = winner([rule for rule in finalists if rule.lossless], rows)
    return {
        "model": record.name,
        "runner": runner.build,
        "servers_started": servers.started,
        "temperature": temperature,
        "lossy_allowed": lossy,
        "rounds_traced": {f"{p:g}": sum(map(len, answers)) for p, answers in traces.items()},
        "round_ms": {str(depth): round(cost, 3) for depth, cost in costs.items()},
        "draft_step_ms": round(step_ms, 3),
        "rules_replayed": len(predicted),
        "predicted": [_shown(rule, *values) for rule, values in list(predicted.items())[:10]],
        "confirmed": lines,
        "gate": gate,
        "chosen": {**asdict(best), "label": best.label(), "lossless": best.lossless},
    }


def trace_answers(
    client: Client, path: Path, asked: Sequence[str], tokens: int, sampling: dict[str, Any]
) -> Answers:
    """Lossless answers; the trace tells what every rule would have taken, and every guard."""
    for index, prompt in enumerate(asked):
        client.ask(prompt, tokens, seed=index + 1, **sampling, **trace.JUDGED)
    return trace.answers(trace.read(path))


def cost_table(
    plain: Client, pair: Client, asked: Sequence[str], effort: Effort, depths: Sequence[int],
    sampling: dict[str, Any],
) -> dict[int, float]:  # fmt: skip
    """Milliseconds of a round at each depth, draft and verification together; 0: a plain step.

    Depths take turns, and the median over prompts stands for each, as the machine may be busy.
    """
    found: dict[int, list[float]] = {depth: [] for depth in (0, *depths)}
    for index, prompt in enumerate(asked[: max(3, len(asked) // 4)]):
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
    traces: dict[float, Answers], costs: dict[int, float], step_ms: float, depths: Sequence[int],
    *, lossy: bool,
) -> Predicted:  # fmt: skip
    """Predicted tokens per second of every rule within the budget, fastest first; the rule with
    n_max 0 is plain decoding. `traces` by p_min, `costs` by depth (ms)."""
    round_ms = {
        (p_min, n_max): replay.mean_round_ms(answers, n_max, costs, step_ms)
        for p_min, answers in traces.items()
        for n_max in depths
    }
    found: Predicted = {Rule(0): (1000 / costs[0], replay.Outcome(1.0, 0.0, 0.0))}
    for rule in replay.grid(depths, list(traces), lossy=lossy):
        outcome = replay.simulate(traces[rule.p_min], rule)
        if outcome.regret_per_token <= BUDGET:
            speed = 1000 * outcome.tokens_per_round / round_ms[rule.p_min, rule.n_max]
            found[rule] = (speed, outcome)
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def choose_finalists(predicted: Predicted) -> list[Rule]:
    """Three rules: the fastest, always the fastest lossless one, and the fastest with another early
    stop, as that one comes from another trace. Then those about as fast as the fastest, by regret,
    and other depths. Rules that differ in name only are measured once."""
    order = list(predicted)
    top = predicted[order[0]][0]
    near = [rule for rule in order if predicted[rule][0] >= top * (1 - _MARGIN)]
    near.sort(key=lambda rule: predicted[rule][1].regret_per_token)
    strict = [rule for rule in order if rule.lossless]
    depth = [rule for rule in order if rule.n_max != order[0].n_max]
    stop = [rule for rule in order if rule.n_max and rule.p_min != order[0].p_min]
    wanted = [order[0], strict[0], *stop[:1], near[0], *depth, *order]
    chosen: list[Rule] = []
    for rule in wanted:
        known = {(item.n_max, item.p_min, predicted[item][1]) for item in chosen}
        if (rule.n_max, rule.p_min, predicted[rule][1]) not in known:
            chosen.append(rule)
    return chosen[:_FINALISTS]


def confirm(
    plain: Client, clients: dict[float, Client], finalists: Sequence[Rule], asked: Sequence[str],
    effort: Effort, sampling: dict[str, Any], note: Note,
) -> list[sample.Row]:  # fmt: skip
    configurations = [Configuration("plain", plain)]
    configurations += [
        Configuration(rule.label(), clients[rule.p_min], dict(rule.options()))
        for rule in finalists
        if rule.n_max
    ]
    return measure(configurations, asked, effort.tokens, effort.repeats, note=note, **sampling)


def winner(finalists: Sequence[Rule], rows: Sequence[sample.Row]) -> Rule:
    """The fastest measured rule; a lossless one unless a lossy one is shown to be faster, and plain
    decoding unless a rule is shown to be faster than that."""
    speeds = {
        rule: stats.speed(sample.timed(of_config(rows, rule.label()))).value
        for rule in finalists
        if rule.n_max and _faster(rows, rule.label(), "plain")
    }
    if not speeds:
        return Rule(0)
    best = max(speeds, key=lambda rule: speeds[rule])
    lossless = [rule for rule in speeds if rule.lossless]
    if best.lossless or not lossless:
        return best
    safe = max(lossless, key=lambda rule: speeds[rule])
    return best if _faster(rows, best.label(), safe.label()) else safe


def _faster(rows: Sequence[sample.Row], name: str, other: str) -> bool:
    pair = (sample.timed(of_config(rows, name)), sample.timed(of_config(rows, other)))
    return stats.verdict(stats.speed_ratio(*pair)) == "faster"


def quality_gate(
    plain: Client, client: Client, rule: Rule, lines: Sequence[dict[str, Any]], effort: Effort,
    tasks: Sequence[paired.Task] | None, note: Note,
) -> dict[str, Any]:  # fmt: skip
    """Lossless rules pass; a lossy one must keep the budget, break no JSON and answer the paired
    task as well as plain decoding."""
    if rule.lossless:
        return {"passed": True, "why": "lossless"}
    options = dict(rule.options())
    regret = next(ln["regret_nats_per_token"] for ln in lines if ln["config"] == rule.label())
    schemas = quality.check_json(client, effort.schemas, options, note)
    chosen = list(tasks or paired.facts(effort.tasks))
    score = paired.compare(plain, client, chosen, options, note)
    passed = regret <= BUDGET and not schemas.errors and not schemas.invalid and not score.worse
    return {
        "passed": passed,
        "regret_nats_per_token": regret,
        "json": asdict(schemas),
        "task": {**asdict(score), "p_value": round(score.p_value, 4)},
    }


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
    changed = {"n_max": rule.n_max, "p_min": rule.p_min, "accept": accept, "preset": None}
    return profile.model_copy(update={"spec": profile.spec.model_copy(update=changed)})


def _shown(rule: Rule, speed: float, outcome: replay.Outcome) -> dict[str, Any]:
    return {
        "rule": rule.label(),
        "tokens_per_second": round(speed, 2),
        "tokens_per_round": round(outcome.tokens_per_round, 3),
        "regret_nats_per_token": round(outcome.regret_per_token, 5),
    }
