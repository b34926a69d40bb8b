"""What keeps a finished build from being published."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollama_spec.artefacts import ArtefactStore, Manifest
from ollama_spec.build import publish
from ollama_spec.errors import BuildError


def test_hooks_changed_during_the_build_are_refused() -> None:
    """The key names the hooks as they were at the start, the manifest those at the end."""
    key = "b5-spec-aaaaaaaaaaaa-native"

    def make(staged: Path) -> Manifest:
        return Manifest(key=key, tag="b5", commit="c", source="s", overlay="bbbbbbbbbbbb",
                        engine="native", flags=[])  # fmt: skip

    with pytest.raises(BuildError, match="the hooks changed while they were compiled"):
        publish.produce(key, "b5", make, use=True)
    store = ArtefactStore()
    assert store.list() == [] and list(store.root.iterdir()) == []
