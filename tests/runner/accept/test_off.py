"""With our features off the patched runner says what the stock one says, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.wired import pair

from .conftest import PROMPTS, Server, drafting, drafting_mtp, serve

pytestmark = pytest.mark.real_runner


SMOL = [  # SmolLM2 writes English; the wired pair only looks as if it did
    "Once upon a time", "The best way to cook", "def fibonacci(n):", "Dear Sir or Madam,",
    "List of fruits:\n-", "The weather", "My favourite colour is", "In 1492,", "To make tea,",
    "SELECT name FROM", "The cat sat", "Water boils at", "A good night", "import numpy",
    "The capital of France", "Roses are red,", "2 + 2 =", "He opened the door", "# Shopping\n",
    "Evolution is",
]  # fmt: skip


def _texts(server: Server, prompts: list[str], n_predict: int) -> list[str]:
    return [
        server.complete(prompt, temperature=temperature, seed=11, n_predict=n_predict)["content"]
        for prompt in prompts
        for temperature in (0, 0.8)
    ]


@pytest.mark.timeout(600)
def test_off_is_byte_identical_with_a_draft_model(
    stock_runner: Path, patched_runner: Path, smollm2: Path, smollm2_drafter: Path
) -> None:
    args = drafting(smollm2_drafter)
    with serve(stock_runner, smollm2, *args) as stock:
        expected = _texts(stock, SMOL, 16)
    with serve(patched_runner, smollm2, *args) as patched:
        assert _texts(patched, SMOL, 16) == expected
        timings = patched.complete(SMOL[0])["timings"]
    assert timings["draft_n"] > 0
    assert timings["draft_n_relaxed"] == 0


def test_off_is_byte_identical_with_an_mtp_drafter(stock_runner: Path, server: Server) -> None:
    made = pair()
    with serve(stock_runner, made.target, *drafting_mtp(made.drafter)) as stock:
        expected = _texts(stock, PROMPTS, 64)
    assert _texts(server, PROMPTS, 64) == expected


def test_strict_and_no_drafting_give_the_same_greedy_text(server: Server) -> None:
    for prompt in PROMPTS[:6]:
        plain = server.complete(prompt, **{"speculative.n_max": 0})
        assert "draft_n" not in plain["timings"]
        assert plain["timings"]["draft_n_skipped"] > 0
        assert server.complete(prompt)["content"] == plain["content"]
