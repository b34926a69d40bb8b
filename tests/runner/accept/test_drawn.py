"""Drafts drawn from the drafter's own distribution, which the target accepts by a coin (p/q).

Newer llama-servers do this with `--spec-draft-sampling probabilistic`; the relaxed rule then spares
a token its coin, and every token it refuses gets the exact rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.wired import pair

from .conftest import (
    ANYTHING,
    DRAWN,
    PROMPTS,
    Server,
    drafting,
    drafting_mtp,
    needs_drawn_drafts,
    serve,
)

pytestmark = pytest.mark.real_runner

RELAXED: dict[str, Any] = {"speculative.relaxed_top_n": 5, "speculative.relaxed_ratio": 0.25}
WARM: dict[str, Any] = {"temperature": 0.9, "n_predict": 100, "ignore_eos": True}


@pytest.fixture(scope="module")
def drawn(patched_runner: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    needs_drawn_drafts(patched_runner)
    made, trace = pair(), tmp_path_factory.mktemp("drawn") / "trace.ndjson"
    with serve(
        patched_runner, made.target, *drafting_mtp(made.drafter), *DRAWN, trace=trace
    ) as server:
        yield server


def test_off_is_byte_identical_also_with_a_trace(
    stock_runner: Path, patched_runner: Path, drawn: Server
) -> None:
    made = pair()
    args = (*drafting_mtp(made.drafter), *DRAWN)
    texts = []
    for runner in (stock_runner, patched_runner):
        with serve(runner, made.target, *args) as server:
            texts.append([server.complete(p, **WARM)["content"] for p in PROMPTS])
    since = drawn.mark()
    texts.append([drawn.complete(p, **WARM)["content"] for p in PROMPTS])
    assert texts[1] == texts[0]
    assert texts[2] == texts[0]
    assert drawn.verdicts(since) == {"coin", "strict", "bonus"}


def test_off_is_byte_identical_with_a_draft_model(
    stock_runner: Path, patched_runner: Path, smollm2: Path, smollm2_drafter: Path
) -> None:
    needs_drawn_drafts(patched_runner)
    texts = []
    for runner in (stock_runner, patched_runner):
        with serve(runner, smollm2, *drafting(smollm2_drafter), *DRAWN) as server:
            answers = [server.complete(p, **WARM | {"n_predict": 16}) for p in PROMPTS[:5]]
            texts.append([a["content"] for a in answers])
    assert texts[1] == texts[0]
    assert sum(a["timings"]["draft_n_accepted"] for a in answers) > 0


def test_a_token_within_the_rule_needs_no_coin(drawn: Server) -> None:
    since, taken = drawn.mark(), {}
    for name, keys in (("strict", {}), ("relaxed", RELAXED)):
        timings = [drawn.complete(p, **WARM, **keys)["timings"] for p in PROMPTS]
        drafted = sum(t["draft_n"] for t in timings)
        taken[name] = sum(t["draft_n_accepted"] for t in timings) / drafted
    assert taken["relaxed"] > 1.1 * taken["strict"], taken
    assert sum(t["draft_n_relaxed"] for t in timings) > 20
    rounds = [r for r in drawn.rounds(since) if r["relaxed"]]
    positions = [p for r in rounds for p in r["positions"]]
    assert {"match", "relaxed", "coin", "rule", "bonus"} <= {p["verdict"] for p in positions}
    for p in positions:
        if p["verdict"] == "relaxed":
            assert p["token"] != p["sampled"]
            assert p["log_ratio"] >= math.log(0.25) - 1e-4, p
            assert 0 <= p["rank"] < 5, p
    assert sum(p["verdict"] == "relaxed" for p in positions) == sum(
        t["draft_n_relaxed"] for t in timings
    )


def test_what_a_guard_refuses_gets_the_exact_rule(drawn: Server) -> None:
    """The same coins in the same order as with the rule off, so the same text."""
    guarded = {"n_probs": 3}
    for prompt in PROMPTS:
        assert drawn.complete(prompt, **WARM, **ANYTHING)["timings"]["draft_n_relaxed"] > 0
        strict = drawn.complete(prompt, **WARM, **guarded)
        since = drawn.mark()
        loose = drawn.complete(prompt, **WARM, **guarded, **ANYTHING)
        assert loose["tokens"] == strict["tokens"]
        assert loose["timings"]["draft_n_relaxed"] == 0
        assert loose["timings"]["draft_n_accepted"] == strict["timings"]["draft_n_accepted"]
        assert {"logprobs", "coin"} <= drawn.verdicts(since)


def test_a_grammar_holds(drawn: Server) -> None:
    grammar = 'root ::= [a-z]+ (" " [a-z]+)*'
    since = drawn.mark()
    for prompt in PROMPTS[:8]:
        got = drawn.complete(prompt, grammar=grammar, **WARM, **ANYTHING)["content"]
        assert all(c.islower() or c == " " for c in got), got
    assert {"relaxed", "grammar"} <= drawn.verdicts(since)


def test_depth_settings_cut_tokens_and_distributions_alike(drawn: Server) -> None:
    """The server stops with an assertion if it finds more of one than of the other."""
    for mode in ("ema", "cost"):
        keys = RELAXED | {"speculative.adaptive": mode}
        answers = [drawn.complete(prompt, **WARM, **keys) for prompt in PROMPTS[:4]]
        # `cost` may find that no draft pays on this machine, after it has measured some
        assert sum(a["timings"].get("draft_n", 0) for a in answers) > 0
