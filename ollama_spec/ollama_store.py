"""A read-only view of Ollama's model folder (contract 6): manifests, blobs, who may read them."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ollama_spec import names
from ollama_spec.errors import OllamaSpecError
from ollama_spec.profiles import WeightFile

_MEDIA = "application/vnd.ollama.image."
_SERVICE_STORE = Path("/usr/share/ollama/.ollama/models")
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})", re.IGNORECASE)


class Unreadable(OllamaSpecError):
    """The folder is there, and this user may not read it."""


@dataclass(frozen=True)
class Layer:
    kind: str  # model, draft, projector, template, system, params, ...
    digest: str  # sha256:<hex>
    size: int


@dataclass(frozen=True)
class StoredModel:
    """One manifest, with the small layers read."""

    root: Path
    layers: tuple[Layer, ...]
    config: dict[str, Any]

    def layer(self, kind: str) -> Layer | None:
        """The last layer of a kind, which is the one Ollama uses."""
        found = [layer for layer in self.layers if layer.kind == kind]
        return found[-1] if found else None

    def weight(self, kind: str) -> WeightFile | None:
        """A weights layer ("model", "draft", "projector") as a file of Ollama's."""
        layer = self.layer(kind)
        if layer is None:
            return None
        return WeightFile(
            path=blob_path(self.root, layer.digest),
            size=layer.size,
            sha256=layer.digest.partition(":")[2],
        )

    def text(self, kind: str) -> str | None:
        layer = self.layer(kind)
        return blob_path(self.root, layer.digest).read_text() if layer else None

    def json(self, kind: str) -> Any:
        text = self.text(kind)
        return json.loads(text) if text else None


def blob_path(root: Path, digest: str) -> Path:
    return root / "blobs" / digest.replace(":", "-", 1)


def root_of_modelfile(text: str) -> Path | None:
    """The store a running server uses, from the `FROM …/blobs/sha256-…` of its own Modelfile."""
    match = re.search(r"^FROM\s+(.+)[/\\]blobs[/\\]sha256-[0-9a-f]{64}\s*$", text, re.MULTILINE)
    return Path(match[1].strip('"')) if match else None


def candidates() -> list[Path]:
    """Where Ollama may keep its models on this machine, the likeliest first."""
    chosen = os.environ.get("OLLAMA_MODELS")
    found = [Path(chosen)] if chosen else []
    return [*found, Path.home() / ".ollama" / "models", _SERVICE_STORE]


class OllamaStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def local(cls) -> OllamaStore | None:
        """The first candidate that is there; None when Ollama keeps its models elsewhere."""
        for root in candidates():
            if _is_dir(root / "manifests"):
                return cls(root)
        return None

    def find(self, text: str) -> StoredModel | None:
        """The manifest of a name in any spelling; raises Unreadable, saying what is in the way."""
        path = self._manifest_path(text)
        if path is None:
            return None
        manifest = json.loads(self._read(path))
        layers = tuple(
            Layer(
                str(item.get("mediaType", "")).removeprefix(_MEDIA),
                str(item.get("digest", "")).replace("-", ":", 1),
                int(item.get("size", 0)),
            )
            for item in manifest.get("layers") or []
        )
        config_digest = str((manifest.get("config") or {}).get("digest", ""))
        config: dict[str, Any] = {}
        if _DIGEST.fullmatch(config_digest):
            config = json.loads(self._read(blob_path(self.root, config_digest)))
        return StoredModel(self.root, layers, config)

    def _manifest_path(self, text: str) -> Path | None:
        try:
            parts = names.parse(names.parse_reference(text).base).key
        except names.InvalidName:
            return None
        folder = self.root / "manifests"
        require_readable(folder, executable=True)
        for part in parts:  # the spelling on disk is whoever's created it
            found = [entry for entry in _entries(folder) if entry.name.lower() == part]
            if not found:
                return None
            folder = found[0]
        return folder if folder.is_file() else None

    def _read(self, path: Path) -> str:
        require_readable(path)
        return path.read_text()

    def require_weights(self, model: StoredModel) -> None:
        """Raise Unreadable unless this process can read every weights file of the model."""
        for layer in model.layers:
            if layer.kind in ("model", "draft", "projector"):
                require_readable(blob_path(self.root, layer.digest))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a parent that may not be entered: it is there, find() will explain
        return True


@dataclass(frozen=True)
class Reader:
    """Who wants to read: a user and all the groups they are in."""

    uid: int
    gids: frozenset[int]

    @classmethod
    def current(cls) -> Reader:
        return cls(os.geteuid(), frozenset([*os.getgroups(), os.getegid()]))

    @property
    def name(self) -> str:
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    def may(self, facts: os.stat_result, bit: int) -> bool:
        """Whether mode bits grant `bit` (4 read, 1 enter); root may always."""
        if self.uid == 0:
            return True
        if facts.st_uid == self.uid:
            return bool(facts.st_mode >> 6 & bit)
        if facts.st_gid in self.gids:
            return bool(facts.st_mode >> 3 & bit)
        return bool(facts.st_mode & bit)


def require_readable(path: Path, *, executable: bool = False, reader: Reader | None = None) -> None:
    """Raise Unreadable naming the path component that blocks the user and the least change.

    Nothing is changed. A path that does not exist is no concern of this function.
    """
    who = reader or Reader.current()
    for component in [*reversed(path.parents), path]:
        try:
            facts = component.stat()
        except PermissionError:
            return  # the folder above was already judged by its own bits: an ACL decides
        except OSError:
            return
        last = component == path
        bit = 4 if last and not executable else 1
        if not who.may(facts, bit):
            raise _blocked(component, facts, who, bit)


def _blocked(path: Path, facts: os.stat_result, who: Reader, bit: int) -> Unreadable:
    owner, group = _user(facts.st_uid), _group(facts.st_gid)
    verb = "enter" if bit == 1 else "read"
    if facts.st_mode >> 3 & bit and facts.st_gid != 0:
        change = f"sudo usermod -aG {group} {who.name}` and log in again"
    else:
        letter = "x" if bit == 1 else "r"
        change = f"sudo setfacl -m u:{who.name}:{letter} {path}`"
    mode = stat.filemode(facts.st_mode)
    return Unreadable(
        f"user {who.name} may not {verb} {path} ({mode}, owner {owner}, group {group})",
        hint=f"the smallest change: `{change}; ollama-spec never changes permissions itself",
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
