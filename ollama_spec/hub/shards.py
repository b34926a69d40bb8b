"""Split models: `name-00001-of-00003.gguf` and its siblings are one model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_SHARD = re.compile(r"^(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)


def siblings(name: str) -> list[str]:
    """All file names of the model that `name` belongs to, in order; just itself when not split."""
    match = _SHARD.match(name)
    if not match:
        return [name]
    count = int(match["count"])
    suffix = name[-5:]
    return [f"{match['stem']}-{no:05}-of-{count:05}{suffix}" for no in range(1, count + 1)]


def paths_of(path: Path) -> list[Path]:
    return [path.with_name(name) for name in siblings(path.name)]


def first_only(names: Iterable[str]) -> list[str]:
    """Drop second and later shards, so that every model is named once."""
    kept = []
    for name in names:
        match = _SHARD.match(name)
        if not match or int(match["no"]) == 1:
            kept.append(name)
    return kept
