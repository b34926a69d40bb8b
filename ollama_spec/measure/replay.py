"""What any rule would have done in the rounds of a trace (ALGORITHMS R4).

One verification row tells the outcome of every rule: the target's logits at a drafted token are
conditioned on the drafts before it. So each round's accepted length is exact for every depth and
rule; that another rule would have led to other rounds is the approximation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ollama_spec.measure.trace import Drafted


@dataclass(frozen=True)
class Rule:
    """`top_n` 0 is strict. `window`: as many next drafts must match. `budget`: nats per token."""

    n_max: int
    top_n: int = 0
    ratio: float = 0.25
    window: int = 0
    budget: float = 0.05

    @property
    def lossless(self) -> bool:
        return self.top_n == 0

    def label(self) -> str:
        if self.n_max == 0:
            return "plain"
        if self.lossless:
            return f"strict n{self.n_max}"
        window = f" w{self.window}" if self.window else ""
        return f"relaxed n{self.n_max} top{self.top_n} ratio{self.ratio:g}{window}"

    def options(self) -> dict[str, float | int]:
        """The request's keys that select this rule."""
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
    """tokens per round (drafts taken plus one), and what the relaxed ones cost."""

    tokens_per_round: float
    regret_per_token: float  # nats
    relaxed_share: float  # of all tokens


def simulate(rounds: Sequence[Sequence[Drafted]], rule: Rule) -> Outcome:
    """Apply `rule` to every round."""
    tokens = relaxed = 0
    regret = 0.0
    for drafts in rounds:
        taken, count, cost = _round(drafts[: rule.n_max], rule, regret, tokens)
        tokens += taken + 1
        relaxed += count
        regret += cost
    if not rounds:
        return Outcome(1.0, 0.0, 0.0)
    return Outcome(tokens / len(rounds), regret / tokens, relaxed / tokens)


def _round(
    drafts: Sequence[Drafted], rule: Rule, spent: float, tokens: int
) -> tuple[int, int, float]:
    """Drafts taken, how many of them by relaxing, and their regret."""
    count, cost = 0, 0.0
    for index, draft in enumerate(drafts):
        if draft.match:
            continue
        following = drafts[index + 1 : index + 1 + rule.window]
        settled = len(following) == rule.window and all(item.match for item in following)
        allowed = (spent + cost + draft.regret) <= rule.budget * (tokens + index + 32)
        if not (settled and allowed and acceptable(draft, rule)):
            return index, count, cost
        count += 1
        cost += draft.regret
    return len(drafts), count, cost


def acceptable(draft: Drafted, rule: Rule) -> bool:
    """The rule of R1: rank and ratio on raw logits, and no guard against it."""
    if rule.lossless or draft.guard or not draft.known or draft.rank >= rule.top_n:
        return False
    return rule.ratio <= 0 or draft.regret <= -math.log(rule.ratio)


def grid(depths: Sequence[int], *, lossy: bool) -> Iterator[Rule]:
    """Every rule `tune` considers."""
    for n_max in depths:
        yield Rule(n_max)
        if not lossy:
            continue
        for top_n, ratio, window in itertools.product((2, 3, 5, 10), (0.5, 0.25, 0.1), (0, 1, 2)):
            if window < n_max:
                yield Rule(n_max, top_n, ratio, window)
