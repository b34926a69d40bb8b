"""Reading the runner's trace (`--spec-draft-trace`): one line per verification round."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Drafted:
    """One drafted token and where it stood in the target's raw logits of its position.

    `regret` is log p(best) - log p(draft), nats. `guard` names what forbids relaxing here whatever
    the rule says ("" if nothing does). `known` is False where the runner did not report it.
    """

    match: bool
    rank: int
    regret: float
    guard: str = ""
    known: bool = True


@dataclass(frozen=True)
class Round:
    task: int
    drafts: tuple[int, ...]
    positions: tuple[dict[str, Any], ...]
    untested: tuple[dict[str, Any], ...]
    relaxed_rule: bool
    replay: bool
    draft_us: int
    verify_us: int

    @property
    def emitted(self) -> list[int]:
        return [int(position["token"]) for position in self.positions]


# Verdicts that are the rule's own; every other verdict names a guard.
_OF_THE_RULE = {
    "match", "relaxed", "bonus", "replay", "strict", "rule", "scope", "budget", "window",
    "untested",
}  # fmt: skip


def read(path: Path, start: int = 0) -> list[Round]:
    """The rounds from byte `start` on; a file that is not there yet holds none."""
    rounds: list[Round] = []
    if not path.exists():
        return rounds
    with path.open(encoding="utf-8") as lines:
        lines.seek(start)
        for line in lines:
            if not line.endswith("\n"):
                continue  # cut off by the end of the process
            event = json.loads(line)
            rounds.append(
                Round(
                    task=event["task"],
                    drafts=tuple(event.get("drafts", event.get("draft", ()))),
                    positions=tuple(event["positions"]),
                    untested=tuple(event.get("untested", ())),
                    relaxed_rule=event["relaxed"],
                    replay=event["replay"],
                    draft_us=event.get("draft_us", 0),
                    verify_us=event.get("verify_us", event.get("t_us", 0)),
                )
            )
    return rounds


# Names every guard in the trace and relaxes nothing: no draft is as long as the window it asks for.
JUDGED: dict[str, float] = {
    "speculative.relaxed_top_n": 1 << 20,
    "speculative.relaxed_ratio": 0,
    "speculative.relaxed_window": 64,
    "speculative.relaxed_budget": 0,
}


def answers(rounds: list[Round]) -> list[list[list[Drafted]]]:
    """The drafted tokens of each round, the rounds of one answer together."""
    tasks: dict[int, list[list[Drafted]]] = {}
    for one in rounds:
        if not one.replay and one.positions:
            tasks.setdefault(one.task, []).append(drafted(one))
    return list(tasks.values())


def draft_step_ms(rounds: list[Round]) -> float:
    """Median cost of drafting one token."""
    steps = [one.draft_us / len(one.drafts) for one in rounds if one.drafts and not one.replay]
    return median(steps) / 1000 if steps else 0.0


def drafted(one: Round) -> list[Drafted]:
    """Every drafted token of a round in order, also those after the first refused one: their
    logits are conditioned on the drafts before them, as they would be had those been taken."""
    return [
        _drafted(position, token)
        for position, token in zip([*one.positions, *one.untested], one.drafts, strict=False)
    ]


def _drafted(position: dict[str, Any], token: int) -> Drafted:
    verdict = str(position.get("verdict", ""))
    rank = position.get("draft_rank", -1)
    # Nothing was sampled where the runner had refused an earlier draft; the target's own first
    # choice would most likely have been.
    match = rank == 0 if verdict == "untested" else position.get("sampled") == token
    return Drafted(
        match=match,
        rank=int(rank),
        regret=-float(position.get("draft_log_ratio", 0.0)),
        guard="" if verdict in _OF_THE_RULE else verdict,
        known=match or rank >= 0,
    )
