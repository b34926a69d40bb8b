"""What a model can do, by the heuristics Ollama uses on the GGUF's template (contract 8.1, 8.6)."""

from __future__ import annotations

from functools import lru_cache

from ollama_spec.gguf import GgufHeader
from ollama_spec.store import ModelRecord


@lru_cache(maxsize=64)
def of_template(jinja: str) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    if "tools" in jinja or "tool_call" in jinja:
        found += ("tools",)
    both_tags = "<think>" in jinja and "</think>" in jinja
    splits = "split('</think>')" in jinja or 'split("</think>")' in jinja
    if both_tags or (splits and "reasoning_content" not in jinja):
        found += ("thinking",)
    return found


def of_model(record: ModelRecord, header: GgufHeader) -> list[str]:
    """In the order `/api/show` lists them."""
    found = list(of_template(header.chat_template or ""))
    pooling = f"{header.arch}.pooling_type" in header.kv
    found.append("embedding" if pooling else "completion")
    if f"{header.arch}.vision.block_count" in header.kv or record.projector:
        found.append("vision")
    if f"{header.arch}.audio.block_count" in header.kv:
        found.append("audio")
    return found
