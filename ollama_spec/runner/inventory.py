"""What `/api/tags`, `/api/show` and `/api/ps` say about models of ours (contract 1.6-1.8)."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy
from gguf import GGUFValueType

from ollama_spec import names
from ollama_spec.gguf import GgufHeader
from ollama_spec.modelfile import writer
from ollama_spec.runner import capabilities, planning, wire
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.keepalive import FOREVER
from ollama_spec.runner.pool import Loaded
from ollama_spec.store import ModelRecord


def display(record: ModelRecord) -> str:
    return names.parse(record.name).display


def details(header: GgufHeader | None) -> dict[str, Any]:
    family = header.arch if header else ""
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else None,
        "parameter_size": header.parameter_size if header else "",
        "quantization_level": header.file_type if header else "unknown",
    }


def _header(record: ModelRecord) -> GgufHeader | None:
    """None for a file that is gone: a list must not fail for one broken model."""
    try:
        return planning.header_of(record)
    except ApiError:
        return None


def tag(record: ModelRecord) -> dict[str, Any]:
    header = _header(record)
    facts = details(header)
    entry: dict[str, Any] = {
        "name": display(record),
        "model": display(record),
        "modified_at": wire.local_time(record.created_at.timestamp()),
        "size": record.size,
        "digest": record.digest,
        "details": facts,
    }
    if header:
        for key in ("context_length", "embedding_length"):
            if getattr(header, key) > 0:
                facts[key] = getattr(header, key)
        # The list is cheap in Ollama and does not read the chat template.
        plain = [
            item
            for item in capabilities.of_model(record, header)
            if item not in ("tools", "thinking")
        ]
        entry["capabilities"] = plain
    return entry


def running(loaded: Loaded) -> dict[str, Any]:
    """One entry of /api/ps, with what Ollama's has and, under `spec`, how drafting goes."""
    record = loaded.wanted.record
    total, on_gpu = loaded.child.log.memory()
    expires = loaded.expires_at
    if loaded.in_flight and loaded.keep_alive != FOREVER and not loaded.retiring:
        expires = time.time() + loaded.keep_alive
    return {
        "name": display(record),
        "model": display(record),
        "size": total or record.size,
        "digest": record.digest,
        "details": details(_header(record)),
        "expires_at": wire.local_time(min(expires, 2**33)),
        "size_vram": on_gpu,
        "context_length": loaded.num_ctx,
        "spec": {
            "type": loaded.drafting.spec_type,
            "answers": loaded.drafting.answers,
            "drafted": loaded.drafting.drafted,
            "accepted": loaded.drafting.accepted,
            "problem": loaded.drafting.problem or _on_cpu(loaded, total, on_gpu),
            "build": loaded.binary.build,
        },
    }


def _on_cpu(loaded: Loaded, total: int, on_gpu: int) -> str | None:
    """A build without CUDA on a machine with a GPU works, but ten times slower: say so."""
    if not total or on_gpu or loaded.wanted.load.get("num_gpu") == 0 or not planning.gpu_memory():
        return None
    return "runs on the CPU although there is a GPU"


def show(record: ModelRecord, *, verbose: bool = False) -> dict[str, Any]:
    header = planning.header_of(record)
    reply: dict[str, Any] = {}
    if record.license:
        reply["license"] = "\n".join(record.license)
    reply["modelfile"] = modelfile(record)
    if record.parameters:
        reply["parameters"] = _parameters(record)
    reply["template"] = header.chat_template or record.template or "{{ .Prompt }}"
    if record.system:
        reply["system"] = record.system
    reply["details"] = details(header)
    if record.messages:
        reply["messages"] = [message.model_dump() for message in record.messages]
    reply["model_info"] = _model_info(header, verbose)
    reply["tensors"] = [
        {"name": item.name, "type": item.type.name, "shape": list(item.shape)}
        for item in header.tensors.values()
    ]
    reply["capabilities"] = capabilities.of_model(record, header)
    reply["modified_at"] = wire.local_time(record.created_at.timestamp())
    if record.requires:
        reply["requires"] = record.requires
    return reply


def _model_info(header: GgufHeader, verbose: bool) -> dict[str, Any]:
    hidden = ("general.name", "tokenizer.chat_template")
    info: dict[str, Any] = {}
    for key, raw in header.kv.items():
        if key not in hidden:
            value = _shortest(raw)
            info[key] = value if verbose or not isinstance(value, list) else None
    for key in header.arrays:
        info[key] = _array(header, key) if verbose else None
    info["general.parameter_count"] = header.parameter_count
    return {key: info[key] for key in sorted(info)}  # a map in Go, written in order


def _shortest(value: Any) -> Any:
    """A float stored in 32 bits, with no more digits than those bits hold, as Go writes it."""
    if isinstance(value, float) and float(numpy.float32(value)) == value:
        return float(str(numpy.float32(value)))
    return value


def _array(header: GgufHeader, key: str) -> list[Any]:
    if header.arrays[key].kind == GGUFValueType.STRING:
        return [item.decode("utf-8", "replace") for item in header.strings(key)]
    return list(header.numbers(key))


def _parameters(record: ModelRecord) -> str:
    lines = []
    for key, value in record.parameters.items():
        for item in value if isinstance(value, list) else [value]:
            lines.append(f"{key:<30} {_go_value(item)}")
    return "\n".join(lines)


def _go_value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else writer.scalar(value)


def modelfile(record: ModelRecord) -> str:
    """The Modelfile text, with the comment Ollama puts before it."""
    head = (
        '# Modelfile generated by "ollama show"\n'
        "# To build a new Modelfile based on this, replace FROM with:\n"
        f"# FROM {display(record)}\n\n"
    )
    # Ollama gives every model a template; this one leaves the prompt as it is.
    shown = record.model_copy(update={"template": record.template or "{{ .Prompt }}"})
    return head + writer.of_record(shown)
