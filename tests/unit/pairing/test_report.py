"""`pair check`: fit, tag and memory in one report; cache sizes as llama.cpp logs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures import gguf_make
from fixtures.gguf_make import VOCABULARY

from ollama_spec.cli import run
from ollama_spec.gguf import read_header
from ollama_spec.modelfile import checks, memory


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    target = gguf_make.write(tmp_path / "t.gguf", attention__head_count=2)
    drafter = gguf_make.write(tmp_path / "d.gguf", attention__head_count=2)
    return str(target), str(drafter)


def test_a_pair_that_fits(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pair", "check", *pair, "--json", "--context", "64"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fits"] and report["spec_type"] == "draft-simple"
    # one layer, 2 heads of 4 for key and for value, 2 bytes each; at least 256 cells
    assert report["memory"]["cache"] == report["memory"]["drafter_cache"] == 256 * 2 * 8 * 2
    assert report["memory"]["weights"] == Path(pair[0]).stat().st_size
    assert report["memory"]["free_ram"] > 0
    assert run(["pair", "check", *pair]) == 0
    assert "d.gguf fits t.gguf: draft-simple" in capsys.readouterr().out


def test_every_problem_is_listed_and_the_exit_code_is_6(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = gguf_make.gemma4_target(tmp_path / "t.gguf", context_length=10**9)
    drafter = gguf_make.gemma4_assistant(tmp_path / "a.gguf", embedding_length_out=16)
    argv = ["pair", "check", str(target), str(drafter), "--tag", "b9500", "--context", str(10**12)]
    assert run([*argv, "--json"]) == 6
    report = json.loads(capsys.readouterr().out)
    assert not report["fits"] and report["needs_tag"] == "b9549"
    assert [problem.split(":")[0].split(" at ")[0] for problem in report["problems"]][:2] == [
        "a.gguf does not fit t.gguf",
        "llama.cpp b9500 cannot run this pair; needs >= b9549",
    ]
    assert "of memory at 1000000000000 tokens" in report["problems"][2]
    assert run(argv) == 6
    shown = capsys.readouterr()
    assert "error: a.gguf does not fit t.gguf: its backbone width is 16" in shown.err
    assert shown.out.count("problem ") == 3


def test_a_file_that_is_no_gguf_is_an_error(
    tmp_path: Path, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<html>")
    assert run(["pair", "check", pair[0], str(page), "--json"]) == 6
    assert "web page" in capsys.readouterr().err


def test_a_speculator_must_share_the_vocabulary(tmp_path: Path, pair: tuple[str, str]) -> None:
    other = gguf_make.write(tmp_path / "s.gguf", tokens=[*VOCABULARY[:-1], "x"])
    report = checks.check_pair(Path(pair[0]), speculator=other)
    assert "token 39" in report.problems[0]
    assert checks.check_pair(Path(pair[0]), speculator=Path(pair[1])).memory.speculator > 0


def test_window_shared_and_recurrent_layers_keep_less(tmp_path: Path) -> None:
    gemma = read_header(
        gguf_make.write(
            tmp_path / "g.gguf",
            arch="gemma4",
            block_count=6,
            attention__head_count=4,
            attention__head_count_kv=1,
            attention__key_length=64,
            attention__value_length=64,
            attention__key_length_swa=32,
            attention__value_length_swa=32,
            attention__sliding_window=100,
            attention__sliding_window_pattern=[True, True, False, True, True, False],
            attention__shared_kv_layers=3,
        )
    )
    # layers 0 and 1 keep window + batch in whole 256s, layer 2 everything, 3 to 5 read theirs
    assert memory.cache_bytes(gemma, 4096) == (2 * 768 * 64 + 4096 * 128) * 2
    qwen = read_header(
        gguf_make.write(
            tmp_path / "q.gguf",
            arch="qwen35",
            block_count=5,
            nextn_predict_layers=1,
            attention__head_count=2,
            ssm__state_size=16,
            ssm__inner_size=32,
            ssm__conv_kernel=4,
        )
    )
    state = (32 * 16 + 3 * (32 + 2 * 16)) * 4
    assert memory.cache_bytes(qwen, 100) == 3 * state + 2 * 256 * 2 * 8 * 2


def test_the_cache_of_smollm2_is_what_llama_cpp_allocates(smollm2: Path) -> None:
    assert memory.cache_bytes(read_header(smollm2), 4096) == 90 * 1024**2
