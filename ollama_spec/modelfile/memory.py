"""Memory a model needs, worked out from its header; and what is free.

The cache (f16) equals what llama.cpp b10488 logs at 4096 tokens for SmolLM2-135M (90.0 MiB, plain
attention) and for our small Gemma 4 (1.1875 MiB, sliding windows and shared layers). Compute
buffers are an estimate: 15 MiB where it logs 17.5 MiB, 7.5 where it logs 9.0.
"""

from __future__ import annotations

import subprocess
from typing import Any

import psutil

from ollama_spec.gguf import GgufHeader

_F16, _F32 = 2, 4  # bytes
_UBATCH = 512  # tokens of one physical batch, llama-server's default
_CELLS = 256  # a cache has a multiple of this many cells
_DEFAULT_INTERVAL = 4  # qwen35: one of four layers has attention, the others a recurrent state


def cache_bytes(header: GgufHeader, tokens: int) -> int:
    """KV cache of one sequence of `tokens`, plus recurrent state; bytes.

    Sliding-window layers keep their window and one batch; layers that read another layer's
    cache, and recurrent ones, keep none.
    """
    if header.arch == "gemma4-assistant":
        return 0  # reads the target's
    window = header.count_of_arch("attention.sliding_window")
    own = header.block_count - header.count_of_arch("attention.shared_kv_layers")
    total = 0
    for layer in range(own):
        if _recurrent(header, layer):
            total += _state_bytes(header)
            continue
        swa = bool(window) and _sliding(header, layer)
        cells = min(tokens, window + _UBATCH) if swa else tokens
        total += _padded(cells) * _cell_bytes(header, layer, swa)
    return total


def _padded(cells: int) -> int:
    return -(-cells // _CELLS) * _CELLS


def compute_bytes(header: GgufHeader) -> int:
    """Rough size of the buffers for intermediate results; bytes."""
    widest = header.count_of_arch("feed_forward_length")
    return _UBATCH * (2 * widest + 8 * header.embedding_length) * _F32


def _cell_bytes(header: GgufHeader, layer: int, swa: bool) -> int:
    heads = _per_layer(header, "attention.head_count", layer) or 1
    kv_heads = _per_layer(header, "attention.head_count_kv", layer)
    kv_heads = heads if kv_heads is None else kv_heads
    fallback = header.embedding_length // heads
    suffix = "_swa" if swa and header.of_arch("attention.key_length_swa") else ""
    key = header.count_of_arch(f"attention.key_length{suffix}") or fallback
    value = header.count_of_arch(f"attention.value_length{suffix}") or fallback
    return kv_heads * (key + value) * _F16


def _per_layer(header: GgufHeader, key: str, layer: int) -> int | None:
    value: Any = header.of_arch(key)
    if isinstance(value, list):
        return int(value[layer]) if layer < len(value) else None
    return None if value is None else int(value)


def _sliding(header: GgufHeader, layer: int) -> bool:
    pattern = header.of_arch("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return bool(pattern[layer]) if layer < len(pattern) else False
    if pattern:  # every n-th layer sees everything
        return (layer + 1) % int(pattern) != 0
    # Families whose pattern llama.cpp knows by name; others are counted whole, on the safe side.
    every = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "cohere2": 4}.get(header.arch)
    return every is not None and (layer + 1) % every != 0


def _recurrent(header: GgufHeader, layer: int) -> bool:
    if not header.count_of_arch("ssm.state_size"):
        return False
    marks = header.of_arch("attention.recurrent_layers")
    if isinstance(marks, list) and layer < len(marks):
        return bool(marks[layer])
    if layer >= header.block_count - header.nextn_layers:
        return False
    every = header.count_of_arch("full_attention_interval") or _DEFAULT_INTERVAL
    return (layer + 1) % every != 0


def _state_bytes(header: GgufHeader) -> int:
    inner, state = header.count_of_arch("ssm.inner_size"), header.count_of_arch("ssm.state_size")
    groups = header.count_of_arch("ssm.group_count") or 1
    kernel = header.count_of_arch("ssm.conv_kernel")
    return (inner * state + max(kernel - 1, 0) * (inner + 2 * groups * state)) * _F32


def free_ram() -> int:
    """Bytes that can be had without swapping."""
    return int(psutil.virtual_memory().available)


def free_gpu() -> int:
    """Free bytes of all NVIDIA GPUs together; 0 where there is none."""
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
        return sum(int(line) for line in done.stdout.split()) * 1024**2
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0
