"""`profile`: keys are set whole and checked; a mistake changes nothing and names the right key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from fixtures.gguf_make import gemma4_target, write

from ollama_spec.cli import run
from ollama_spec.profiles import Profile, WeightFile
from ollama_spec.store import ModelRecord, ModelStore


@pytest.fixture
def pair(tmp_path: Path) -> ModelRecord:
    target = gemma4_target(tmp_path / "t.gguf")
    record = ModelRecord(name="mine", target=WeightFile(path=target, size=1))
    ModelStore().put(record)
    return record


def test_show_prints_every_key_as_yaml(
    pair: ModelRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", "mine"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert Profile.model_validate(shown) == Profile()


def test_setting_keys_makes_a_model_lossy_and_says_so(
    pair: ModelRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["spec.accept.mode=relaxed", "spec.n_max=4", "prefill.keep={4096: 0.3}"]
    assert run(["profile", "mine", *settings]) == 0
    assert "mine is lossy now" in capsys.readouterr().err
    profile = ModelStore().get("mine").profile
    assert (profile.spec.accept.mode, profile.spec.n_max) == ("relaxed", 4)
    assert profile.prefill.keep == {4096: 0.3}
    assert run(["profile", "mine", "--reset", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lossless"] is True
    assert ModelStore().get("mine").profile == Profile()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("spec.accept.ratoi=1", "did you mean spec.accept.ratio?"),
        ("spec.n_max=many", "spec.n_max: Input should be a valid integer"),
        ("spec.accept.ratio=2", "spec.accept.ratio: Input should be less than or equal to 1"),
        ("spec.n_max", "write KEY=VALUE"),
        ("spec=3", "a profile has no 'spec'"),
        ("prefill.speculator=./none.gguf", "no such file"),
    ],
)
def test_a_mistake_changes_nothing(
    pair: ModelRecord, capsys: pytest.CaptureFixture[str], setting: str, words: str
) -> None:
    assert run(["profile", "mine", "spec.n_max=5", setting]) == 3
    assert words in capsys.readouterr().err
    assert ModelStore().get("mine").profile == Profile()


def test_a_speculator_has_to_know_the_targets_tokens(
    pair: ModelRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fits = write(tmp_path / "small.gguf")
    assert run(["profile", "mine", f"prefill.speculator={fits}"]) == 0
    speculator = ModelStore().get("mine").profile.prefill.speculator
    assert speculator is not None
    assert (speculator.path, speculator.size) == (fits, fits.stat().st_size)
    other = write(tmp_path / "other.gguf", tokens=[f"u{number}" for number in range(40)])
    assert run(["profile", "mine", f"prefill.speculator={other}"]) == 6
    assert "vocabular" in capsys.readouterr().err
    assert ModelStore().get("mine").profile.prefill.speculator == speculator
