"""Is there memory for a model? What it needs by its headers, and what is free (contract 9.3)."""

from __future__ import annotations

from dataclasses import replace

from ollama_spec import gguf
from ollama_spec.errors import PairingError
from ollama_spec.modelfile import memory
from ollama_spec.runner.argv import Wanted
from ollama_spec.runner.planning import gpu_memory

_LEAST_CTX = 2048  # tokens; an automatic context is not made smaller than this


def needed(wanted: Wanted) -> int:
    """Bytes of weights, caches and buffers of target and drafter; 0 when a header is unreadable."""
    record, tokens = wanted.record, wanted.num_ctx
    total = record.size
    for file in (record.target, record.drafter if wanted.spec_type else None):
        if file is None:
            continue
        try:
            header = gguf.read_header(file.path)
        except PairingError:
            return 0
        total += memory.cache_bytes(header, tokens) * wanted.parallel
        total += memory.compute_bytes(header)
    return total


def free(wanted: Wanted) -> int:
    """Bytes where the model is to go: the GPUs if there are any, unless it asks for none."""
    on_gpu = gpu_memory() > 0 and wanted.load.get("num_gpu") != 0
    return memory.free_gpu() if on_gpu else memory.free_ram()


def smaller(wanted: Wanted) -> list[Wanted]:
    """What to try when it ran out of memory, in Ollama's order (contract 7.4)."""
    ways = []
    if wanted.record.projector:
        ways.append(replace(wanted, projector_on_cpu=True))
    if wanted.automatic_ctx and wanted.num_ctx > _LEAST_CTX:
        ways.append(replace(wanted, num_ctx=max(wanted.num_ctx // 2, _LEAST_CTX)))
    return ways


def gib(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"
