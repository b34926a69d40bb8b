"""The one place that prints. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def result(text: str) -> None:
    print(text, flush=True)


def result_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2, default=str, ensure_ascii=False), flush=True)


def note(text: str) -> None:
    """Progress and remarks: never part of a result."""
    print(text, file=sys.stderr, flush=True)


def is_tty() -> bool:
    return sys.stderr.isatty()


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns separated by three spaces, in the manner of `ollama list`."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def human_size(size: int) -> str:
    """Decimal units, as `ollama list` prints sizes."""
    value = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
