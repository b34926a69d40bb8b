"""POST /v1/embeddings on top of /api/embed (contract 1.16)."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

from ollama_spec.runner import decode
from ollama_spec.runner.apierror import ApiError

_FIELDS: decode.Fields = {
    "model": "string",
    "input": "any",
    "dimensions": "int",
    "encoding_format": "string",
}


def to_embed(raw: Mapping[str, Any]) -> dict[str, Any]:
    body = decode.fields(raw, _FIELDS, "EmbedRequest")
    form = body.get("encoding_format", "")
    if form.lower() not in ("", "float", "base64"):
        raise ApiError(
            400,
            f"Invalid value for 'encoding_format' = {form}. Supported values: ['float', 'base64'].",
        )
    texts = body.get("input")
    if texts == "":
        texts = [""]
    if texts in (None, []):
        raise ApiError(400, "invalid input")
    embed = {"model": body.get("model", ""), "input": texts}
    if "dimensions" in body:
        embed["dimensions"] = body["dimensions"]
    return embed


def answer(reply: Mapping[str, Any], encoding: Any) -> dict[str, Any]:
    """`encoding` "base64": little-endian float32."""
    packed = isinstance(encoding, str) and encoding.lower() == "base64"
    tokens = reply.get("prompt_eval_count", 0)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "embedding": _pack(item) if packed else item, "index": index}
            for index, item in enumerate(reply["embeddings"])
        ],
        "model": reply["model"],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _pack(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
