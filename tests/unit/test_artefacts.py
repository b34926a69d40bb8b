"""The artefact store: publish, use, rollback, remove; nothing half-made is ever visible."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollama_spec.artefacts import Artefact, ArtefactStore, Manifest
from ollama_spec.errors import ArtefactUnusable, NotFoundError


def _publish(store: ArtefactStore, key: str, content: str = "x") -> Artefact:
    staged = store.staging(key)
    (staged / "bin" / "llama-server").write_text(content)
    manifest = Manifest(
        key=key, tag="b1", commit="c", source="s", overlay="o", engine="native", flags=[]
    )
    return store.publish(staged, manifest)


def test_publish_use_rollback() -> None:
    store = ArtefactStore()
    assert store.current() is None
    first, second = _publish(store, "b1-aaa"), _publish(store, "b1-bbb")
    store.use(first)
    store.use(second)
    assert store.current() == second
    assert store.previous() == first
    assert first.server.read_text() == "x"


def test_publishing_the_same_key_replaces_it_whole() -> None:
    store = ArtefactStore()
    _publish(store, "b1-aaa", "old")
    assert _publish(store, "b1-aaa", "new").server.read_text() == "new"
    assert len(store.list()) == 1
    assert [path.name for path in store.root.iterdir()] == ["b1-aaa"]


def test_staging_is_no_artefact() -> None:
    store = ArtefactStore()
    store.staging("b1-aaa")
    assert store.list() == []


def test_keys_may_be_shortened_when_unambiguous() -> None:
    store = ArtefactStore()
    _publish(store, "b1-aaa"), _publish(store, "b1-abb")
    assert store.get("b1-ab").manifest.key == "b1-abb"
    for text in ("b1-a", "zzz"):
        with pytest.raises(NotFoundError, match="runner matches"):
            store.get(text)


def test_the_one_in_use_cannot_be_removed() -> None:
    store = ArtefactStore()
    first, second = _publish(store, "b1-aaa"), _publish(store, "b1-bbb")
    store.use(first)
    with pytest.raises(ArtefactUnusable, match="in use"):
        store.remove(first)
    store.remove(second)
    assert [item.manifest.key for item in store.list()] == ["b1-aaa"]


def test_a_damaged_manifest_is_named() -> None:
    store = ArtefactStore()
    folder = _publish(store, "b1-aaa").folder
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(ArtefactUnusable, match=str(Path("b1-aaa"))):
        store.get("b1-aaa")
