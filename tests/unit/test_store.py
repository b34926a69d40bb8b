"""Model records: spelling, replacement, sweeping of fetched weights, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollama_spec.errors import NotFoundError, OllamaSpecError
from ollama_spec.profiles import WeightFile
from ollama_spec.store import ModelRecord, ModelStore, weights_dir


def _record(name: str, target: Path, drafter: Path | None = None) -> ModelRecord:
    return ModelRecord(
        name=name,
        target=WeightFile(path=target, size=10),
        drafter=WeightFile(path=drafter, size=3) if drafter else None,
    )


def test_case_9_every_spelling_finds_the_record_and_case_is_kept(tmp_path: Path) -> None:
    store = ModelStore()
    store.put(_record("Gemma4-Spec", tmp_path / "t.gguf"))
    for spelling in ("gemma4-spec", "GEMMA4-SPEC:LATEST", "registry.ollama.ai/library/gemma4-spec"):
        assert store.get(spelling).name == "Gemma4-Spec"
    for bad in ("", "../x", "gemma4-spec@sha256:00"):
        assert store.find(bad) is None


def test_unknown_name_says_what_to_do() -> None:
    with pytest.raises(NotFoundError, match="model 'nope' not found") as caught:
        ModelStore().get("nope")
    assert "list" in (caught.value.hint or "")


def test_size_counts_every_weight_and_digest_follows_the_record(tmp_path: Path) -> None:
    plain = _record("m", tmp_path / "t.gguf")
    pair = _record("m", tmp_path / "t.gguf", tmp_path / "d.gguf")
    assert (plain.size, pair.size) == (10, 13)
    assert len(plain.digest) == 64
    assert plain.digest != pair.digest


def test_remove_sweeps_only_what_pull_fetched_and_nobody_else_names(tmp_path: Path) -> None:
    ours = weights_dir() / "org" / "t.gguf"
    shared = weights_dir() / "org" / "d.gguf"
    users = tmp_path / "mine.gguf"
    for file in (ours, shared, users):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    store = ModelStore()
    store.put(_record("a", ours, shared))
    store.put(_record("b", users, shared))
    store.remove("a")
    assert not ours.exists()
    assert shared.exists()
    store.remove("b")
    assert not shared.exists()
    assert users.exists()
    assert store.list() == []


def test_a_damaged_record_is_named_and_does_not_hide_the_others(tmp_path: Path) -> None:
    store = ModelStore()
    store.put(_record("good", tmp_path / "t.gguf"))
    store.put(_record("bad", tmp_path / "t.gguf"))
    next(store.root.glob("*/*/bad/*.json")).write_text('{"name": 3}')
    assert [record.name for record in store.list()] == ["good"]
    with pytest.raises(OllamaSpecError, match="damaged model record"):
        store.get("bad")
