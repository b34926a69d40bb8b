"""From a Modelfile and local GGUFs to a checked record; all is checked before any is written."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ollama_spec import gguf, names
from ollama_spec.errors import ModelfileError, NotFoundError, PairingError
from ollama_spec.gguf import GgufHeader
from ollama_spec.modelfile import pairing
from ollama_spec.modelfile.parser import Modelfile, parse
from ollama_spec.modelfile.syntax import Instruction
from ollama_spec.profiles import Profile, SpecSettings, WeightFile
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
    """The target and a projector among the FROM lines; the record when FROM names our model."""
    target: GgufHeader | None = None
    projector: GgufHeader | None = None
    inherited: ModelRecord | None = None
    for item in parsed.froms:
        path = resolve(item, base)
        if path is None:
            inherited = _ours(item, file)
            target = gguf.read_header(inherited.target.path)
            continue
        header = gguf.read_header(_single(path, item, file))
        if header.arch == "clip" or header.kv.get("general.type") in ("mmproj", "projector"):
            projector = header
        elif target is None:
            target = header
        else:
            raise ModelfileError(
                f"{file}:{item.line}: a second model in FROM: {item.value!r}",
                hint="one model and at most one projector; join shards with llama-gguf-split",
            )
    if target is None:
        assert projector is not None  # there is at least one FROM
        pairing.check_target(projector)
        raise AssertionError("check_target refuses projectors")
    return target, projector, inherited


def _ours(item: Instruction, file: str) -> ModelRecord:
    found = ModelStore().find(item.value)
    if found:
        return found
    # A path that does not exist must not be reported as an odd model name (CASES 31).
    looks_like_path = item.value.endswith(".gguf") or item.value.startswith((".", "/", "~"))
    if looks_like_path:
        raise PairingError(
            f"{file}:{item.line}: no such file: {item.value}",
            hint="paths are relative to the Modelfile's folder",
        )
    raise NotFoundError(
        f"{file}:{item.line}: model {item.value!r} not found",
        hint="FROM takes a GGUF file or one of the models `ollama-spec list` shows",
    )


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
    return gguf.read_header(_single(path, item, file))


def resolve(item: Instruction, base: Path) -> Path | None:
    """The existing path an instruction names: absolute, `~`, or relative to `base`; else None."""
    try:
        path = base / Path(item.value).expanduser()
        return path.resolve() if path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _single(path: Path, item: Instruction, file: str) -> Path:
    if not path.is_dir():
        return path
    inside = sorted(path.glob("*.gguf"))
    if len(inside) != 1:
        raise ModelfileError(
            f"{file}:{item.line}: folder {item.value!r} holds {len(inside)} GGUF files, not one",
            hint="name the file itself",
        )
    return inside[0].resolve()


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
    base = inherited or ModelRecord(name=name, target=weight(target.path))
    changes: dict[str, Any] = {
        "drafter": weight(drafter.path) if drafter else None,
        "projector": weight(projector.path) if projector else None,
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


def weight(path: Path) -> WeightFile:
    """Size and checksum of a file that stays where it is."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return WeightFile(path=path, size=path.stat().st_size, sha256=digest)
