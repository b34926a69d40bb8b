"""What a child writes: kept in a file, watched for signs of life, errors and memory figures.

A file, not a pipe: a grandchild that holds the other end cannot make us wait, and a slow reader
cannot block the child.
"""

from __future__ import annotations

import re
from pathlib import Path

from ollama_spec import paths

TAIL = 8 * 1024  # bytes of error text kept for messages
ROTATE_AT = 16 * 1024 * 1024

# Contract 7.4: lines worth showing to a user.
_ERROR_MARKS = (
    "error:",
    "Error:",
    "fatal error:",
    "panic:",
    "CUDA error",
    "ROCm error",
    "cudaMalloc failed",
    '"ERR"',
    "error loading model",
    "GGML_ASSERT",
    "llama_init_from_model:",
    "failed to load",
    "failed to open",
    "terminate called",
)
_OUT_OF_MEMORY = (
    "out of memory",
    "out of device memory",
    "cudamalloc failed",
    "hipmalloc failed",
    "failed to allocate",
    "allocation failed",
    "not enough memory",
    "insufficient memory",
    "vk_error_out_of_device_memory",
    "erroroutofmemory",
)
_BUFFER = re.compile(
    r"(\S+)\s+(?:model|KV|compute|output|RS)\s+buffer size\s*=\s*([0-9.]+)\s*MiB", re.IGNORECASE
)
_ON_CPU = re.compile(r"^(CPU.*|BLAS|.*_Host)$")


class ChildLog:
    """The log of one child, from the byte where it began."""

    def __init__(self, path: Path) -> None:
        self.path = path
        paths.ensure(path.parent)
        if path.exists() and path.stat().st_size > ROTATE_AT:
            path.replace(path.with_suffix(".log.1"))
        self._start = path.stat().st_size if path.exists() else 0

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def limit(self) -> None:
        """Empty the file when it is too long; the child appends, so it goes on at the start."""
        if self.size() > ROTATE_AT:
            with self.path.open("r+b") as file:
                file.truncate(0)
            self._start = 0

    def text(self) -> str:
        try:
            with self.path.open("rb") as file:
                file.seek(self._start)
                return file.read(ROTATE_AT).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def errors(self) -> str:
        """The lines that look like errors, at most TAIL bytes, newest kept."""
        lines = [line.strip() for line in self.text().splitlines() if _is_error(line)]
        return "\n".join(lines)[-TAIL:]

    def last_lines(self, count: int = 3) -> str:
        lines = [line.strip() for line in self.text().splitlines() if line.strip()]
        return "\n".join(lines[-count:])[-TAIL:]

    def out_of_memory(self) -> bool:
        return has_out_of_memory(self.text())

    def memory(self) -> tuple[int, int]:
        """Bytes of all buffers the child reported, and of those on a GPU."""
        total = on_gpu = 0.0
        for device, size in _BUFFER.findall(self.text()):
            total += float(size)
            if not _ON_CPU.match(device):
                on_gpu += float(size)
        return int(total * 1024**2), int(on_gpu * 1024**2)


def has_out_of_memory(text: str) -> bool:
    lowered = text.lower()
    return any(phrase in lowered for phrase in _OUT_OF_MEMORY)


def _is_error(line: str) -> bool:
    return any(mark in line for mark in _ERROR_MARKS) or has_out_of_memory(line)
