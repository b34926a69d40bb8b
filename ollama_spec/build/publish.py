"""Small steps every engine ends with."""

from __future__ import annotations

from ollama_spec.artefacts import Artefact, ArtefactStore


def existing(store: ArtefactStore, key: str) -> Artefact | None:
    """The complete artefact of exactly this key."""
    found = [item for item in store.list() if item.manifest.key == key]
    return found[0] if found and found[0].server.is_file() else None


def put_in_use(store: ArtefactStore, artefact: Artefact) -> None:
    """Make it current, unless it is a stock build and something else already is."""
    if artefact.manifest.overlay is not None or store.current() is None:
        store.use(artefact)
