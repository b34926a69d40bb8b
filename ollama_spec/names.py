"""Ollama's model names: `[host/][namespace/]model[:tag]` (contract 0.5 and 6.4).

Comparison folds case; what a user typed keeps its spelling when shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_CLOUD_TAG = re.compile(r":[^/:]*-cloud$")


class InvalidName(ValueError):
    """Not a model name; the text is what Ollama's API answers."""


@dataclass(frozen=True)
class ModelName:
    host: str
    namespace: str
    model: str
    tag: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Equal for every spelling of one model."""
        return (
            self.host.lower(),
            self.namespace.lower(),
            self.model.lower(),
            self.tag.lower(),
        )

    @property
    def display(self) -> str:
        """Shortest form; the tag is always shown."""
        text = f"{self.model}:{self.tag}"
        if self.host.lower() != DEFAULT_HOST:
            return f"{self.host}/{self.namespace}/{text}"
        if self.namespace.lower() != DEFAULT_NAMESPACE:
            return f"{self.namespace}/{text}"
        return text

    @property
    def full(self) -> str:
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"

    @property
    def relative_path(self) -> PurePosixPath:
        """`host/namespace/model/tag`, as in Ollama's manifest folder."""
        return PurePosixPath(self.host, self.namespace, self.model, self.tag)


@lru_cache(maxsize=1024)
def parse(text: str) -> ModelName:
    """Parse a model name; raises InvalidName with Ollama's own wording."""
    rest = text.strip()
    if "://" in rest:
        rest = rest.split("://", 1)[1]
    tag = DEFAULT_TAG
    colon = rest.rfind(":")
    if colon > rest.rfind("/"):
        rest, tag = rest[:colon], rest[colon + 1 :]
    parts = rest.split("/")
    if len(parts) > 3:
        raise InvalidName("invalid model name")
    model = parts[-1]
    namespace = parts[-2] if len(parts) >= 2 else DEFAULT_NAMESPACE
    host = parts[-3] if len(parts) == 3 else DEFAULT_HOST
    valid = (
        _HOST.fullmatch(host)
        and _NAMESPACE.fullmatch(namespace)
        and _PART.fullmatch(model)
        and _PART.fullmatch(tag)
    )
    if not valid:
        raise InvalidName("invalid model name")
    return ModelName(host, namespace, model, tag)


@dataclass(frozen=True)
class ModelReference:
    """What a request's `model` field means: a name and an explicit source, if one was given."""

    base: str
    source: str | None  # "local", "cloud" or None


@lru_cache(maxsize=1024)
def parse_reference(raw: str) -> ModelReference:
    """Cut a source suffix (`:local`, `:cloud`, `:<tag>-cloud`) off a request's model text."""
    text = raw.strip()
    lowered = text.lower()
    base, source = text, None
    if lowered.endswith(":local"):
        base, source = text[:-6], "local"
    elif lowered.endswith(":cloud") or _CLOUD_TAG.search(lowered):
        base, source = text[:-6], "cloud"
    if source and re.search(r":(local|cloud)$|:[^/:]*-cloud$", base.lower()):
        raise InvalidName(f'use either :local or :cloud, not both: "{raw}"')
    return ModelReference(base, source)
