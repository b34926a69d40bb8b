"""POST /v1/completions on top of /api/generate, template included (contract 1.15)."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from ollama_spec.runner import decode
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.translate_openai import usage

Chunk = dict[str, Any]
_FIELDS: decode.Fields = {
    "model": "string",
    "prompt": "string",
    "frequency_penalty": "float32",
    "max_tokens": "int",
    "presence_penalty": "float32",
    "seed": "int",
    "stop": "any",
    "stream": "bool",
    "stream_options": "openai.StreamOptions",
    "temperature": "float32",
    "top_p": "float32",
    "suffix": "string",
    "logprobs": "int",
    "_debug_render_only": "bool",
}


def to_generate(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the /api/generate request that stands for this one."""
    body = decode.fields(raw, _FIELDS, "CompletionRequest")
    options: dict[str, Any] = {
        "temperature": body.get("temperature", 1.0),
        "top_p": body.get("top_p") or 1.0,
        "frequency_penalty": body.get("frequency_penalty", 0),
        "presence_penalty": body.get("presence_penalty", 0),
    }
    if "max_tokens" in body:
        options["num_predict"] = body["max_tokens"]
    if "seed" in body:
        options["seed"] = body["seed"]
    if body.get("stop") is not None:
        options["stop"] = _stop(body["stop"])
    generate = {
        "model": body.get("model", ""),
        "prompt": body.get("prompt", ""),
        "suffix": body.get("suffix", ""),
        "stream": bool(body.get("stream")),
        "options": options,
        "_debug_render_only": bool(body.get("_debug_render_only")),
    }
    if body.get("logprobs", 0) > 0:
        generate |= {"logprobs": True, "top_logprobs": body["logprobs"]}
    return generate


def _stop(value: Any) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        return []
    for item in items:
        if not isinstance(item, str):
            kind = "bool" if isinstance(item, bool) else "float64"
            raise ApiError(400, f"invalid type for 'stop' field: {kind}")
    return items


class CompletionWriter:
    """Ollama's generate chunks as OpenAI text completions."""

    def __init__(self, model: str, *, include_usage: bool = False) -> None:
        self.model = model
        self.id = f"cmpl-{random.randint(0, 998)}"
        self._include_usage = include_usage

    def complete(self, chunk: Chunk) -> Chunk:
        answer = self._envelope([self._choice(chunk)])
        answer["usage"] = usage(chunk)
        return answer | {key: chunk[key] for key in ("spec",) if key in chunk}

    def stream(self, chunk: Chunk) -> list[Chunk]:
        piece = self._chunk([self._choice(chunk)])
        if self._include_usage:
            piece["usage"] = usage({})
        if "spec" in chunk:
            piece["spec"] = chunk["spec"]
        if not (chunk["done"] and self._include_usage):
            return [piece]
        return [piece, {**self._chunk([]), "usage": usage(chunk)}]

    def _choice(self, chunk: Chunk) -> Chunk:
        reason = chunk.get("done_reason")
        return {"text": chunk["response"], "index": 0, "finish_reason": reason or None}

    def _chunk(self, choices: list[Chunk]) -> Chunk:
        """As `_envelope`; the order of keys is another one, as in Ollama."""
        whole = self._envelope(choices)
        order = ("id", "object", "created", "choices", "model", "system_fingerprint")
        return {key: whole[key] for key in order}

    def _envelope(self, choices: list[Chunk]) -> Chunk:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.model,
            "system_fingerprint": "fp_ollama",
            "choices": choices,
        }
