"""The next token's distribution as llama-server lists it, and how far two of them are apart."""

from __future__ import annotations

import itertools
import math
from typing import Any

LISTED = 100  # most likely tokens that are listed one by one


def kl(reference: dict[str, Any], other: dict[str, Any], at: int = 0) -> float:
    """KL(reference || other) of token `at` of two replies to requests with `n_probs`, nats.

    From below: tokens outside the reference's list count as one, and a token missing in the
    other's list as its least likely.
    """
    p, q = _listed(reference, at), _listed(other, at)
    least = min(q.values())
    pairs = [(value, q.get(token, least)) for token, value in p.items()]
    rest = [max(1e-9, 1 - sum(pair[i] for pair in pairs)) for i in (0, 1)]
    return max(0.0, sum(a * math.log(a / b) for a, b in [*pairs, (rest[0], rest[1])] if a > 0))


def worst_kl(reference: dict[str, Any], other: dict[str, Any]) -> float:
    """Largest KL of any token that both replies chose after the same text, nats.

    That is every token up to and including the first at which they part: past it the two continue
    different texts, and their distributions say nothing about each other.
    """
    chosen = [[t["id"] for t in r["completion_probabilities"]] for r in (reference, other)]
    shared = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*chosen, strict=False))
    parted = min(len(list(shared)), *(len(ids) - 1 for ids in chosen))
    return max(kl(reference, other, at) for at in range(parted + 1))


def _listed(reply: dict[str, Any], at: int) -> dict[int, float]:
    listed = reply["completion_probabilities"][at]["top_logprobs"]
    # A probability that underflows is listed as minus infinity; keep the logarithm finite.
    return {entry["id"]: max(math.exp(entry["logprob"]), 1e-12) for entry in listed}
