"""The paired task: which answers count, and when a rule is worse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import paired
from ollama_spec.measure.paired import Score, Task


def test_answers_are_words_or_last_numbers() -> None:
    assert Task("?", "Rome").solved_by("She lives in rome.")
    assert not Task("?", "Rome").solved_by("She lives in Oslo.")
    assert Task("?", "1,200").solved_by("3 times 400 is 1200.")
    assert not Task("?", "18").solved_by("18 eggs cost 36.")
    assert not Task("?", "18").solved_by("No idea.")


def test_mcnemar_against_figures_worked_out_by_hand() -> None:
    # 8 discordant, all lost: 2 / 2**8; 6 to 2: 2 * (1 + 8 + 28) / 2**8.
    assert Score(50, 40, 32, gained=0, lost=8).p_value == 2 / 256
    assert Score(50, 40, 36, gained=2, lost=6).p_value == 74 / 256
    assert Score(50, 40, 40, gained=0, lost=0).p_value == 1
    assert Score(50, 40, 32, gained=0, lost=8).worse
    assert not Score(50, 40, 36, gained=2, lost=6).worse
    assert not Score(50, 32, 40, gained=8, lost=0).worse


def test_facts_hold_their_answers() -> None:
    made = paired.facts(50)
    assert made == paired.facts(50) and len({task.question for task in made}) == 50
    assert all(task.answer in task.question for task in made)


def test_gsm8k_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.jsonl"
    rows = [{"question": "2+2?", "answer": "2+2=4\n#### 4"}, {"question": "x", "answer": "#### 7"}]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert paired.from_file(path, 1) == [Task("2+2?", "4")]
    path.write_text("{}")
    with pytest.raises(OllamaSpecError, match=r"gsm8k\.jsonl:1"):
        paired.from_file(path, 1)
