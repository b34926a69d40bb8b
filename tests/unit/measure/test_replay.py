"""Replay of rules on rounds written by hand; expected figures are worked out beside each."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ollama_spec.measure import replay, trace, tune
from ollama_spec.measure.replay import Outcome, Rule
from ollama_spec.measure.trace import Drafted

HIT = Drafted(match=True, rank=0, regret=0.0)
NEAR = Drafted(match=False, rank=1, regret=math.log(2))  # half as likely as the best
FAR = Drafted(match=False, rank=7, regret=math.log(50))
FREE = 1e9  # a budget that never binds


def test_strict_stops_at_the_first_mismatch() -> None:
    found = replay.simulate([[[HIT, HIT, NEAR, HIT], [FAR]]], Rule(4))
    assert found == Outcome((3 + 1) / 2, 0.0, 0.0)  # 2 + bonus, 0 + bonus


def test_depth_cuts_the_draft() -> None:
    assert replay.simulate([[[HIT, HIT, HIT]]], Rule(2)).tokens_per_round == 3


def test_relaxed_goes_on_after_a_near_miss() -> None:
    found = replay.simulate([[[HIT, NEAR, HIT, FAR]]], Rule(4, 5, 0.25, budget=FREE))
    assert found.tokens_per_round == 4
    assert found.relaxed_share == 1 / 4
    assert found.regret_per_token == pytest.approx(math.log(2) / 4)


@pytest.mark.parametrize(
    ("rule", "taken"),
    [
        (Rule(1, 5, 0.25, budget=FREE), True),
        (Rule(1, 5, 0.6, budget=FREE), False),  # ratio 0.5 is below 0.6
        (Rule(1, 1, 0.25, budget=FREE), False),  # rank 1 is not below 1
        (Rule(1, 5, 0.25, budget=0.001), False),
        (Rule(1, 5, 0.25, window=1, budget=FREE), False),  # no next draft to match
    ],
)
def test_what_a_rule_asks_of_a_near_miss(rule: Rule, taken: bool) -> None:
    assert replay.simulate([[[NEAR]]], rule).tokens_per_round == 1 + taken


def test_window_needs_the_next_drafts_to_match() -> None:
    rule = Rule(3, 5, 0.25, window=1, budget=FREE)
    assert replay.simulate([[[NEAR, HIT, HIT]]], rule).tokens_per_round == 4
    assert replay.simulate([[[NEAR, NEAR, HIT]]], rule).tokens_per_round == 1


def test_guards_and_unknown_standing_refuse() -> None:
    rule = Rule(1, 5, 0.25, budget=FREE)
    for draft in (
        Drafted(False, 1, 0.1, guard="digit"),
        Drafted(False, -1, 0.0, known=False),
    ):
        assert not replay.acceptable(draft, rule)


def test_trace_is_read_with_what_was_refused_and_untested(tmp_path: Path) -> None:
    def position(token: int, sampled: int, verdict: str, rank: int, regret: float) -> dict:
        return {
            "token": token, "sampled": sampled, "verdict": verdict, "rank": 0, "log_ratio": 0,
            "draft_rank": rank, "draft_log_ratio": -regret, "draft_regret": regret,
        }  # fmt: skip

    event = {
        "task": 1, "relaxed": False, "replay": False, "drafts": [5, 6, 7],
        "positions": [position(5, 5, "match", 0, 0.0), position(9, 9, "strict", 2, 0.7)],
        "untested": [position(7, -1, "untested", 0, 0.0)],
    }  # fmt: skip
    path = tmp_path / "trace"
    path.write_text(json.dumps(event) + "\n" + '{"cut')
    (one,) = trace.read(path)
    assert trace.answers([one]) == [[trace.drafted(one)]]
    first, second, third = trace.drafted(one)
    assert first.match and not second.match
    assert (second.rank, second.regret) == (2, 0.7)
    assert third.known and third.match and not third.guard
    assert one.emitted == [5, 9]


def test_a_guard_named_in_the_trace_refuses() -> None:
    one = trace.Round(1, (5,), ({"sampled": 9, "token": 9, "verdict": "digit", "draft_rank": 1,
                                 "draft_log_ratio": -0.5},), (), True, False, 900, 0)  # fmt: skip
    (draft,) = trace.drafted(one)
    assert (draft.guard, draft.rank, draft.regret) == ("digit", 1, 0.5)
    assert trace.draft_step_ms([one]) == 0.9


def test_budget_starts_anew_with_each_answer_and_binds_within_one() -> None:
    # 32 tokens at 0.05 nats allow 1.6 nats: two near misses of 0.69, not three.
    rule = Rule(1, 5, 0.25)
    one = replay.simulate([[[NEAR]] * 3], rule)
    assert one.tokens_per_round == (2 + 2 + 1) / 3
    assert replay.simulate([[[NEAR]] * 2] * 5, rule).tokens_per_round == 2
    tight = Rule(1, 5, 0.25, budget=0.025)  # 0.8 nats: one
    assert replay.simulate([[[NEAR]] * 3], tight).tokens_per_round == (2 + 1 + 1) / 3


def test_rounds_cut_short_by_the_drafter_cost_what_they_drafted() -> None:
    costs = {0: 1.0, 1: 3.0, 2: 5.0}
    rounds = [[[HIT, HIT, HIT], [HIT], []]]
    # 2 of 3 drafts; 1 draft and a step in vain; none and a step in vain.
    assert replay.mean_round_ms(rounds, 2, costs, 0.5) == (5.0 + 3.5 + 1.5) / 3


def test_plain_wins_when_rounds_cost_more_than_they_bring() -> None:
    traces = {0.0: [[[HIT, HIT]] * 9]}
    predicted = tune.predict(traces, {0: 1.0, 1: 3.0, 2: 4.0}, 0.1, [1, 2], lossy=False)
    assert next(iter(predicted)) == Rule(0)
    cheap = tune.predict(traces, {0: 1.0, 1: 1.1, 2: 1.2}, 0.1, [1, 2], lossy=False)
    assert next(iter(cheap)) == Rule(2)


def test_an_early_stop_wins_where_deep_drafts_fail() -> None:
    costs = {0: 1.0, 1: 1.5, 2: 2.0}
    traces = {0.0: [[[FAR, FAR], [HIT, HIT]] * 9], 0.6: [[[], [HIT, HIT]] * 9]}
    best = next(iter(tune.predict(traces, costs, 0.1, [1, 2], lossy=False)))
    assert best == Rule(2, p_min=0.6)


def test_lossy_rules_only_when_allowed_and_within_budget() -> None:
    traces = {0.0: [[[NEAR, HIT]] + [[HIT, HIT]] * 40]}
    costs = {0: 1.0, 1: 1.0, 2: 1.0}
    assert all(rule.lossless for rule in tune.predict(traces, costs, 0.1, [1, 2], lossy=False))
    lossy = tune.predict(traces, costs, 0.1, [1, 2], lossy=True)
    assert any(not rule.lossless for rule in lossy)
    assert all(outcome.regret_per_token <= tune.BUDGET for _, outcome in lossy.values())


def test_finalists_differ_and_hold_the_best_lossless_rule() -> None:
    traces = {0.0: [[[NEAR, HIT, HIT], [HIT, FAR, HIT]] * 40]}
    costs = {n: 1.0 + n / 10 for n in range(4)}
    predicted = tune.predict(traces, costs, 0.05, [1, 2, 3], lossy=True)
    finalists = tune.choose_finalists(predicted)
    assert len(finalists) == 3 == len(set(finalists))
    assert next(rule for rule in predicted if rule.lossless) in finalists


def test_finalists_hold_another_early_stop() -> None:
    """Each comes from a trace of its own, so that predictions compare badly between them."""
    rounds = [[NEAR, HIT, HIT], [HIT, FAR, HIT]] * 40
    traces = {0.0: [rounds], 0.6: [[drafts[:2] for drafts in rounds]]}
    costs = {n: 1.0 + n / 10 for n in range(4)}
    predicted = tune.predict(traces, costs, 0.05, [1, 2, 3], lossy=True)
    assert {rule.p_min for rule in tune.choose_finalists(predicted)} == {0.0, 0.6}


def measured(name: str, seconds: float) -> list[dict]:
    return [
        {"config": name, "repeat": 0, "prompt": i, "tokens": 11, "decode_ms": 1000 * seconds + i}
        for i in range(12)
    ]


def test_the_winner_is_lossless_unless_lossy_is_shown_to_be_faster() -> None:
    safe, lossy = Rule(2), Rule(2, 5)
    rows = measured("plain", 2) + measured(safe.label(), 1)
    assert tune.winner([safe, lossy], rows + measured(lossy.label(), 0.9)) == lossy
    assert tune.winner([safe, lossy], rows + measured(lossy.label(), 1)) == safe
    slow = measured("plain", 1) + measured(safe.label(), 2) + measured(lossy.label(), 3)
    assert tune.winner([safe, lossy], slow) == Rule(0)


def test_profile_keeps_all_but_drafting() -> None:
    from ollama_spec.profiles import Profile, RunnerSettings

    before = Profile(runner=RunnerSettings(args=["-t", "1"]))
    after = tune.profile_with(before, Rule(3, 5, 0.25, 0, 0.05))
    assert after.runner == before.runner
    assert (after.spec.n_max, after.spec.accept.mode, after.lossless) == (3, "relaxed", False)
    assert tune.profile_with(after, Rule(2)).lossless
    assert tune.profile_with(before, Rule(2, p_min=0.5)).spec.p_min == 0.5
