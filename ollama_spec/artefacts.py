"""The store of built runners: `build` publishes into it, `runner` picks from it.

data/artefacts/<key>/manifest.json, bin/llama-server, bin/llama-quantize, ...
data/artefacts/current -> <key>      (the one in use; `previous` is what rollback returns to)
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, ValidationError

from ollama_spec import paths
from ollama_spec.errors import ArtefactUnusable, NotFoundError
from ollama_spec.profiles import Strict


class Manifest(Strict):
    """What an artefact is; written last, so a folder without it is not an artefact."""

    key: str
    tag: str = Field(description="llama.cpp tag, e.g. b10488")
    commit: str
    source: str = Field(description="where the source came from")
    overlay: str | None = Field(description="hash of runner_src; None for a stock build")
    engine: str = Field(description="native, thin or docker")
    backend: str = "cpu"
    cuda_arch: list[str] = Field(default_factory=list)
    compat: bool = Field(default=False, description="Ollama's compat layer is in")
    flags: list[str] = Field(description="long options that --help lists")
    compiler: str = ""
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    built_seconds: float = 0.0


class Artefact(Strict):
    folder: Path
    manifest: Manifest

    @property
    def server(self) -> Path:
        return self.folder / "bin" / "llama-server"

    @property
    def quantize(self) -> Path:
        return self.folder / "bin" / "llama-quantize"


class ArtefactStore:
    def __init__(self, root: Path | None = None) -> None:
        self.root = root or paths.data_dir() / "artefacts"

    def list(self) -> list[Artefact]:
        """All complete artefacts, newest first."""
        found = [
            self._read(path.parent)
            for path in self.root.glob("*/manifest.json")
            if not path.parent.is_symlink()
        ]
        return sorted(found, key=lambda item: item.manifest.created_at, reverse=True)

    def get(self, key: str) -> Artefact:
        """By full key or an unambiguous beginning of it."""
        matches = [item for item in self.list() if item.manifest.key.startswith(key)]
        exact = [item for item in matches if item.manifest.key == key]
        if exact:
            return exact[0]
        if len(matches) != 1:
            problem = "no runner" if not matches else "more than one runner"
            raise NotFoundError(
                f"{problem} matches {key!r}", hint="`ollama-spec build list` shows their keys"
            )
        return matches[0]

    def current(self) -> Artefact | None:
        return self._linked("current")

    def previous(self) -> Artefact | None:
        return self._linked("previous")

    def _linked(self, link: str) -> Artefact | None:
        path = self.root / link
        if not (path / "manifest.json").is_file():
            return None
        return self._read(path.resolve())

    def use(self, artefact: Artefact) -> None:
        """Make it the one in use, atomically; the one before stays for rollback."""
        current = self.current()
        if current and current.manifest.key != artefact.manifest.key:
            self._point("previous", current.manifest.key)
        self._point("current", artefact.manifest.key)

    def _point(self, link: str, key: str) -> None:
        paths.ensure(self.root)
        temporary = self.root / f".{link}.{os.getpid()}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(key)
        temporary.replace(self.root / link)

    def staging(self, key: str) -> Path:
        """A fresh folder beside the artefacts, so that publishing is one rename."""
        folder = self.root / f".staging-{key}-{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        return paths.ensure(folder / "bin").parent

    def publish(self, staged: Path, manifest: Manifest) -> Artefact:
        """Give a staged, self-tested folder its name. An artefact of the same key is replaced."""
        paths.atomic_write(staged / "manifest.json", manifest.model_dump_json(indent=2).encode())
        final = self.root / manifest.key
        retired = self.root / f".retired-{manifest.key}-{os.getpid()}"
        if final.exists():
            final.rename(retired)
        staged.rename(final)
        shutil.rmtree(retired, ignore_errors=True)
        return Artefact(folder=final, manifest=manifest)

    def remove(self, artefact: Artefact) -> None:
        current = self.current()
        if current and current.manifest.key == artefact.manifest.key:
            raise ArtefactUnusable(
                f"{artefact.manifest.key} is in use",
                hint="choose another with `ollama-spec build use KEY` first",
            )
        shutil.rmtree(artefact.folder)

    def _read(self, folder: Path) -> Artefact:
        try:
            manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
        except ValidationError as error:
            raise ArtefactUnusable(
                f"damaged manifest in {folder}", hint=f"remove the folder {folder} and build again"
            ) from error
        return Artefact(folder=folder, manifest=manifest)
