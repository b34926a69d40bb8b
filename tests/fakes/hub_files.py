"""Small real GGUF files for the hub: a header that a loader would accept, and bulk to transfer."""

from __future__ import annotations

import random
import struct
from typing import Any

_STRING, _ARRAY, _U32, _BOOL = 8, 9, 4, 7


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    body = b"".join(_text(item) for item in value)
    return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + body


def gguf(kv: dict[str, Any], tensors: dict[str, int], seed: int = 0) -> bytes:
    """A GGUF with these keys and F32 vectors (name: elements) of reproducible noise."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv))
    for key, value in kv.items():
        head += _text(key) + _value(value)
    offset = 0
    for name, count in tensors.items():
        head += _text(name) + struct.pack("<IQIQ", 1, count, 0, offset)
        offset += -(-count * 4 // 32) * 32
    head += b"\0" * (-len(head) % 32)
    return head + random.Random(seed).randbytes(offset)


def vocabulary(size: int = 300) -> list[str]:
    return [f"token{number}" for number in range(size)]


def model(
    name: str = "Tiny",
    *,
    arch: str = "llama",
    tokens: list[str] | None = None,
    bulk: int = 4096,
    seed: int = 0,
    **more: Any,
) -> bytes:
    """A whole model by its header; `bulk` is the number of floats in its one big tensor."""
    kv: dict[str, Any] = {
        "general.architecture": arch,
        "general.name": name,
        f"{arch}.block_count": 2,
        f"{arch}.embedding_length": 64,
        f"{arch}.context_length": 2048,
    }
    kv |= {key.replace("__", "."): value for key, value in more.items()}
    kv |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens or vocabulary()}
    return gguf(kv, {"token_embd.weight": bulk, "blk.0.attn_q.weight": 64}, seed)


def head_only(arch: str = "gemma4-assistant", seed: int = 7) -> bytes:
    kv = {
        "general.architecture": arch,
        "general.name": "Head",
        f"{arch}.block_count": 4,
        f"{arch}.nextn_predict_layers": 4,
        f"{arch}.embedding_length": 32,
    }
    return gguf(kv, {"nextn.pre_projection.weight": 64}, seed)


def separate_head(arch: str = "qwen35", seed: int = 8) -> bytes:
    """A multi-token-prediction block cut out of its model: layers after a trunk of 4."""
    kv = {
        "general.architecture": arch,
        f"{arch}.block_count": 5,
        f"{arch}.nextn_predict_layers": 1,
        f"{arch}.embedding_length": 64,
    }
    return gguf(kv, {"blk.4.nextn.eh_proj.weight": 64}, seed)


def embedded(arch: str = "qwen35", bulk: int = 4096) -> bytes:
    kv = {
        "general.architecture": arch,
        f"{arch}.block_count": 3,
        f"{arch}.nextn_predict_layers": 1,
        f"{arch}.embedding_length": 64,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": vocabulary(),
    }
    return gguf(kv, {"blk.0.attn_q.weight": bulk, "blk.2.nextn.eh_proj.weight": 64}, 9)


def projector() -> bytes:
    return gguf({"general.architecture": "clip", "general.type": "mmproj"}, {"v.patch": 64}, 10)


def imatrix() -> bytes:
    return gguf({"general.type": "imatrix", "imatrix.datasets": ["calibration"]}, {"x": 64}, 11)
