"""`doctor`: each thing that can be wrong is named with what to do; the rest is still checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.gguf_make import gemma4_assistant, gemma4_target

from ollama_spec.cli import run
from ollama_spec.profiles import WeightFile
from ollama_spec.store import ModelRecord, ModelStore


@pytest.fixture(autouse=True)
def nothing_else_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port where nobody listens stands for Ollama and for the sidecar."""
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("OLLAMA_SPEC_HOST", "127.0.0.1:1")


def _report(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    code = run(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return code, {finding["check"]: finding for finding in findings}


def _weights(path: Path) -> WeightFile:
    return WeightFile(path=path, size=path.stat().st_size)


def test_a_bare_machine_is_told_each_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = _report(capsys)
    assert code == 1
    assert found["ollama"]["verdict"] == "warn"
    assert (found["runner"]["verdict"], found["runner"]["hint"]) == (
        "fail",
        "run `ollama-spec build`",
    )
    assert "serve" in found["sidecar"]["hint"]
    assert "pull" in found["models"]["hint"]


def test_models_are_judged_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, drafter = gemma4_target(tmp_path / "t.gguf"), gemma4_assistant(tmp_path / "d.gguf")
    store = ModelStore()
    store.put(ModelRecord(name="good", target=_weights(target), drafter=_weights(drafter)))
    store.put(ModelRecord(name="alone", target=_weights(target)))
    store.put(ModelRecord(name="swapped", target=_weights(drafter), drafter=_weights(target)))
    gone = tmp_path / "gone.gguf"
    store.put(ModelRecord(name="gone", target=WeightFile(path=gone, size=1)))
    store.put(ModelRecord(name="torn", target=_weights(target)))
    next((store.root).rglob("torn/latest.json")).write_text("{")
    code, found = _report(capsys)
    assert code == 1
    assert (found["good"]["verdict"], found["good"]["text"]) == (
        "ok",
        "target and drafter fit, draft-mtp",
    )
    assert (found["alone"]["verdict"], found["alone"]["text"]) == ("ok", "no drafter")
    assert found["swapped"]["verdict"] == "fail"
    assert found["gone"] == {
        "check": "gone",
        "verdict": "fail",
        "text": f"{gone} is gone",
        "hint": "put it back, or `pull` or `create` the model again",
    }
    assert "torn" in found["models"]["text"]


def test_text_puts_the_hint_below_its_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    position = next(i for i, line in enumerate(lines) if line.startswith("fail  runner"))
    assert lines[position + 1].strip() == "→ run `ollama-spec build`"


def test_a_runner_of_another_tag_or_of_older_sources_is_named(
    capsys: pytest.CaptureFixture[str], patched_runner: Path
) -> None:
    from ollama_spec.artefacts import ArtefactStore, Manifest

    store = ArtefactStore()
    staged = store.staging("old")
    (staged / "bin" / "llama-server").symlink_to(patched_runner)
    manifest = Manifest(
        key="old", tag="b10488", commit="", source="", overlay="0", engine="native", flags=[]
    )
    store.use(store.publish(staged, manifest))
    _, found = _report(capsys)
    assert found["runner"]["verdict"] == "warn"
    assert "older version of our sources" in found["runner"]["text"]


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ("8.6", ["86"], True),
        ("8.9", ["86"], True),
        ("8.6", ["89"], False),
        ("12.0", ["90", "120a"], True),
        ("7.5", ["86", "120"], False),
        (None, ["86"], True),
    ],
)
def test_machine_code_runs_on_its_own_generation(
    capability: str | None, built: list[str], runs: bool
) -> None:
    from ollama_spec.commands.doctor import _runs_on

    assert _runs_on(capability, built) is runs
