"""`pull`: from a name to a checked pair. Everything is decided before the first byte is fetched."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, overload

from ollama_spec import names
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.catalog import Found, Source
from ollama_spec.errors import ConfigError, IntegrityError, PairingError
from ollama_spec.hub import choose, download, header
from ollama_spec.hub.choose import Choice, Chooser
from ollama_spec.hub.client import Hub
from ollama_spec.lock import Lock, LockedFile, LockedModel
from ollama_spec.modelfile import pairing
from ollama_spec.profiles import Profile, SpecSettings

_REFERENCE = re.compile(
    r"^(?:https?://)?(?:hf\.co|huggingface\.co)/(?P<repo>[^/:@]+/[^/:@]+)"
    r"(?:@(?P<revision>[^/:]+))?(?:/(?:(?:blob|resolve)/(?P<branch>[^/]+)/)?(?P<file>[^:]+\.gguf))?"
    r"(?::(?P<quant>[^/:]+))?$",
    re.IGNORECASE,
)
_LOCK_HINT = "the lock cannot be reproduced; pull without --locked for the newest files"


@dataclass(frozen=True)
class Reference:
    """`hf.co/OWNER/REPO[@REVISION][/FILE][:QUANT]`."""

    repo: str
    quant: str | None = None
    file: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Plan:
    """What a pull will do; `choices` by role: target, drafter, projector, speculator."""

    choices: dict[str, Choice]
    lock: Lock
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.lock.name

    @property
    def size(self) -> int:
        return sum(choice.size for choice in self.choices.values())

    @property
    def to_fetch(self) -> int:
        """Bytes still missing here."""
        return sum(
            download.still_to_fetch(choice.listing, file)
            for choice in self.choices.values()
            for file in choice.files
        )


def is_reference(text: str) -> bool:
    return bool(re.match(r"^(https?://)?(hf\.co|huggingface\.co)/", text, re.IGNORECASE))


def reference(text: str) -> Reference:
    match = _REFERENCE.match(text)
    if not match:
        raise ConfigError(
            f"{text!r} names no repository of the hub",
            hint="write hf.co/OWNER/REPO, hf.co/OWNER/REPO:QUANT or hf.co/OWNER/REPO/FILE.gguf",
        )
    return Reference(
        match["repo"], match["quant"], match["file"], match["revision"] or match["branch"]
    )


class Planner:
    """Looks up repositories (each once per revision) and turns wishes into plans."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._choosers: dict[tuple[str, str | None], Chooser] = {}

    def chooser(self, repo: str, revision: str | None) -> Chooser:
        key = (repo, revision)
        if key not in self._choosers:
            self._choosers[key] = Chooser(self.hub, self.hub.listing(repo, revision))
        return self._choosers[key]

    def recipe(self, found: Found, name: str | None, extras: set[str]) -> Plan:
        """Plan of a catalogue entry; `extras` names optional roles: projector, speculator."""
        recipe = found.recipe
        notes = [] if recipe.confirmed else [f"{recipe.name} is not confirmed in every part"]
        notes += [f"{recipe.name}: {recipe.notes}"] if recipe.notes else []
        choices = {"target": self._target(recipe.target, found.quant, notes)}
        _expect_arch(choices["target"], recipe.arch)
        if recipe.drafter:
            choices["drafter"] = self._source(
                recipe.drafter, "target" if recipe.kind == "draft" else "drafter", notes
            )
            _expect_arch(choices["drafter"], recipe.drafter_arch)
        elif not choices["target"].start.embedded_head:
            raise PairingError(
                f"{choices['target'].label} has no drafting head inside, although it should",
                hint="the repository changed its files: choose another recipe or quantisation",
            )
        for role, source in (("projector", recipe.projector), ("speculator", recipe.speculator)):
            if role in extras and source:
                choices[role] = self._source(
                    source, "projector" if role == "projector" else "target", notes
                )
        return self._plan(name or found.name, choices, recipe.profile, recipe.min_tag, notes)

    def free(
        self,
        target: Reference,
        draft: Reference | None,
        name: str | None,
        extras: set[str],
    ) -> Plan:
        """Plan for repositories named by the user. Without `draft` the target's is looked at."""
        chooser = self.chooser(target.repo, target.revision)
        chosen = (
            chooser.file(target.file, "target") if target.file else chooser.target(target.quant)
        )
        choices = {"target": chosen}
        notes: list[str] = []
        if draft:
            choices["drafter"] = self.drafter(draft)
        elif chosen.start.embedded_head:
            notes.append(f"{chosen.label} has its own drafting head")
        elif own := chooser.drafter(None, near=chosen.files[0].path):
            choices["drafter"] = own
        else:
            notes.append(f"no drafter in {target.repo}: name one with --draft to draft")
        if "projector" in extras and (projector := chooser.projector()):
            choices["projector"] = projector
        spec_type = choices["drafter"].start.spec_type if "drafter" in choices else None
        if spec_type is None and chosen.start.embedded_head:
            spec_type = "draft-mtp"
        profile = default_profile(spec_type)
        min_tag = _min_tag(chosen, choices.get("drafter"))
        return self._plan(name or _name_for(chosen), choices, profile, min_tag, notes)

    def locked(self, lock: Lock, name: str | None) -> Plan:
        """Plan that fetches exactly what a lock says; raises IntegrityError where it cannot."""
        choices = {role: self._locked(model) for role, model in lock.models().items()}
        return Plan(choices, lock.model_copy(update={"name": name or lock.name}))

    def drafter(self, draft: Reference) -> Choice:
        """The drafter that a user names: a head, or a whole small model."""
        chooser = self.chooser(draft.repo, draft.revision)
        if draft.file:
            role = chooser.start(draft.file).role if draft.file in chooser.listing.files else None
            return chooser.file(draft.file, "target" if role == "target" else "drafter")
        chosen = chooser.drafter(draft.quant)
        if chosen is None:
            return chooser.target(draft.quant)
        return chosen

    def _target(self, source: Source, quant: str | None, notes: list[str]) -> Choice:
        if quant:
            return self.chooser(source.repo, source.revision).target(quant)
        return self._source(source, "target", notes)

    def _source(self, source: Source, role: header.Role, notes: list[str]) -> Choice:
        chooser = self.chooser(source.repo, source.revision)
        if source.file:
            choice = chooser.first_file(source.file, role)
        elif role == "target":
            choice = chooser.target(source.quant)
        else:
            found = chooser.drafter(source.quant) if role == "drafter" else chooser.projector()
            if found is None:
                raise PairingError(f"{source.repo} holds no {role}")
            choice = found
        now = choice.files[0].sha256 or ""
        if source.sha256 and not now.startswith(source.sha256[: len(now)]):
            notes.append(
                f"{choice.label} is newer than the catalogue "
                f"({now[:12]}, the catalogue saw {source.sha256[:12]})"
            )
        return choice

    def _locked(self, model: LockedModel) -> Choice:
        chooser = self.chooser(model.repo, model.revision)
        listing = chooser.listing
        for wanted in model.files:
            there = listing.files.get(wanted.file)
            if there is None:
                raise IntegrityError(
                    f"{model.repo} at {model.revision[:12]} has no {wanted.file} any more",
                    hint=_LOCK_HINT,
                )
            if (there.size, there.sha256) != (wanted.size, wanted.sha256):
                raise IntegrityError(
                    f"{model.repo}/{wanted.file} is not the locked file: "
                    f"{(there.sha256 or '?')[:12]}, the lock says {(wanted.sha256 or '?')[:12]}",
                    hint=_LOCK_HINT,
                )
        start = chooser.start(model.files[0].file)
        return Choice(listing, tuple(listing.files[item.file] for item in model.files), start)

    def _plan(
        self,
        name: str,
        choices: dict[str, Choice],
        profile: Profile,
        min_tag: int | None,
        notes: list[str],
    ) -> Plan:
        for choice in choices.values():
            header.refuse_foreign(choice.start, choice.label)
        try:
            display = names.parse(name).display
        except names.InvalidName as error:
            raise ConfigError(
                f"{name!r} is no model name", hint="choose one with --name"
            ) from error
        parameters: dict[str, Any] = {}
        if "drafter" in choices or choices["target"].start.embedded_head:
            parameters["draft_num_predict"] = profile.spec.n_max
        runner = ArtefactStore().current()
        lock = Lock(
            name=display,
            min_tag=min_tag,
            built_for=runner.manifest.tag if runner else None,
            parameters=parameters,
            profile=profile,
            target=_lock_model(choices["target"]),
            drafter=_lock_model(choices.get("drafter")),
            projector=_lock_model(choices.get("projector")),
            speculator=_lock_model(choices.get("speculator")),
        )
        return Plan(choices, lock, notes)


def default_profile(spec_type: str | None) -> Profile:
    """Lossless drafting with the depth at which each kind starts to pay (CATALOG_FACTS)."""
    depth = {"draft-mtp": 2, "draft-dflash": 15, "draft-dspark": 7, "draft-simple": 8}
    return Profile(spec=SpecSettings(type=spec_type, n_max=depth.get(spec_type or "", 3)))


def _min_tag(target: Choice, drafter: Choice | None) -> int | None:
    """First llama.cpp build that drafts this way; None: every supported one."""
    one = target.start.as_header(target.label, target.size)
    other = drafter.start.as_header(drafter.label, drafter.size) if drafter else None
    return pairing.minimum_tag(one, other) or None


def _expect_arch(choice: Choice, arch: str | None) -> None:
    header.refuse_foreign(choice.start, choice.label)
    if arch and choice.start.arch != arch:
        raise PairingError(
            f"{choice.label} has the architecture {choice.start.arch!r}, not {arch!r}",
            hint="the repository changed its files: choose another recipe or name a file",
        )


@overload
def _lock_model(choice: Choice) -> LockedModel: ...
@overload
def _lock_model(choice: Choice | None) -> LockedModel | None: ...
def _lock_model(choice: Choice | None) -> LockedModel | None:
    if choice is None:
        return None
    files = [LockedFile(file=f.path, size=f.size, sha256=f.sha256) for f in choice.files]
    return LockedModel(repo=choice.listing.repo, revision=choice.listing.revision, files=files)


def _name_for(choice: Choice) -> str:
    base = re.sub(r"-GGUF$", "", choice.listing.repo.partition("/")[2], flags=re.IGNORECASE)
    quant = choose.quant_of(choice.files[0].path) or "latest"
    return f"{base.lower()}:{quant.lower()}"
