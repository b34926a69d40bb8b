"""What any rule would have done in the rounds of a trace (ALGORITHMS R4).

One verification row tells the outcome of every rule: the target's logits at a drafted token are
conditioned on the drafts before it. So each round's accepted length is exact for every depth and
rule; that another rule would have led to other rounds is the approximation. Where the drafter
stops by itself (`p_min`) is the runner's doing, so each value has a trace of its own.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ollama_spec.measure.trace import Drafted

# The runner's budget: mean over this many tokens, and short answers count as so many.
_SPAN, _FLOOR = 256, 32
Answers = Sequence[Sequence[Sequence[Drafted]]]  # rounds of each answer, drafts of each round


@dataclass(frozen=True)
class Rule:
    """`top_n` 0 is strict. `window`: as many next drafts must match. `budget`: nats per token."""

    n_max: int
    top_n: int = 0
    ratio: float = 0.25
    window: int = 0
    budget: float = 0.05
    p_min: float = 0.0

    @property
    def lossless(self) -> bool:
        return self.top_n == 0

    def label(self) -> str:
        if self.n_max == 0:
            return "plain"
        stops = f" p{self.p_min:g}" if self.p_min else ""
        if self.lossless:
            return f"strict n{self.n_max}{stops}"
        window = f" w{self.window}" if self.window else ""
        budget = f" b{self.budget:g}" if self.budget != Rule.budget else ""
        limits = f"top{self.top_n} ratio{self.ratio:g}{window}{budget}"
        return f"relaxed n{self.n_max}{stops} {limits}"

    def options(self) -> dict[str, float | int]:
        """The request's keys that select this rule; `p_min` is set when a server starts."""
        keys: dict[str, float | int] = {
            "speculative.n_max": self.n_max,
            "speculative.relaxed_top_n": self.top_n,
        }
        if not self.lossless:
            keys |= {
                "speculative.relaxed_ratio": self.ratio,
                "speculative.relaxed_window": self.window,
                "speculative.relaxed_budget": self.budget,
            }
        return keys


@dataclass(frozen=True)
class Outcome:
    """Tokens per round (drafts taken plus one), and what the relaxed ones cost."""

    tokens_per_round: float
    regret_per_token: float  # nats
    relaxed_share: float  # of all tokens


def simulate(answers: Answers, rule: Rule) -> Outcome:
    """Apply `rule` to every round of every answer."""
    rounds = tokens = relaxed = 0
    regret = 0.0
    for answer in answers:
        spent: deque[float] = deque(maxlen=_SPAN)  # regret of each token of the answer
        for drafts in answer:
            taken = _round(drafts[: rule.n_max], rule, spent)
            rounds += 1
            tokens += len(taken)
            relaxed += sum(cost is not None for cost in taken)
            regret += sum(cost or 0.0 for cost in taken)
    if not rounds:
        return Outcome(1.0, 0.0, 0.0)
    return Outcome(tokens / rounds, regret / tokens, relaxed / tokens)


def _round(drafts: Sequence[Drafted], rule: Rule, spent: deque[float]) -> list[float | None]:
    """The round's tokens: None for the target's own choice, else the regret. Extends `spent`."""
    taken: list[float | None] = []
    for index, draft in enumerate(drafts):
        if draft.match:
            taken.append(None)
            spent.append(0.0)
            continue
        following = drafts[index + 1 : index + 1 + rule.window]
        settled = len(following) == rule.window and all(item.match for item in following)
        if not (settled and acceptable(draft, rule) and _affordable(draft, rule, spent)):
            break
        taken.append(draft.regret)
        spent.append(draft.regret)
    spent.append(0.0)
    return [*taken, None]  # the target's own token ends every round


def _affordable(draft: Drafted, rule: Rule, spent: deque[float]) -> bool:
    if rule.budget <= 0:
        return True
    tokens = min(max(len(spent) + 1, _FLOOR), _SPAN)
    return sum(spent) + draft.regret <= rule.budget * tokens


def acceptable(draft: Drafted, rule: Rule) -> bool:
    """The rule of R1: rank and ratio on raw logits, and no guard against it."""
    if rule.lossless or draft.guard or not draft.known or draft.rank >= rule.top_n:
        return False
    return rule.ratio <= 0 or draft.regret <= -math.log(rule.ratio)


def mean_round_ms(
    answers: Answers, n_max: int, costs: dict[int, float], draft_step_ms: float
) -> float:
    """Mean cost of the trace's rounds at depth `n_max`: `costs[k]` ms for a round of k drafts, and
    one more draft step where the drafter stopped early, which it knows only afterwards."""
    lengths = [min(len(drafts), n_max) for answer in answers for drafts in answer]
    early = sum(length < n_max for length in lengths)
    total = sum(costs[length] for length in lengths) + early * draft_step_ms
    return total / len(lengths) if lengths else costs[0]


def grid(depths: Sequence[int], p_mins: Sequence[float], *, lossy: bool) -> Iterator[Rule]:
    """Every rule `tune` considers."""
    settings = ((2, 3, 5, 10), (0.5, 0.25, 0.1), (0, 1, 2), (0.025, 0.05))
    for n_max, p_min in itertools.product(depths, p_mins):
        yield Rule(n_max, p_min=p_min)
        if not lossy:
            continue
        for top_n, ratio, window, budget in itertools.product(*settings):
            if window < n_max:
                yield Rule(n_max, top_n, ratio, window, budget, p_min)
