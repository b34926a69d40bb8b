"""What a model can do, by the heuristics Ollama uses on the GGUF's template (contract 8.1, 8.6)."""

from __future__ import annotations

from ollama_spec.gguf import GgufHeader
from ollama_spec.store import ModelRecord


def of_template(jinja: str) -> list[str]:
    found = []
    if "tools" in jinja or "tool_call" in jinja:
        found.append("tools")
    both_tags = "<think>" in jinja and "</think>" in jinja
    splits = "split('</think>')" in jinja or 'split("</think>")' in jinja
    if both_tags or (splits and "reasoning_content" not in jinja):
        found.append("thinking")
    return found


def of_model(record: ModelRecord, header: GgufHeader) -> list[str]:
    """In the order `/api/show` lists them."""
    found = of_template(header.chat_template or "")
    pooling = f"{header.arch}.pooling_type" in header.kv
    found.append("embedding" if pooling else "completion")
    if f"{header.arch}.vision.block_count" in header.kv or record.projector:
        found.append("vision")
    if f"{header.arch}.audio.block_count" in header.kv:
        found.append("audio")
    return found
