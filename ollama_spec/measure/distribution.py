"""The next token's distribution as llama-server lists it, and how far two of them are apart."""

from __future__ import annotations

import math
from typing import Any

LISTED = 100  # most likely tokens that are listed one by one


def kl(reference: dict[str, Any], other: dict[str, Any]) -> float:
    """KL(reference || other) of the first token of two replies to requests with `n_probs`, nats.

    From below: tokens outside the reference's list count as one, and a token missing in the
    other's list as its least likely.
    """
    p, q = _listed(reference), _listed(other)
    least = min(q.values())
    pairs = [(value, q.get(token, least)) for token, value in p.items()]
    rest = [max(1e-9, 1 - sum(pair[i] for pair in pairs)) for i in (0, 1)]
    return max(0.0, sum(a * math.log(a / b) for a, b in [*pairs, (rest[0], rest[1])] if a > 0))


def _listed(reply: dict[str, Any]) -> dict[int, float]:
    listed = reply["completion_probabilities"][0]["top_logprobs"]
    # A probability that underflows is listed as minus infinity; keep the logarithm finite.
    return {entry["id"]: max(math.exp(entry["logprob"]), 1e-12) for entry in listed}
