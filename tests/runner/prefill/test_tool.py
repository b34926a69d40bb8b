"""The standalone tool, which is the scorer and the selection of the server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ollama_spec.measure.fixtures.needles import needle_prompt

pytestmark = pytest.mark.real_runner

# A turn of up to 1024 tokens is kept whole: this one is about 1750.
PROMPT = needle_prompt(21, 0.4, 8000)


@pytest.fixture(scope="module")
def prompt_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tool") / "prompt.txt"
    path.write_text(PROMPT.text)
    return path


def tool(runner: Path, model: Path, prompt: Path, *arguments: str) -> dict[str, Any]:
    argv = [str(runner.with_name("llama-specprefill")), "-m", str(model), "-f", str(prompt)]
    argv += ["-t", "1", "--keep", "0.3", "--tail", "64", "--json", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def kept(row: dict[str, Any]) -> set[int]:
    return {index for first, last in row["ranges"] for index in range(first, last)}


def test_flash_attention_gives_the_scores_of_the_plain_way(
    patched_runner: Path, smollm2: Path, prompt_file: Path
) -> None:
    """Ours: queries copied, attention computed beside the graph. Plain: the graph's own matrix.

    Without look-ahead, so that both see the same query. What remains lies in the two attention
    kernels of the long pass, layer after layer; it falls on few tokens and moves no typical one.
    """
    runs = [
        tool(patched_runner, smollm2, prompt_file, "--scores", "--lookahead", "0", *way)
        for way in ([], ["--plain"])
    ]
    flash, plain = runs[0]["scores"], runs[1]["scores"]
    assert runs[0]["n_layers"] == runs[1]["n_layers"] == 30
    assert len(flash) == len(plain) == runs[0]["n_prompt"]
    assert median(a / b for a, b in zip(flash, plain, strict=True)) == pytest.approx(1, abs=0.01)
    assert sum(abs(a - b) for a, b in zip(flash, plain, strict=True)) < 0.05 * sum(plain)
    assert len(kept(runs[0]) & kept(runs[1])) > 0.9 * runs[0]["n_kept"]


def test_report(patched_runner: Path, smollm2: Path, prompt_file: Path) -> None:
    row = tool(patched_runner, smollm2, prompt_file, "--target", str(smollm2), "--time-prefill")
    chosen = kept(row)
    assert len(chosen) == row["n_kept"] < row["n_prompt"]
    assert {0, *range(row["n_prompt"] - 64, row["n_prompt"])} <= chosen
    # keys and values of 30 layers, 3 heads of 64, in 16 bits: 22.5 MiB per 1000 tokens
    assert row["cache_bytes"] == pytest.approx(row["n_prompt"] * 30 * 2 * 3 * 64 * 2, rel=0.05)
    assert row["target"]["kl_original"] >= 0
    assert row["target"]["kl_compact"] >= 0
    assert row["target"]["original_ms"] < row["target"]["dense_ms"]
    before, after = row["prefill_ms"]
    assert row["target"]["original_ms"] < min(before, after)


def test_wrong_use_is_told(patched_runner: Path, tmp_path: Path) -> None:
    runner = patched_runner.with_name("llama-specprefill")
    for argv, status in ((["-m", "x"], 2), (["-m", "/nowhere.gguf", "-f", str(tmp_path)], 1)):
        done = subprocess.run([str(runner), *argv], capture_output=True, text=True, check=False)
        assert done.returncode == status
        assert done.stderr.strip()
