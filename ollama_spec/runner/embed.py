"""POST /api/embed and /api/embeddings on llama-server's /v1/embeddings (contract 1.5, 7.5)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ollama_spec.runner import decode
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.pool import Lease
from ollama_spec.runner.request import Request

EMBED: decode.Fields = {
    "model": "string",
    "input": "any",
    "keep_alive": "any",
    "truncate": "bool",
    "dimensions": "int",
    "options": "map[string]interface {}",
}
EMBEDDINGS: decode.Fields = {
    "model": "string",
    "prompt": "string",
    "keep_alive": "any",
    "options": "map[string]interface {}",
}
TOO_LONG = "the input length exceeds the context length"


def inputs(value: Any) -> list[str]:
    """The texts to embed; none at all for an absent or empty input (the model is only loaded)."""
    if value in (None, ""):
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise ApiError(400, "invalid input type")


async def embed(request: Request) -> dict[str, Any]:
    """Vectors of unit length, in the order of the inputs."""
    texts = inputs(request.body.get("input"))
    async with request.lease() as lease:
        request.load_seconds = time.monotonic() - request.started
        if not texts:
            return {"model": request.model, "embeddings": []}
        vectors, tokens = [], 0
        for text in texts:
            vector, used = await _vector(request, lease, text)
            vectors.append(_unit(vector, request.body.get("dimensions", 0)))
            tokens += used
        request.services.pool.answered(lease.loaded)
    answer: dict[str, Any] = {"model": request.model, "embeddings": vectors}
    answer["total_duration"] = int((time.monotonic() - request.started) * 1e9)
    answer["load_duration"] = int(request.load_seconds * 1e9)
    if tokens:
        answer["prompt_eval_count"] = tokens
    return answer


async def embed_one(request: Request) -> dict[str, Any]:
    """The older route: one text, llama-server's own normalisation."""
    prompt = request.body.get("prompt", "")
    async with request.lease() as lease:
        if not prompt:
            return {"embedding": []}
        async with lease.loaded.slots:
            try:
                vector, _ = await _ask(lease, prompt)
            except ApiError as error:
                raise ApiError(500, error.message) from None
        request.services.pool.answered(lease.loaded)
    return {"embedding": vector}


async def _vector(request: Request, lease: Lease, text: str) -> tuple[list[float], int]:
    async with lease.loaded.slots:
        tokens: list[int] = []
        # A token has at least one byte, so a short text needs no count.
        if len(text.encode(errors="replace")) >= lease.num_ctx - 2:
            tokens = await lease.client.tokenize(text, special=True)
        if len(tokens) > lease.num_ctx:
            if not request.body.get("truncate", True):
                raise ApiError(400, TOO_LONG)
            text = await lease.client.detokenize(tokens[: lease.num_ctx - 2])
        return await _ask(lease, text)


async def _ask(lease: Lease, text: str) -> tuple[list[float], int]:
    try:
        reply = await lease.client.post("/v1/embeddings", {"input": text})
    except ApiError as error:
        raise ApiError(error.status, _plain(error.message)) from None
    vector = list(reply["data"][0]["embedding"])
    if not all(map(math.isfinite, vector)):
        raise ApiError(400, "embedding contains NaN or Inf values")
    usage: Mapping[str, Any] = reply.get("usage") or {}
    return vector, int(usage.get("prompt_tokens", 0))


def _plain(text: str) -> str:
    """llama-server's message out of its error body."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text


def _unit(vector: Sequence[float], dimensions: int) -> list[float]:
    kept = vector[:dimensions] if 0 < dimensions < len(vector) else vector
    norm = math.sqrt(sum(value * value for value in kept))
    return [value / max(norm, 1e-12) for value in kept]
