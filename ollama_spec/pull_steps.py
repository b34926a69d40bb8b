"""The steps of a `pull` once it is planned: checks before the first byte, transfer, record."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from ollama_spec import gguf, output
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.errors import PairingError, SpaceError
from ollama_spec.hub import download
from ollama_spec.hub.client import Hub
from ollama_spec.modelfile import checks, pairing
from ollama_spec.profiles import WeightFile
from ollama_spec.pulling import Plan
from ollama_spec.store import ModelRecord, weights_dir

_SPARE = 64 * 1024 * 1024  # records, locks and the file system's own needs


def check_tag(plan: Plan) -> None:
    """Refuse a pair that the runner in use cannot run, before it is fetched."""
    runner = ArtefactStore().current()
    match = re.fullmatch(r"b(\d+)", runner.manifest.tag) if runner else None
    if match and plan.lock.min_tag and int(match[1]) < plan.lock.min_tag:
        raise PairingError(
            f"llama.cpp {match[0]} cannot run {plan.name}; needs >= b{plan.lock.min_tag}",
            hint="build a newer runner with `ollama-spec build`, then pull again",
        )


def check_space(plan: Plan, ollama_models: Path | None) -> None:
    """Refuse before the first byte unless every copy fits, also those Ollama makes meanwhile.

    Ollama stores the upload and a rewritten target side by side until the model is created.
    """
    needs: dict[int, tuple[Path, int]] = {}

    def need(folder: Path, size: int) -> None:
        there = _existing(folder)
        device = there.stat().st_dev
        needs[device] = (there, needs.get(device, (there, 0))[1] + size)

    need(weights_dir(), plan.to_fetch)
    if ollama_models:
        once = sum(c.size for role, c in plan.choices.items() if role != "speculator")
        need(ollama_models, once + plan.choices["target"].size)
    for folder, size in needs.values():
        free = shutil.disk_usage(folder).free
        if size and free < size + _SPARE:
            raise SpaceError(
                f"{plan.name} needs {output.human_size(size + _SPARE)} on the disk of {folder}, "
                f"{output.human_size(free)} are free",
                hint="free some space, choose a smaller quantisation, or use --no-register "
                "(Ollama's copy is not needed then)",
            )


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def fetch(hub: Hub, plan: Plan) -> dict[str, list[WeightFile]]:
    """All files by role, whole and with the hub's hash."""
    return {
        role: [download.fetch(hub, choice.listing, file) for file in choice.files]
        for role, choice in plan.choices.items()
    }


def check_pair(files: dict[str, list[WeightFile]]) -> None:
    """Read the fetched headers whole and refuse what does not fit; raises PairingError."""
    target = gguf.read_header(files["target"][0].path)
    pairing.check_target(target)
    if "drafter" in files:
        pairing.check_pair(target, gguf.read_header(files["drafter"][0].path))
    if "speculator" in files:
        pairing.check_vocabulary(target, gguf.read_header(files["speculator"][0].path))


def tell_memory(files: dict[str, list[WeightFile]]) -> None:
    """Say so when the pair needs more memory than is free now; it may be free later."""
    first = {role: gguf.read_header(entries[0].path) for role, entries in files.items()}
    room = checks.memory_of(first["target"], first.get("drafter"), first.get("speculator"))
    if room.verdict == "nowhere":
        output.note(
            f"note: it needs about {output.human_size(room.total)} of memory at {room.context} "
            f"tokens, {output.human_size(room.free_ram + room.free_gpu)} are free now"
        )


def record_of(plan: Plan, files: dict[str, list[WeightFile]]) -> ModelRecord:
    """The record of a fetched model that points at the downloads."""
    lock = plan.lock
    profile = lock.profile
    if "speculator" in files:
        prefill = profile.prefill.model_copy(update={"speculator": joined(files["speculator"])})
        profile = profile.model_copy(update={"prefill": prefill})
    return ModelRecord(
        name=lock.name,
        target=joined(files["target"]),
        drafter=joined(files["drafter"]) if "drafter" in files else None,
        projector=joined(files["projector"]) if "projector" in files else None,
        template=lock.template,
        system=lock.system,
        parameters=lock.parameters,
        messages=lock.messages,
        license=lock.license,
        renderer=lock.renderer,
        parser=lock.parser,
        profile=profile,
    )


def joined(files: list[WeightFile]) -> WeightFile:
    """One entry for a split model: the first shard's path, the size of all."""
    return files[0].model_copy(update={"size": sum(file.size for file in files)})


def listing_of(plan: Plan) -> list[dict[str, Any]]:
    """The files of a plan, for people and programs to read."""
    return [
        {
            "role": role,
            "repo": choice.listing.repo,
            "revision": choice.listing.revision,
            "file": file.path,
            "size": file.size,
            "sha256": file.sha256,
            "to_fetch": download.still_to_fetch(choice.listing, file),
        }
        for role, choice in plan.choices.items()
        for file in choice.files
    ]
