"""From a Modelfile and local GGUFs to a checked record; all is checked before any is written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ollama_spec import gguf, names
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.errors import ModelfileError, PairingError
from ollama_spec.gguf import GgufHeader
from ollama_spec.modelfile import pairing
from ollama_spec.modelfile.parser import Modelfile, parse
from ollama_spec.modelfile.sources import named_model, resolve, single, weight
from ollama_spec.profiles import Profile, SpecSettings
from ollama_spec.store import Message, ModelRecord, ModelStore


def create_model(
    name: str, text: str, *, base: Path, file: str = "Modelfile", profile: Profile | None = None
) -> ModelRecord:
    """Check the model that Modelfile `text` describes and publish it under `name`.

    Paths are relative to `base`, the Modelfile's folder. Raises ModelfileError, PairingError.
    """
    record = plan_model(name, text, base=base, file=file, profile=profile)
    ModelStore().put(record)
    return record


def plan_model(
    name: str, text: str, *, base: Path, file: str = "Modelfile", profile: Profile | None = None
) -> ModelRecord:
    """As create_model, without publishing."""
    shown = _valid_name(name)
    parsed = parse(text, file)
    if parsed.adapter:
        raise ModelfileError(
            f"{file}:{parsed.adapter.line}: ADAPTER is not served by ollama-spec",
            hint="merge the adapter into the model, or create it with Ollama itself",
        )
    target, projector, inherited = _sources(parsed, base, file)
    drafter = _drafter(parsed, base, file)
    pairing.check_target(target)
    if drafter:
        pairing.check_pair(target, drafter)
        runner = ArtefactStore().current()
        if runner:
            pairing.check_tag(target, drafter, runner.manifest.tag)
    return _record(shown, parsed, target, drafter, projector, inherited, profile)


def _valid_name(text: str) -> str:
    try:
        return names.parse(text).display
    except names.InvalidName as error:
        raise ModelfileError(
            f"invalid model name: {text!r}", hint="names look like `mymodel` or `me/mymodel:tag`"
        ) from error


def _sources(
    parsed: Modelfile, base: Path, file: str
) -> tuple[GgufHeader, GgufHeader | None, ModelRecord | None]:
    """The target and a projector among the FROM lines; the record when FROM names a model."""
    target: GgufHeader | None = None
    projector: GgufHeader | None = None
    inherited: ModelRecord | None = None
    for item in parsed.froms:
        path = resolve(item, base)
        if path is None:
            named = named_model(item, file)
            header = gguf.read_header(named.target.path)
        else:
            named, header = None, gguf.read_header(single(path, item, file))
        if pairing.is_projector(header):
            projector = header
        elif target is None:
            target, inherited = header, named
        else:
            raise ModelfileError(
                f"{file}:{item.line}: a second model in FROM: {item.value!r}",
                hint="one model and at most one projector; of a split model name the first shard",
            )
    if target is None:
        assert projector is not None  # there is at least one FROM
        pairing.check_target(projector)
        raise AssertionError("check_target refuses projectors")
    return target, projector, inherited


def _drafter(parsed: Modelfile, base: Path, file: str) -> GgufHeader | None:
    if not parsed.drafts:
        return None
    if len(parsed.drafts) > 1:
        raise ModelfileError(
            f"{file}:{parsed.drafts[1].line}: a second DRAFT", hint="a model has one drafter"
        )
    item = parsed.drafts[0]
    path = resolve(item, base)
    if path is None:
        raise PairingError(
            f"{file}:{item.line}: no such file: {item.value}",
            hint="DRAFT takes a GGUF file, not a model's name",
        )
    return gguf.read_header(single(path, item, file))


def _record(
    name: str,
    parsed: Modelfile,
    target: GgufHeader,
    drafter: GgufHeader | None,
    projector: GgufHeader | None,
    inherited: ModelRecord | None,
    profile: Profile | None,
) -> ModelRecord:
    """What the Modelfile says, over what the model it starts from says."""
    base = inherited or ModelRecord(name=name, target=weight(target))
    changes: dict[str, Any] = {
        "drafter": weight(drafter) if drafter else None,
        "projector": weight(projector) if projector else None,
        "template": parsed.template,
        "system": parsed.system,
        "renderer": parsed.renderer,
        "parser": parsed.parser,
        "requires": parsed.requires,
        "messages": [Message(role=role, content=text) for role, text in parsed.messages] or None,
    }
    given: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    given["name"] = name
    given["parameters"] = {**base.parameters, **parsed.parameters}
    given["license"] = [*base.license, *parsed.licenses]
    given["profile"] = _profile(profile or base.profile, parsed)
    given["created_at"] = datetime.now(UTC)
    return base.model_copy(update=given)


def _profile(profile: Profile, parsed: Modelfile) -> Profile:
    n_max = parsed.parameters.get("draft_num_predict")
    if n_max is None:
        return profile
    spec = SpecSettings.model_validate({**profile.spec.model_dump(), "n_max": max(0, n_max)})
    return profile.model_copy(update={"spec": spec})
