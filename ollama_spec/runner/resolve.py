"""Whose model is it? Names of our store are ours; all others belong to the real Ollama."""

from __future__ import annotations

from ollama_spec import names
from ollama_spec.runner.apierror import ApiError
from ollama_spec.store import ModelRecord, ModelStore


def ours(text: object) -> ModelRecord | None:
    """The record for a request's model text, whatever its spelling; None: not ours."""
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        if names.parse_reference(text).source == "cloud":
            return None
    except names.InvalidName:
        return None
    return ModelStore().find(text)


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
