"""From a record and a request's options to what its child runs with."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ollama_spec import gguf
from ollama_spec.config import Config
from ollama_spec.errors import PairingError
from ollama_spec.gguf import GgufHeader
from ollama_spec.runner import argv
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.options import LOAD_KEYS
from ollama_spec.store import ModelRecord

# Contract 3.4: these cannot share a context between sequences.
_ONE_AT_A_TIME = {
    "mllama", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next", "lfm2", "lfm2moe",
    "nemotron_h", "nemotron_h_moe", "nemotron_h_omni",
}  # fmt: skip
_GIB = 1024**3


def header_of(record: ModelRecord) -> GgufHeader:
    """Header of the target; ApiError 500 when the file is gone or damaged."""
    try:
        return gguf.read_header(record.target.path)
    except PairingError as error:
        raise ApiError(500, error.message) from error


def spec_kind(record: ModelRecord) -> str | None:
    """`--spec-type` for a record, from the headers; None when there is nothing to draft with."""
    drafter = gguf.read_header(record.drafter.path) if record.drafter else None
    return argv.spec_type(record, gguf.read_header(record.target.path), drafter)


def plan(
    record: ModelRecord, options: Mapping[str, Any], shift: bool | None, config: Config
) -> argv.Wanted:
    """What the child must be; equal plans share a child."""
    header = header_of(record)
    drafter = None
    if record.drafter:
        try:
            drafter = gguf.read_header(record.drafter.path)
        except PairingError as error:
            raise ApiError(500, error.message) from error
    kind = argv.spec_type(record, header, drafter)
    n_max = options.get("draft_num_predict", record.profile.spec.n_max)
    parallel = max(record.profile.runner.parallel, config.num_parallel)
    return argv.Wanted(
        record=record,
        num_ctx=context_length(record, options, header, config),
        parallel=1 if header.arch in _ONE_AT_A_TIME else parallel,
        shift=header.arch != "deepseek2" if shift is None else shift,
        load={key: options[key] for key in LOAD_KEYS[1:] if key in options},
        spec_type=kind if n_max > 0 else None,
        n_max=n_max,
        num_keep=options["num_keep"],
        embedding=header.pooling_type is not None,
        automatic_ctx=not _asked_ctx(record, options, config),
    )


def context_length(
    record: ModelRecord, options: Mapping[str, Any], header: GgufHeader, config: Config
) -> int:
    """Contract 3.4: asked for, else by memory; never above what the model was trained for."""
    asked = _asked_ctx(record, options, config) or by_memory(gpu_memory())
    asked = max(asked, 2048 if record.projector else 4)
    return min(asked, header.context_length) if header.context_length else asked


def _asked_ctx(record: ModelRecord, options: Mapping[str, Any], config: Config) -> int:
    asked = options.get("num_ctx") or record.profile.runner.num_ctx or config.context_length
    return int(asked)


def by_memory(gpu_bytes: int) -> int:
    if gpu_bytes >= 47 * _GIB:
        return 262144
    return 32768 if gpu_bytes >= 23 * _GIB else 4096


@lru_cache(maxsize=1)
def gpu_memory() -> int:
    """Bytes of all NVIDIA GPUs together; 0 where there is none."""
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
        return sum(int(line) for line in done.stdout.split()) * 1024**2
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0
