"""Whose model is it? Ours: a name in our store, or a model of Ollama's that carries a drafter
(its weights are then used where they lie). All others belong to the real Ollama."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from ollama_spec import names
from ollama_spec.ollama_store import OllamaStore, StoredModel, Unreadable
from ollama_spec.runner.apierror import ApiError
from ollama_spec.store import Message, ModelRecord, ModelStore

log = logging.getLogger(__name__)


def ours(store: ModelStore, text: object, *, ollama_pairs: bool = True) -> ModelRecord | None:
    """The record for a request's model text, whatever its spelling; None: not ours.

    `ollama_pairs`: whether Ollama's own pairs count.
    """
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        reference = names.parse_reference(text)
        name = names.parse(reference.base)
    except names.InvalidName:
        return None
    if reference.source == "cloud":
        return None
    return store.find(text) or (_ollama_pair(name) if ollama_pairs else None)


def _ollama_pair(name: names.ModelName) -> ModelRecord | None:
    store = OllamaStore.local()
    if store is None:
        return None
    try:
        stored = store.find(name.full)
        if stored is None or stored.layer("draft") is None:
            return None
        store.require_weights(stored)
    except Unreadable as error:
        log.info("%s stays with Ollama: %s", name.display, error.message)
        return None
    return _record(name, stored)


def _record(name: names.ModelName, stored: StoredModel) -> ModelRecord | None:
    target = stored.weight("model")
    if target is None or not target.path.is_file():
        return None
    config = stored.config
    license_text = stored.text("license")
    return ModelRecord(
        name=name.display,
        target=target,
        drafter=stored.weight("draft"),
        projector=stored.weight("projector"),
        template=stored.text("template"),
        system=stored.text("system"),
        parameters=stored.json("params") or {},
        messages=[Message.model_validate(item) for item in stored.json("messages") or []],
        license=[license_text] if license_text else [],
        renderer=config.get("renderer"),
        parser=config.get("parser"),
        # From the file, not the clock: equal records share a loaded child.
        created_at=datetime.fromtimestamp(target.path.stat().st_mtime, UTC),
    )


def not_found(text: object, *, empty: ApiError | None = None) -> ApiError:
    """What Ollama says about a name that it does not have (contract 1.3, 1.4)."""
    shown = text if isinstance(text, str) else ""
    if not shown:
        return empty or ApiError(404, "model '' not found")
    try:
        names.parse(names.parse_reference(shown).base)
    except names.InvalidName as error:
        return ApiError(400, str(error))
    return ApiError(404, f"model '{shown}' not found")
