"""The lock of a model: exactly which bytes it was made of, so that anyone can make it again.

Lies beside the model's record as `<tag>.lock`; `export` prints it, `import` takes it in.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from ollama_spec import names, paths
from ollama_spec.errors import ConfigError, NotFoundError
from ollama_spec.profiles import Profile, Strict
from ollama_spec.store import Message, ModelStore


class LockedFile(Strict):
    file: str
    size: int = Field(ge=0, description="bytes")
    sha256: str | None = Field(default=None, description="None: the hub only had a git id")


class LockedModel(Strict):
    """One model of a repository at a commit; several files when it is split."""

    repo: str
    revision: str
    files: list[LockedFile] = Field(min_length=1)


class Lock(Strict):
    version: Literal[1] = 1
    name: str
    target: LockedModel
    drafter: LockedModel | None = None
    projector: LockedModel | None = None
    speculator: LockedModel | None = None
    min_tag: int | None = Field(default=None, description="first llama.cpp build for the pair")
    built_for: str | None = Field(default=None, description="llama.cpp tag of the runner in use")
    template: str | None = None
    system: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    messages: list[Message] = Field(default_factory=list)
    license: list[str] = Field(default_factory=list)
    renderer: str | None = None
    parser: str | None = None
    profile: Profile = Profile()
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))

    def models(self) -> dict[str, LockedModel]:
        """The models by role, those there are."""
        roles = ("target", "drafter", "projector", "speculator")
        return {role: model for role in roles if (model := getattr(self, role)) is not None}

    def same_content(self, other: Lock) -> bool:
        """Whether both describe the same bytes with the same settings, whenever they were made."""
        unlike = {"created_at", "built_for", "name"}
        return self.model_dump(exclude=unlike) == other.model_dump(exclude=unlike)


def dump(lock: Lock) -> str:
    values = lock.model_dump(mode="json", exclude_defaults=True) | {"version": lock.version}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def load(text: str, where: str) -> Lock:
    """Read a lock; raises ConfigError naming `where` and what is wrong."""
    try:
        return Lock.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "it"
        raise ConfigError(
            f"{where} is not a lock: {place}: {first['msg']}",
            hint="locks come from `ollama-spec export NAME`",
        ) from error


def path_of(name: str) -> Path:
    """Where the lock of a model of ours lies: beside its record."""
    key = names.parse(name).key
    return ModelStore().root.joinpath(*key[:3], f"{key[3]}.lock")


def imported_path(name: str) -> Path:
    key = names.parse(name).key
    return paths.data_dir() / "locks" / Path(*key[:3]) / f"{key[3]}.lock"


def save(lock: Lock) -> Path:
    path = path_of(lock.name)
    paths.atomic_write(path, dump(lock).encode())
    return path


def find(name: str) -> Lock | None:
    """The lock beside a model of ours, or None."""
    path = path_of(name)
    return load(path.read_text(), str(path)) if path.is_file() else None


def get(name: str) -> Lock:
    """The lock that `pull --locked NAME` must reproduce: an imported one, else the model's own."""
    for path in (imported_path(name), path_of(name)):
        if path.is_file():
            return load(path.read_text(), str(path))
    raise NotFoundError(
        f"there is no lock for {name}",
        hint="get one with `ollama-spec export` elsewhere and `ollama-spec import FILE` here",
    )
