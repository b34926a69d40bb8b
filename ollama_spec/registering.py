"""Give a fetched pair to the real Ollama, then use its copy and drop ours."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ollama_spec import ollama_store, output
from ollama_spec.errors import NotFoundError, OllamaSpecError
from ollama_spec.hub import shards
from ollama_spec.hub.progress import Progress
from ollama_spec.ollama_api import OllamaApi, OllamaError
from ollama_spec.ollama_store import OllamaStore, StoredModel
from ollama_spec.profiles import WeightFile
from ollama_spec.store import ModelRecord, ModelStore, weights_dir

# What Ollama 0.32 can draft with; it starts any other drafter as draft-mtp, which ends its runner.
OLLAMA_DRAFTS = {"draft-mtp", "draft-dflash"}
_LAYERS = {"target": "model", "drafter": "draft", "projector": "projector"}


def for_ollama(
    record: ModelRecord, files: dict[str, list[WeightFile]]
) -> tuple[ModelRecord, dict[str, list[WeightFile]]]:
    """The part of a pair that Ollama can run: no drafter that would break the model there."""
    if "drafter" not in files or record.profile.spec.type in OLLAMA_DRAFTS:
        return record, files
    output.note(
        f"note: Ollama itself cannot draft by {record.profile.spec.type}: it gets the target "
        "alone and answers without a drafter; `ollama-spec serve` drafts"
    )
    parameters = {k: v for k, v in record.parameters.items() if k != "draft_num_predict"}
    kept = {role: entries for role, entries in files.items() if role != "drafter"}
    return record.model_copy(update={"parameters": parameters}), kept


def register(api: OllamaApi, record: ModelRecord, files: dict[str, list[WeightFile]]) -> None:
    """Upload the weights and create `record.name` in Ollama; works with a remote one as well."""
    digests = {file.path: digest_of(file) for role in _LAYERS for file in files.get(role, [])}
    for path, digest in digests.items():
        if not api.has_blob(digest):
            with Progress(f"to Ollama: {path.name}", path.stat().st_size) as progress:
                api.upload(path, digest, progress.add)
    api.create(_request(record, files, digests), teller())
    _drop_uploads(api, record.name, [digests[file.path] for file in files["target"]])


def digest_of(file: WeightFile) -> str:
    if file.sha256:
        return f"sha256:{file.sha256}"
    with file.path.open("rb") as content:
        return f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"


def _request(
    record: ModelRecord, files: dict[str, list[WeightFile]], digests: dict[Path, str]
) -> dict[str, Any]:
    def named(*roles: str) -> dict[str, str]:
        return {f.path.name: digests[f.path] for role in roles for f in files.get(role, [])}

    request: dict[str, Any] = {
        "model": record.name,
        "files": named("target", "projector"),
        "parameters": record.parameters,
        "stream": True,
    }
    if drafts := named("drafter"):
        request["draft_files"] = drafts
    texts = {
        "template": record.template,
        "system": record.system,
        "renderer": record.renderer,
        "parser": record.parser,
        "requires": record.requires,
    }
    request |= {key: text for key, text in texts.items() if text}
    if record.license:
        request["license"] = record.license
    if record.messages:
        request["messages"] = [message.model_dump() for message in record.messages]
    return request


def teller() -> Callable[[dict[str, Any]], None]:
    """Says each status of `create` once."""
    said: set[str] = set()

    def tell(status: dict[str, Any]) -> None:
        text = str(status.get("status", ""))
        if text and text not in said:
            said.add(text)
            output.note(f"Ollama: {text}")

    return tell


def _drop_uploads(api: OllamaApi, name: str, digests: list[str]) -> None:
    """Let Ollama delete uploads it rewrote: it would keep them until it is started again.

    Ollama deletes unused layers of a model that is deleted, and it keeps a drafter as uploaded. So
    a model that has the upload as its drafter is made and deleted.
    """
    stored = api.show(name).get("modelfile", "")
    for digest in digests:
        if digest.replace(":", "-") in stored or not api.has_blob(digest):
            continue
        scratch = f"ollama-spec-scratch:{digest[7:19]}"
        request = {"model": scratch, "from": name, "draft_files": {"upload.gguf": digest}}
        try:
            api.create(request, lambda _: None)
            api.delete(scratch)
        except (OllamaError, NotFoundError):
            output.note(
                "Ollama keeps the upload beside its own copy until it is started again; "
                "it deletes it then"
            )


def use_ollamas_copy(api: OllamaApi, record: ModelRecord) -> ModelRecord:
    """The record with Ollama's blobs instead of downloads.

    Raises OllamaSpecError when this process cannot read them (remote, container, permissions).
    """
    shown = api.show(record.name)
    root = ollama_store.root_of_modelfile(str(shown.get("modelfile", "")))
    if root is None or not root.exists():
        raise OllamaSpecError(
            f"Ollama at {api.base} keeps its models where this machine cannot see them",
            hint="the downloads stay for `ollama-spec serve`; pass --no-register to skip Ollama",
        )
    store = OllamaStore(root)
    stored = store.find(record.name)
    if stored is None:
        raise OllamaSpecError(f"{root} does not hold {record.name}, which Ollama lists")
    store.require_weights(stored)
    return repointed(record, stored)


def repointed(record: ModelRecord, stored: StoredModel) -> ModelRecord:
    """The record with the files and settings of Ollama's manifest; its own settings win."""
    changes: dict[str, Any] = {
        role: _origin(stored.weight(layer), getattr(record, role))
        for role, layer in _LAYERS.items()
    }
    changes["parameters"] = {**(stored.json("params") or {}), **record.parameters}
    for key in ("template", "system"):
        changes[key] = getattr(record, key) or stored.text(key)
    for key in ("renderer", "parser"):
        changes[key] = getattr(record, key) or stored.config.get(key)
    return record.model_copy(update=changes)


def _origin(blob: WeightFile | None, fetched: WeightFile | None) -> WeightFile | None:
    """Ollama's file, with where it once came from."""
    if blob is None or fetched is None:
        return blob or fetched
    origin = {"repo": fetched.repo, "file": fetched.file, "revision": fetched.revision}
    return blob.model_copy(update=origin)


def drop_downloads(files: dict[str, list[WeightFile]]) -> int:
    """Delete downloads that no record of ours needs; returns the bytes freed."""
    needed = {
        part
        for record in ModelStore().list()
        for entry in (
            record.target,
            record.drafter,
            record.projector,
            record.profile.prefill.speculator,
        )
        if entry
        for part in shards.paths_of(entry.path)
    }
    freed = 0
    for entries in files.values():
        for entry in entries:
            if entry.path not in needed and entry.path.is_file():
                freed += entry.path.stat().st_size
                entry.path.unlink()
                entry.path.with_name(f"{entry.path.name}.lock").unlink(missing_ok=True)
                _prune(entry.path.parent)
    return freed


def _prune(folder: Path) -> None:
    root = weights_dir()
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
