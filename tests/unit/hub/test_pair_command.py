"""`pair suggest` and `pair check` through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import hub_files

from ollama_spec import cli
from ollama_spec.profiles import WeightFile
from ollama_spec.store import ModelRecord, ModelStore


def put(name: str, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    ModelStore().put(ModelRecord(name=name, target=WeightFile(path=path, size=path.stat().st_size)))


def test_a_drafter_is_named_by_architecture_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put("mine", tmp_path / "a.gguf", hub_files.model("Gemma-4-E2B-It", arch="gemma4"))
    assert cli.run(["pair", "suggest", "mine", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [recipe["family"] + ":" + recipe["size"] for recipe in found["recipes"]]
    assert names == ["gemma4-qat:e2b", "gemma4:e2b"]
    assert cli.run(["pair", "suggest", "mine"]) == 0
    assert "hf.co/unsloth/gemma-4-E2B-it-GGUF/MTP/" in capsys.readouterr().out


def test_a_head_inside_needs_no_drafter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put("qwen", tmp_path / "a.gguf", hub_files.embedded())
    assert cli.run(["pair", "suggest", "qwen"]) == 0
    assert "a drafting head inside" in capsys.readouterr().out


def test_an_unknown_architecture_or_size_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put("odd", tmp_path / "a.gguf", hub_files.model("Odd", arch="mamba"))
    assert cli.run(["pair", "suggest", "odd"]) == 4
    assert "no drafter for odd (mamba)" in capsys.readouterr().err
    put("big", tmp_path / "b.gguf", hub_files.model("Gemma-4", arch="gemma4"))
    assert cli.run(["pair", "suggest", "big"]) == 0
    assert "other sizes" in capsys.readouterr().err


def test_without_ollama_an_unknown_name_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OLLAMA_SPEC_UPSTREAM", "http://127.0.0.1:9")
    assert cli.run(["pair", "suggest", "nobody"]) == 1
    assert "no Ollama at http://127.0.0.1:9" in capsys.readouterr().err


def test_files_are_checked_against_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.gguf").write_bytes(hub_files.model("T"))
    (tmp_path / "d.gguf").write_bytes(hub_files.model("D", seed=3))
    (tmp_path / "x.gguf").write_bytes(hub_files.model("X", tokens=hub_files.vocabulary(900)))
    assert cli.run(["pair", "check", str(tmp_path / "t.gguf"), str(tmp_path / "d.gguf")]) == 0
    assert "d.gguf fits t.gguf: draft-simple" in capsys.readouterr().out
    assert cli.run(["pair", "check", str(tmp_path / "t.gguf"), str(tmp_path / "x.gguf")]) == 6
    assert "another vocabulary" in capsys.readouterr().err
