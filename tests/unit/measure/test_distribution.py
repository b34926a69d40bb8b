"""How far apart two listed distributions are, and up to where two texts can be compared."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ollama_spec.measure.distribution import kl, worst_kl


def reply(*tokens: dict[int, float]) -> dict[str, Any]:
    """Each token's listed probabilities; the likeliest is the one chosen."""
    return {
        "completion_probabilities": [
            {
                "id": max(listed, key=lambda token: listed[token]),
                "top_logprobs": [{"id": t, "logprob": math.log(p)} for t, p in listed.items()],
            }
            for listed in tokens
        ]
    }


SURE = {1: 0.9, 2: 0.1}
OPEN = {1: 0.6, 2: 0.4}
TURNED = {1: 0.4, 2: 0.6}


def test_the_divergence_of_a_token() -> None:
    value = 0.9 * math.log(0.9 / 0.6) + 0.1 * math.log(0.1 / 0.4)
    assert kl(reply(SURE), reply(OPEN)) == pytest.approx(value)
    assert kl(reply(SURE, OPEN), reply(SURE, SURE), at=1) > 0


def test_a_later_token_of_the_same_text_counts() -> None:
    one, other = reply(OPEN, SURE), reply(OPEN, OPEN)
    assert kl(one, other) == 0
    assert worst_kl(one, other) == pytest.approx(kl(reply(SURE), reply(OPEN)))


def test_the_token_at_which_texts_part_counts_and_none_after_it() -> None:
    parting = kl(reply(OPEN), reply(TURNED))
    one, other = reply(SURE, OPEN, SURE), reply(SURE, TURNED, {7: 1.0})
    assert worst_kl(one, other) == pytest.approx(parting)


def test_a_text_that_ends_early_is_compared_as_far_as_it_goes() -> None:
    assert worst_kl(reply(SURE, OPEN), reply(SURE)) == 0
