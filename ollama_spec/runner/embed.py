"""POST /api/embed and /api/embeddings on llama-server's /v1/embeddings (contract 1.5, 7.5)."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import orjson

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
_SPECIALS = 2  # tokens that llama-server may add
_IS_TOO_LONG = re.compile(
    "too large|context size|context length|physical batch size|exceeds the available context"
)
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
    """One text's vector and its tokens: cut to the context, and again to the batch if refused."""
    cut = request.body.get("truncate", True)
    async with lease.loaded.slots:
        # A token has at least one byte, so a short text needs no count.
        if len(text.encode(errors="replace")) > lease.num_ctx - _SPECIALS:
            tokens = await lease.client.tokenize(text)
            limit = _limit(request, tokens, lease.num_ctx)
            if len(tokens) > limit and not cut:
                raise ApiError(400, TOO_LONG)
            if len(tokens) > limit:
                text = await lease.client.detokenize(tokens[:limit])
        try:
            return await _ask(lease, text)
        except ApiError as error:
            if error.status != 400 or not cut:
                raise
        tokens = await lease.client.tokenize(text)
        limit = min(lease.num_ctx, _batch(request, lease))
        limit = _limit(request, tokens, limit)
        if len(tokens) <= limit:
            raise ApiError(
                400, "input exceeds maximum context length and cannot be truncated further"
            )
        return await _ask(lease, await lease.client.detokenize(tokens[:limit]))


def _limit(request: Request, tokens: list[int], limit: int) -> int:
    """Room for the tokens at both ends that llama-server adds and the text does not have yet."""
    kv = request.header.kv
    begin = bool(tokens) and tokens[0] != kv.get("tokenizer.ggml.bos_token_id", 0)
    end = bool(tokens) and tokens[-1] != kv.get("tokenizer.ggml.eos_token_id", 0)
    return limit - begin - end


def _batch(request: Request, lease: Lease) -> int:
    usual = 2048 if request.wanted.embedding else 512
    return int(request.wanted.load.get("num_batch") or min(usual, lease.num_ctx))


async def _ask(lease: Lease, text: str) -> tuple[list[float], int]:
    try:
        reply = await lease.client.post("/v1/embeddings", {"input": text})
    except ApiError as error:
        said = _plain(error.message)
        if _IS_TOO_LONG.search(said.lower()):
            raise ApiError(400, TOO_LONG) from None
        raise ApiError(error.status, said) from None
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
    """Of unit length; with Ollama's 32-bit sums in its order, so that every digit is the same."""
    whole = _normal(numpy.array(vector, dtype=numpy.float32))
    if 0 < dimensions < len(whole):
        whole = _normal(whole[:dimensions])
    # By way of JSON: the shortest digits that hold the 32 bits.
    shortest: list[float] = orjson.loads(orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY))
    return shortest


def _normal(vector: Any) -> Any:
    total = float(numpy.cumsum(vector * vector, dtype=numpy.float32)[-1])
    return vector * numpy.float32(1 / max(math.sqrt(total), 1e-12))
