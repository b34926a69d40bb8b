"""Which llama.cpp tag each Ollama release carries, and which tags have a source in the registry."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from pydantic import Field

from ollama_spec.profiles import Strict


class TagTable(Strict):
    releases: dict[str, str] = Field(description="Ollama version -> llama.cpp tag")
    commits: dict[str, str] = Field(description="llama.cpp tag -> commit (short or full)")
    sdists: list[int] = Field(description="llama.cpp build numbers the registry had an sdist of")


@cache
def table() -> TagTable:
    path = Path(__file__).with_name("tags.yaml")
    return TagTable.model_validate(yaml.safe_load(path.read_text()))


def known_sdists() -> list[int]:
    return table().sdists
