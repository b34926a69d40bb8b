"""Shipped sets, documents made on the fly and files of the user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import bench, prompts


def test_sets_are_of_one_length_and_distinct() -> None:
    everything = prompts.mixture(1000)
    assert len(everything) == len(set(everything)) == 32
    assert {len(items) for items in prompts.SETS.values()} == {8}


@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
def test_a_needle_is_in_its_document_once_and_where_asked(depth: float) -> None:
    needle = prompts.needle(8000, depth, 3)
    assert needle.prompt.count(needle.code) == 1
    at = needle.prompt.index(needle.code) / len(needle.prompt)
    assert abs(at - depth) < 0.08
    assert needle == prompts.needle(8000, depth, 3)


def test_long_documents_have_the_length_asked_for() -> None:
    (text,), context = bench.prompt_set("long:2000", 1)
    assert 8000 <= len(text) <= 8200
    assert context >= 2000


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"question": "2+2?", "answer": "4"}, "2+2?"),  # GSM8K
        ({"task_id": "x", "prompt": "def f():"}, "def f():"),  # HumanEval
        ({"turns": ["first", "second"]}, "first"),  # SPEED-Bench, MT-Bench
        ({"messages": [{"role": "user", "content": "hello"}]}, "hello"),
        ({"context": "A text.", "input": "Why?"}, "A text.\n\nWhy?"),  # LongBench
        ({"input": "The needle is 7.", "outputs": ["7"]}, "The needle is 7."),  # RULER
    ],
)
def test_known_files_are_read(tmp_path: Path, row: dict, prompt: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(row) + "\n\n")
    assert prompts.from_file(path) == [prompt]


def test_a_line_without_a_prompt_is_named(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"prompt": "x"}\n{"label": 1}\n')
    with pytest.raises(OllamaSpecError, match=r"set\.jsonl:2"):
        prompts.from_file(path)


def test_unknown_set_names_those_there_are() -> None:
    with pytest.raises(OllamaSpecError) as caught:
        prompts.shipped("poems")
    assert "prose" in str(caught.value.hint)
