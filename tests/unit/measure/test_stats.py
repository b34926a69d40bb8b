"""Intervals and verdicts."""

from __future__ import annotations

import random

import pytest

from ollama_spec.measure import stats
from ollama_spec.measure.stats import Timed


def units(seconds: float, spread: float, seed: int, count: int = 40) -> list[Timed]:
    rng = random.Random(seed)
    return [Timed(10, seconds * (1 + spread * (rng.random() - 0.5))) for _ in range(count)]


def test_speed_is_all_tokens_over_all_seconds() -> None:
    found = stats.speed([Timed(10, 1.0), Timed(30, 1.0)])
    assert found.value == 20
    assert found.low <= 20 <= found.high


@pytest.mark.parametrize("count", [2, 3, 6, 30])
def test_interval_holds_the_truth_about_as_often_as_it_says(count: int) -> None:
    rng = random.Random(1)
    hits = 0
    for seed in range(200):
        found = stats.mean([rng.gauss(5, 0.1) for _ in range(count)], seed)
        hits += found.low <= 5 <= found.high
    assert 0.91 <= hits / 200 <= 0.99


def test_one_measurement_gives_no_verdict() -> None:
    assert stats.verdict(stats.speed_ratio([Timed(10, 1)], [Timed(10, 3)])) == "no difference"


def test_a_real_difference_is_called_faster() -> None:
    ratio = stats.speed_ratio(units(0.8, 0.2, 1), units(1.0, 0.2, 2))
    assert stats.verdict(ratio) == "faster"
    assert ratio.value == pytest.approx(1.25, abs=0.06)


def test_noise_alone_is_no_difference() -> None:
    ratio = stats.speed_ratio(units(1, 1, 3, 8), units(1, 1, 4, 8))
    assert stats.verdict(ratio) == "no difference"


def test_pairs_cancel_what_slowed_both() -> None:
    slow = [1, 1, 5, 1, 9, 1, 3, 1]
    ours = [Timed(10, 0.9 * factor) for factor in slow]
    theirs = [Timed(10, 1.0 * factor) for factor in slow]
    ratio = stats.speed_ratio(ours, theirs)
    assert ratio.high - ratio.low < 1e-9
    assert stats.verdict(ratio) == "faster"


def test_unequal_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="paired"):
        stats.speed_ratio([Timed(1, 1)], [])
