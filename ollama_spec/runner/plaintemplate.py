"""The `template` of a generate request, where it only puts texts in (contract 8.3).

Anything else needs Go's own template engine, which only the real Ollama has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_FIELD = re.compile(r"\{\{-?\s*\.(System|Prompt)\s*-?\}\}")
_RESPONSE = re.compile(r"\{\{-?\s*\.Response\s*-?\}\}")
UNSUPPORTED = (
    "only templates made of {{ .System }}, {{ .Prompt }} and {{ .Response }} are served here; "
    "use the real Ollama for others"
)


def supported(text: str) -> bool:
    return "{{" not in _RESPONSE.sub("", _FIELD.sub("", text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """The prompt: the text up to where the answer goes."""
    before = _RESPONSE.split(text)[0]
    return _FIELD.sub(lambda match: values[match[1]], before)
