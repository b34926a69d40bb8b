"""Our own model records: one JSON file per name, laid out like Ollama's manifests.

Records point at weights; they never copy them. Files below `weights_dir()` are ours (fetched by
`pull`) and are swept when no record names them any more; all others belong to the user.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ollama_spec import names, paths
from ollama_spec.errors import NotFoundError, OllamaSpecError
from ollama_spec.hub import shards
from ollama_spec.profiles import Profile, Strict, WeightFile


class Message(Strict):
    role: str
    content: str


class ModelRecord(Strict):
    """Everything needed to serve a name. Modelfile values are typed as Ollama types them."""

    name: str
    target: WeightFile
    drafter: WeightFile | None = None
    projector: WeightFile | None = None
    template: str | None = None
    system: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    messages: list[Message] = Field(default_factory=list)
    license: list[str] = Field(default_factory=list)
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None
    profile: Profile = Profile()
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))

    @property
    def digest(self) -> str:
        """64 hex digits that change whenever the record does (clients show the first 12)."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all weights."""
        files = (self.target, self.drafter, self.projector, self.profile.prefill.speculator)
        return sum(file.size for file in files if file)


Records = list[ModelRecord]  # `ModelStore.list` hides the builtin inside the class
Problems = list[OllamaSpecError]


def weights_dir() -> Path:
    return paths.data_dir() / "weights"


class ModelStore:
    def __init__(self, root: Path | None = None) -> None:
        self.root = root or paths.data_dir() / "models"

    def _path(self, name: names.ModelName) -> Path:
        # Lower case on disk: names compare without case, file systems may not.
        return self.root.joinpath(*name.key[:3], f"{name.key[3]}.json")

    def put(self, record: ModelRecord) -> None:
        """Publish a record under its name, atomically replacing an older one."""
        path = self._path(names.parse(record.name))
        paths.atomic_write(path, (record.model_dump_json(indent=2) + "\n").encode())

    def find(self, text: str) -> ModelRecord | None:
        """The record for any spelling of a name, or None; an invalid name is None as well."""
        try:
            path = self._path(names.parse(names.parse_reference(text).base))
        except names.InvalidName:
            return None
        try:
            return _read(path)
        except FileNotFoundError:
            return None

    def get(self, text: str) -> ModelRecord:
        record = self.find(text)
        if record is None:
            raise NotFoundError(
                f"model '{text}' not found",
                hint="`ollama-spec list` shows the models there are",
            )
        return record

    def list(self) -> list[ModelRecord]:
        """All readable records, newest first. A damaged one is reported when it is asked for."""
        return self.survey()[0]

    def survey(self) -> tuple[Records, Problems]:
        """All readable records, newest first, and what is wrong with the others."""
        records: Records = []
        problems: Problems = []
        for path in sorted(self.root.glob("*/*/*/*.json")):
            try:
                records.append(_read(path))
            except OllamaSpecError as error:
                problems.append(error)
        return sorted(records, key=lambda record: record.created_at, reverse=True), problems

    def remove(self, text: str) -> ModelRecord:
        """Forget a name. Weights that `pull` fetched and nothing else names are deleted."""
        record = self.get(text)
        path = self._path(names.parse(record.name))
        path.unlink()
        for beside in (".lock", ".pulling"):
            path.with_suffix(beside).unlink(missing_ok=True)
        self._sweep(record)
        return record

    def _sweep(self, removed: ModelRecord) -> None:
        kept = {file for record in self.list() for file in _files(record)}
        owned = weights_dir().resolve()
        for file in _files(removed) - kept:
            if owned in file.resolve().parents:
                for part in shards.paths_of(file):
                    part.unlink(missing_ok=True)


def _files(record: ModelRecord) -> set[Path]:
    entries = (
        record.target,
        record.drafter,
        record.projector,
        record.profile.prefill.speculator,
    )
    return {entry.path for entry in entries if entry}


def _read(path: Path) -> ModelRecord:
    state = path.stat()
    return _parsed(path, state.st_ino, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _parsed(path: Path, _inode: int, _mtime: int) -> ModelRecord:
    """Remembered until the file is replaced: `serve` asks for every request."""
    try:
        return ModelRecord.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise OllamaSpecError(
            f"damaged model record {path}: {where}: {first['msg']}",
            hint="create or pull the model again",
        ) from error
