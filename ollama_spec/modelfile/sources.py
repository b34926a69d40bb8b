"""What FROM and DRAFT name: files by path (CASES 31), all shards of a split file, or a model."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ollama_spec import gguf, names
from ollama_spec.errors import ModelfileError, NotFoundError, PairingError
from ollama_spec.gguf import GgufHeader
from ollama_spec.modelfile.syntax import Instruction
from ollama_spec.ollama_store import OllamaStore, StoredModel
from ollama_spec.profiles import WeightFile
from ollama_spec.store import Message, ModelRecord, ModelStore

_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


def resolve(item: Instruction, base: Path) -> Path | None:
    """The existing path an instruction names: absolute, `~`, or relative to `base`; else None."""
    try:
        path = base / Path(item.value).expanduser()
        return path.resolve() if path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def single(path: Path, item: Instruction, file: str) -> Path:
    """The path itself, or the one GGUF of a folder (of a split file its first shard)."""
    if not path.is_dir():
        return path
    inside = [one for one in sorted(path.glob("*.gguf")) if _number(one) in (None, 1)]
    if len(inside) != 1:
        raise ModelfileError(
            f"{file}:{item.line}: folder {item.value!r} holds {len(inside)} GGUF files, not one",
            hint="name the file itself",
        )
    return inside[0].resolve()


def _number(path: Path) -> int | None:
    match = _SHARD.match(path.name)
    return int(match["number"]) if match else None


def shards(header: GgufHeader) -> list[Path]:
    """All files of a model, the first first; PairingError when one is missing or misplaced."""
    if header.split_count == 1:
        return [header.path]
    match = _SHARD.match(header.path.name)
    if match is None:
        raise PairingError(
            f"{header.path} is shard {header.split_no + 1} of {header.split_count}, under a name "
            "that does not say so",
            hint="give the shards their names …-00001-of-0000N.gguf back",
        )
    found = [
        header.path.with_name(f"{match['stem']}-{number:05}-of-{header.split_count:05}.gguf")
        for number in range(1, header.split_count + 1)
    ]
    if header.split_no:
        raise PairingError(
            f"{header.path} is shard {header.split_no + 1} of {header.split_count}",
            hint=f"name the first one: {found[0].name}",
        )
    for shard in found:
        if not shard.exists():
            raise PairingError(
                f"shard {shard.name} is missing beside {header.path.name}",
                hint="download it into the same folder",
            )
        gguf.read_header(shard)  # whole, or an error
    return found


def weight(header: GgufHeader) -> WeightFile:
    """A file that stays where it is; a split one has the size of all its shards and no hash."""
    files = shards(header)
    digest = None
    if len(files) == 1:
        with header.path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    size = sum(path.stat().st_size for path in files)
    return WeightFile(path=header.path, size=size, sha256=digest)


def named_model(item: Instruction, file: str) -> ModelRecord:
    """The model FROM names: one of ours, else one in Ollama's store on this machine."""
    # A path that does not exist must not be reported as an odd model name (CASES 31).
    if item.value.endswith(".gguf") or item.value.startswith((".", "/", "~")):
        raise PairingError(
            f"{file}:{item.line}: no such file: {item.value}",
            hint="paths are relative to the Modelfile's folder",
        )
    store = OllamaStore.local()
    found = ModelStore().find(item.value)
    if found is None and store is not None:
        stored = store.find(item.value)
        found = _of_ollama(item.value, store, stored) if stored else None
    if found is None:
        raise NotFoundError(
            f"{file}:{item.line}: model {item.value!r} not found",
            hint="FROM takes a GGUF file, or a model that `ollama-spec list` or `ollama list` "
            "shows; get it with `ollama pull` first",
        )
    return found


def _of_ollama(name: str, store: OllamaStore, stored: StoredModel) -> ModelRecord | None:
    """Ollama's blobs, used where they are; all settings carried over (CASES 11)."""
    target = stored.weight("model")
    if target is None:
        return None
    store.require_weights(stored)
    config = stored.config
    return ModelRecord(
        name=names.parse(name).display,
        target=target,
        drafter=stored.weight("draft"),
        projector=stored.weight("projector"),
        template=stored.text("template"),
        system=stored.text("system"),
        parameters=stored.json("params") or {},
        messages=[Message.model_validate(one) for one in stored.json("messages") or []],
        license=[text] if (text := stored.text("license")) else [],
        renderer=config.get("renderer") or None,
        parser=config.get("parser") or None,
        requires=config.get("requires") or None,
    )
