"""Medians and bootstrap intervals, and when to say that there is no difference.

Resampling few measurements never leaves their range, so plain percentile intervals of them are far
too narrow (of two, they hold the truth half of the time). They are widened as Student's t is wider
than the normal distribution; Hesterberg, "What Teachers Should Know About the Bootstrap" (2015), 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 2000
_LEVEL = 95.0  # per cent of resamples an interval holds
_NORMAL = 1.960  # its quantile, and Student's for 1, 2, ... degrees of freedom
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    def rounded(self, digits: int = 3) -> dict[str, float]:
        return {key: round(getattr(self, key), digits) for key in ("value", "low", "high")}


@dataclass(frozen=True)
class Timed:
    """One answer: tokens after the first, and the seconds they took."""

    tokens: int
    seconds: float


def speed(units: Sequence[Timed], seed: int = 0) -> Interval:
    """Tokens per second over all units together, resampled by unit."""
    tokens, seconds = _columns(units)
    picks = _picks(len(units), seed)
    rates = tokens[picks].sum(axis=1) / seconds[picks].sum(axis=1)
    return _interval(float(tokens.sum() / seconds.sum()), rates, len(units))


def speed_ratio(ours: Sequence[Timed], theirs: Sequence[Timed], seed: int = 0) -> Interval:
    """Speed of `ours` over that of `theirs`. Units are pairs (same prompt and repeat, taken one
    right after the other) and are resampled as pairs, so that slow phases of the machine cancel.
    """
    if len(ours) != len(theirs):
        raise ValueError("paired measurements must be equally many")
    own_tokens, own_seconds = _columns(ours)
    tokens, seconds = _columns(theirs)
    picks = _picks(len(ours), seed)

    def ratio(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        mine = own_tokens[rows].sum(axis=1) / own_seconds[rows].sum(axis=1)
        result: NDArray[np.float64] = mine / (tokens[rows].sum(axis=1) / seconds[rows].sum(axis=1))
        return result

    whole = np.arange(len(ours))[None, :]
    return _interval(float(ratio(whole)[0]), ratio(picks), len(ours))


def mean(values: Sequence[float], seed: int = 0) -> Interval:
    data = np.asarray(values, dtype=float)
    return _interval(float(data.mean()), data[_picks(len(data), seed)].mean(axis=1), len(data))


def median(values: Sequence[float], seed: int = 0) -> Interval:
    data = np.asarray(values, dtype=float)
    resampled = np.median(data[_picks(len(data), seed)], axis=1)
    return _interval(float(np.median(data)), resampled, len(data))


def verdict(ratio: Interval) -> str:
    """In words: faster, slower, or no difference that these measurements can show."""
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "no difference"


def _columns(units: Sequence[Timed]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return (
        np.array([unit.tokens for unit in units], dtype=float),
        np.array([unit.seconds for unit in units], dtype=float),
    )


def _picks(size: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, size, (_RESAMPLES, size))


def _interval(value: float, resampled: NDArray[np.float64], size: int) -> Interval:
    """Of something that cannot be negative. One measurement shows no spread: no verdict then."""
    if size < 2:
        return Interval(value, 0.0, 2 * value)
    rest = (100 - _LEVEL) / 2
    low, high = np.percentile(resampled, [rest, 100 - rest])
    wider = _student(size - 1) / _NORMAL * (size / (size - 1)) ** 0.5
    return Interval(
        value, max(0.0, value - wider * (value - float(low))), value + wider * (float(high) - value)
    )


def _student(freedom: int) -> float:
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return _NORMAL + (_NORMAL**3 + _NORMAL) / (4 * freedom)  # within 1.2 %
