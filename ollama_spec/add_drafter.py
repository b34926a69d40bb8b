"""Give a drafter to a model that is in Ollama already: only the drafter is fetched.

Everything else (template, system text, parameters, renderer, parser) is the base model's, because
Ollama makes the new model from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ollama_spec import gguf, ollama_store, output, registering
from ollama_spec.errors import NotFoundError
from ollama_spec.hub import download, header
from ollama_spec.hub.client import Hub
from ollama_spec.hub.progress import Progress
from ollama_spec.modelfile import pairing
from ollama_spec.ollama_api import OllamaApi
from ollama_spec.ollama_store import OllamaStore, StoredModel
from ollama_spec.profiles import Profile, WeightFile
from ollama_spec.pull_steps import joined
from ollama_spec.pulling import Planner, Reference, default_profile
from ollama_spec.store import ModelRecord, ModelStore


@dataclass(frozen=True)
class Added:
    record: ModelRecord
    registered: bool  # False: Ollama cannot run this kind, so the pair is ours alone


def add(api: OllamaApi, hub: Hub, base: str, draft: Reference, name: str) -> Added:
    """Make `name` of Ollama's model `base` and the drafter; raises what pull raises."""
    stored = _stored(api, base)
    target = stored.weight("model")
    if target is None:
        raise NotFoundError(f"{base} has no weights here", hint="a cloud model cannot be paired")
    choice = Planner(hub).drafter(draft)
    header.refuse_foreign(choice.start, choice.label)
    files = {"drafter": [download.fetch(hub, choice.listing, file) for file in choice.files]}
    drafter = joined(files["drafter"])
    try:
        target_header, drafter_header = (
            gguf.read_header(target.path),
            gguf.read_header(drafter.path),
        )
        pairing.check_target(target_header)
        pairing.check_pair(target_header, drafter_header)
    except Exception:
        registering.drop_downloads(files)
        raise
    profile = default_profile(pairing.choose_spec_type(target_header, drafter_header))
    registered = profile.spec.type in registering.OLLAMA_DRAFTS
    if registered:
        _create(api, base, name, files["drafter"], profile)
        stored = _stored(api, name)
    else:
        output.note(
            f"note: Ollama itself cannot draft by {profile.spec.type}; {name} is served by "
            "`ollama-spec serve`"
        )
    record = registering.repointed(
        ModelRecord(name=name, target=target, drafter=drafter, profile=profile), stored
    )
    ModelStore().put(record)
    registering.drop_downloads(files)
    return Added(record, registered)


def _stored(api: OllamaApi, name: str) -> StoredModel:
    """Ollama's manifest of a model, readable weights included; raises Unreadable."""
    shown = str(api.show(name).get("modelfile", ""))
    root = ollama_store.root_of_modelfile(shown)
    found = None
    if root is not None:
        store = OllamaStore(root)
        found = store.find(name)
    if root is None or found is None:
        raise NotFoundError(
            f"the files of {name} are not on this machine, so the pair cannot be checked",
            hint="run this where Ollama runs, or `ollama-spec pull` both files here",
        )
    store.require_weights(found)
    return found


def _create(
    api: OllamaApi, base: str, name: str, files: list[WeightFile], profile: Profile
) -> None:
    digests = {file.path.name: registering.digest_of(file) for file in files}
    for file in files:
        with Progress(f"to Ollama: {file.path.name}", file.size) as progress:
            api.upload(file.path, digests[file.path.name], progress.add)
    request = {
        "model": name,
        "from": base,
        "draft_files": digests,
        "parameters": {"draft_num_predict": profile.spec.n_max},
        "stream": True,
    }
    api.create(request, registering.teller())
