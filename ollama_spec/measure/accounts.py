"""Independent accounts of one answer held against each other: text, counters and trace."""

from __future__ import annotations

from typing import Any

from ollama_spec.measure.check import Bench, Check
from ollama_spec.measure.client import Answer
from ollama_spec.measure.trace import Round

TAKEN = {"match", "relaxed", "bonus", "replay"}
_FIRST = 32  # characters the first token may have; it comes from the prompt, before any round


def relaxed_of(one: Round) -> list[dict[str, Any]]:
    return [p for p in one.positions if p["verdict"] == "relaxed"]


def difference(plain: Answer, drafted: Answer) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(plain.text, drafted.text, strict=False)) if a != b),
        min(len(plain.text), len(drafted.text)),
    )
    return f"texts part at {at}: {plain.text[at : at + 40]!r} and {drafted.text[at : at + 40]!r}"


def check_emitted(check: Check, rounds: list[Round], where: str) -> None:
    """A draft that is taken is emitted; where one is refused, the sample is."""
    for one in rounds:
        for p, draft in zip(one.positions, one.drafts, strict=False):
            expected = draft if p["verdict"] in TAKEN else p["sampled"]
            check.expect(
                p["token"] == expected,
                f"{where}: {p['verdict']} emitted {p['token']}, expected {expected}",
            )


def check_text(check: Check, bench: Bench, answer: Answer, rounds: list[Round], where: str) -> None:
    """The text sent to the client is made of the tokens the trace calls emitted. The last round may
    reach beyond the answer's limit."""
    tokens = [token for one in rounds if not one.replay for token in one.emitted]
    told = bench.pair.detokenize(tokens) if tokens else ""
    text = answer.text
    holds = any(told.startswith(text[at:]) for at in range(min(_FIRST, len(text) // 2) + 1))
    check.expect(holds, f"{where}: the text is not what the trace emitted")


def check_counters(check: Check, answer: Answer, rounds: list[Round], where: str) -> None:
    """The figures of an answer are the sums of its trace."""
    relaxed = [p for one in rounds for p in relaxed_of(one)]
    regret = -sum(p["log_ratio"] for p in relaxed)
    timings = answer.timings
    counted = timings.get("draft_n_relaxed", 0)
    check.expect(
        counted == len(relaxed), f"{where}: {counted} relaxed counted, {len(relaxed)} traced"
    )
    told = timings.get("draft_regret_nats", 0.0)
    check.expect(
        abs(told - regret) <= 1e-3 * (1 + regret),
        f"{where}: regret {told:.3f} reported, {regret:.3f} traced",
    )
    taken = sum(
        p["verdict"] in TAKEN - {"bonus"} for one in rounds if not one.replay for p in one.positions
    )
    accepted = timings.get("draft_n_accepted", 0)
    # The last round may be cut by the answer's limit after the trace was written.
    check.expect(
        abs(accepted - taken) <= 8, f"{where}: {accepted} accepted counted, {taken} traced"
    )
    per_position = sum(timings.get("draft_accepted_per_pos") or [0])
    check.expect(
        abs(per_position - accepted) <= 8,
        f"{where}: {per_position} accepted by position, {accepted} in all",
    )
    check.expect(accepted <= timings.get("draft_n", 0), f"{where}: more accepted than drafted")
