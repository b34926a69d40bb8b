"""Request options: types, defaults, precedence (contract 3); the child's sampling fields (7.5)."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from ollama_spec.runner.apierror import ApiError

log = logging.getLogger(__name__)

_TYPES: Mapping[str, str] = {
    "num_ctx": "integer",
    "num_batch": "integer",
    "num_gpu": "integer",
    "main_gpu": "integer",
    "use_mmap": "boolean",
    "num_thread": "integer",
    "draft_num_predict": "integer",
    "num_keep": "integer",
    "seed": "integer",
    "num_predict": "integer",
    "top_k": "integer",
    "top_p": "float32",
    "min_p": "float32",
    "typical_p": "float32",
    "repeat_last_n": "integer",
    "temperature": "float32",
    "repeat_penalty": "float32",
    "presence_penalty": "float32",
    "frequency_penalty": "float32",
    "stop": "array",
}
LOAD_KEYS = (
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "use_mmap",
    "num_thread",
    "draft_num_predict",
)
_DEFAULTS: Mapping[str, Any] = {
    "num_keep": 4,
    "seed": -1,
    "num_predict": -1,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "temperature": 0.8,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "stop": [],
}


def merge(stored: Mapping[str, Any], request: Mapping[str, Any] | None) -> dict[str, Any]:
    """Defaults < the model's stored parameters < the request's options; null keeps what is there.

    Keys of ours (`spec_*`) pass unchecked; unknown keys are dropped with a warning; a wrong type
    is HTTP 500, as in Ollama.
    """
    merged: dict[str, Any] = dict(_DEFAULTS)
    for source in (stored, request or {}):
        for key, value in source.items():
            if value is None or key.startswith("spec_"):
                continue
            if key not in _TYPES:
                log.warning("invalid option provided: %s", key)
                continue
            merged[key] = _typed(key, value)
    return merged


def _typed(key: str, value: Any) -> Any:
    kind = _TYPES[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer" and number:
        return _whole(value)
    if kind == "float32" and number and math.isfinite(value):
        return float(value)
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "array" and isinstance(value, list):
        if not all(isinstance(item, str) for item in value):
            raise ApiError(500, f'option "{key}" must be of an array of strings')
        return value
    raise ApiError(500, f'option "{key}" must be of type {kind}')


def _whole(value: float) -> int:
    # Go converts out-of-range floats to an undefined integer; the nearest limit is kinder.
    limit = 2**63 - 1
    return int(max(-limit, min(limit, value))) if value == value else 0


def sampling(options: Mapping[str, Any], num_ctx: int) -> dict[str, Any]:
    """The sampling fields both kinds of request to llama-server share."""
    return {
        "temperature": options["temperature"],
        "top_k": options["top_k"],
        "top_p": options["top_p"],
        "min_p": options["min_p"],
        "typical_p": options["typical_p"],
        "repeat_last_n": options["repeat_last_n"],
        "repeat_penalty": options["repeat_penalty"],
        "presence_penalty": options["presence_penalty"],
        "frequency_penalty": options["frequency_penalty"],
        "seed": options["seed"],
        "stop": options["stop"],
        "n_predict": bounded_predict(options["num_predict"], num_ctx),
        "n_keep": options["num_keep"],
        "cache_prompt": True,
    }


def bounded_predict(num_predict: int, num_ctx: int) -> int:
    """Without a limit of its own an answer ends after ten contexts (contract 7.6)."""
    limit = 10 * num_ctx
    return limit if num_predict < 0 or num_predict > limit else num_predict
