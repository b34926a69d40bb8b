"""Reading the runner's trace (`--spec-draft-trace`): one line per verification round."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
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
_OF_THE_RULE = {"match", "relaxed", "bonus", "replay", "strict", "rule", "scope", "budget"}


def read(path: Path) -> list[Round]:
    rounds = []
    with path.open(encoding="utf-8") as lines:
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


def drafted(one: Round) -> list[Drafted]:
    """Every drafted token of a round in order, also those after the first refused one: their
    logits are conditioned on the drafts before them, as they would be had those been taken."""
    return [
        _drafted(position, token)
        for position, token in zip([*one.positions, *one.untested], one.drafts, strict=False)
    ]


def _drafted(position: dict[str, Any], token: int) -> Drafted:
    match = position.get("sampled") == token
    verdict = str(position.get("verdict", ""))
    rank = position.get("draft_rank", -1)
    regret = float(position.get("draft_regret", -position.get("draft_log_ratio", 0.0)))
    if rank < 0 and position.get("token") == token:  # an older trace: only what was emitted
        rank, regret = position.get("rank", -1), -float(position.get("log_ratio", 0.0))
    return Drafted(
        match=match,
        rank=int(rank),
        regret=regret,
        guard="" if verdict in _OF_THE_RULE or not verdict else verdict,
        known=match or rank >= 0,
    )
