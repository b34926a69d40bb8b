"""Shipped sets, documents made on the fly and files of the user."""

from __future__ import annotations

import gzip
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
    start, end = needle.span
    assert needle.code in needle.prompt[start:end] and needle.prompt[start] == " "
    assert needle.prompt[end - 1] == "."
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
        ({"context": "A report.", "input": ""}, "A report."),  # LongBench's summaries
        ({"input": "The needle is 7.", "outputs": ["7"]}, "The needle is 7."),  # RULER
        (
            {
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                ]
            },
            "hi",
        ),
    ],
)
def test_known_files_are_read(tmp_path: Path, row: dict, prompt: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(row) + "\n\n")
    assert prompts.from_file(path) == [prompt]


def test_compressed_files_and_arrays_are_read(tmp_path: Path) -> None:
    rows = [{"prompt": "one"}, {"prompt": "two"}]
    packed, array = tmp_path / "HumanEval.jsonl.gz", tmp_path / "set.json"
    packed.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
    array.write_text(json.dumps(rows, indent=1))
    for path in (packed, array):
        assert bench.prompt_set(str(path), 5)[0] == ["one", "two"]
        assert prompts.from_file(path, 1) == ["one"]


def test_a_line_without_a_prompt_is_named(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"prompt": "x"}\n{"label": 1}\n')
    with pytest.raises(OllamaSpecError, match=r"set\.jsonl: row 2"):
        prompts.from_file(path)


def test_unknown_set_names_those_there_are() -> None:
    with pytest.raises(OllamaSpecError) as caught:
        prompts.shipped("poems")
    assert "prose" in str(caught.value.hint)
