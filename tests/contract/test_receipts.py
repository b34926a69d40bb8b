"""The receipt, from the timings of a patched and of a stock runner."""

from __future__ import annotations

from typing import Any

import pytest

from ollama_spec.runner.receipts import receipt

BASE: dict[str, Any] = {"prompt_n": 8, "cache_n": 2, "predicted_n": 12, "draft_n": 9}


def test_a_stock_runners_rounds_follow_from_predicted_and_accepted() -> None:
    spec = receipt({**BASE, "draft_n_accepted": 6}, "strict", "b1")
    assert spec["acceptance_length"] == 2.0
    assert spec["lossless"] is True
    assert spec["prefill"] == {"status": "dense", "kept": 10, "total": 10}


def test_our_runner_counts_rounds_and_relaxation() -> None:
    ours = {"draft_n_accepted": 6, "draft_n_rounds": 4, "draft_n_relaxed": 2}
    spec = receipt({**BASE, **ours, "draft_regret_nats": 0.5}, "relaxed", "b1")
    assert (spec["acceptance_length"], spec["relaxed"], spec["regret_nats"]) == (3.0, 2, 0.5)
    assert spec["lossless"] is False


@pytest.mark.parametrize(
    ("status", "kept", "lossless"),
    [
        ("active", 4, False),
        ("reused", 4, False),
        ("kept_all", 10, True),
        ("skipped_vocab", 10, True),
    ],
)
def test_sparse_prefill(status: str, kept: int, lossless: bool) -> None:
    timings = {**BASE, "specprefill": {"status": status, "n_prompt": 10, "n_kept": 4}}
    spec = receipt(timings, "strict", "b1")
    assert spec["prefill"] == {"status": status, "kept": kept, "total": 10}
    assert spec["lossless"] is lossless


def test_an_answer_without_drafts() -> None:
    spec = receipt({"prompt_n": 1, "predicted_n": 3}, "off", "b1")
    assert (spec["drafted"], spec["acceptance_length"], spec["mode"]) == (0, 1.0, "off")
