"""Which files of a repository make the pair: the GGUF header decides, names only break ties."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ollama_spec.errors import IntegrityError, NotFoundError, PairingError
from ollama_spec.hub import header, shards
from ollama_spec.hub.client import Hub, HubFile, Listing
from ollama_spec.hub.header import Role, Start

_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|F16|F32|BF16|MXFP4\w*|NVFP4|TQ\d\w*))(?=[-._/]|$)",
    re.IGNORECASE,
)
_DEFAULT_QUANTS = ("Q4_K_M", "UD-Q4_K_M", "UD-Q4_K_XL", "Q8_0", "Q4_0")
_DRAFTER_QUANTS = ("Q8_0", "BF16", "F16")
_HEAD_NAMES = ("mtp", "dspark", "dflash", "eagle3", "assistant", "draft")


@dataclass(frozen=True)
class Choice:
    """One model out of a repository: all its shards, and what its header said."""

    listing: Listing
    files: tuple[HubFile, ...]
    start: Start

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def label(self) -> str:
        return f"{self.listing.repo}/{self.files[0].path}"


def quant_of(name: str) -> str | None:
    """Quantisation in a file name, e.g. "UD-Q4_K_XL"; the last one named counts."""
    stem = re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", name, flags=re.IGNORECASE)
    found = _QUANT.findall(stem)
    return found[-1].upper() if found else None


class Chooser:
    """Looks into files of one repository, each at most once."""

    def __init__(self, hub: Hub, listing: Listing) -> None:
        self.hub = hub
        self.listing = listing
        self._starts: dict[str, Start] = {}
        self.models = shards.first_only(
            sorted(name for name in listing.files if name.lower().endswith(".gguf"))
        )
        if not self.models:
            raise NotFoundError(
                f"{listing.repo} holds no GGUF files",
                hint="look for a repository of the same model whose name ends in -GGUF",
            )

    def start(self, name: str) -> Start:
        if name not in self._starts:
            file = self.listing.files[name]
            self._starts[name] = header.read(
                lambda length: self.hub.read_start(self.listing, file, length),
                file.size,
                f"{self.listing.repo}/{name}",
            )
        return self._starts[name]

    def file(self, pattern: str, role: Role) -> Choice:
        """The file a user or recipe names, by path or by pattern, if its header has that role."""
        names = [pattern] if pattern in self.listing.files else []
        names = names or [name for name in self.models if fnmatchcase(name, pattern)]
        fitting = [name for name in names if self.start(name).role == role]
        if not fitting:
            for name in names:
                header.refuse_foreign(self.start(name), f"{self.listing.repo}/{name}")
            if names:
                raise PairingError(
                    f"{self.listing.repo}/{names[0]} is a {self.start(names[0]).role} "
                    f"by its header, not a {role}",
                    hint=f"choose among: {', '.join(self.models)}",
                )
            raise NotFoundError(
                f"{self.listing.repo} has no file {pattern}",
                hint=f"it holds: {', '.join(self.models)}",
            )
        return self._choice(self._one(fitting, role))

    def first_file(self, patterns: list[str], role: Role) -> Choice:
        """The first of several patterns that is there; the last one's failure is reported."""
        for pattern in patterns[:-1]:
            try:
                return self.file(pattern, role)
            except NotFoundError:
                continue
        return self.file(patterns[-1], role)

    def target(self, quant: str | None) -> Choice:
        names = self._of_quant(self.models, quant, _DEFAULT_QUANTS)
        fitting = [name for name in names if self.start(name).role == "target"]
        if not fitting:
            kinds = ", ".join(f"{name} ({self.start(name).role})" for name in names)
            raise NotFoundError(
                f"{self.listing.repo} has no model to chat with among {kinds}",
                hint="a drafter belongs after --draft",
            )
        return self._choice(self._one(fitting, "target"))

    def drafter(self, quant: str | None, near: str | None = None) -> Choice | None:
        """A drafter in this repository, or None. `near`: the target's name, to break ties.

        A repository made of plain models only (a classic small drafter) answers with its model.
        """
        heads = [name for name in self.models if self._may_be_head(name)]
        found = [name for name in heads if self.start(name).role == "drafter"]
        if not found:
            for name in heads:
                header.refuse_foreign(self.start(name), f"{self.listing.repo}/{name}")
            return None if near else self.target(quant)
        wanted = self._of_quant(found, quant, ()) if quant else found
        if near and not quant:
            # Next to the model first: that is where publishers put the recommended one.
            root = [name for name in wanted if "/" not in name]
            wanted = root or wanted
        if len(wanted) > 1 and not quant:
            wanted = self._preferred(wanted, _DRAFTER_QUANTS) or wanted
        return self._choice(self._one(wanted, "drafter"))

    def projector(self) -> Choice | None:
        """The multimodal projector to go with the target, F16 first; None if there is none."""
        names = [name for name in self.models if self.start(name).role == "projector"]
        if not names:
            return None
        preferred = self._preferred(names, ("F16", "BF16", "Q8_0")) or names
        return self._choice(sorted(preferred)[0])

    def _may_be_head(self, name: str) -> bool:
        """Cheap sieve: a small file, or one whose path names a kind of head. Headers decide."""
        largest = max(self.listing.files[other].size for other in self.models)
        small = self.listing.files[name].size * 4 < largest
        return small or any(word in name.lower() for word in _HEAD_NAMES)

    def _of_quant(
        self, names: list[str], quant: str | None, defaults: tuple[str, ...]
    ) -> list[str]:
        if quant is None:
            if len(names) == 1:
                return names
            fitting = [name for name in names if self.start(name).role == "target"]
            return self._preferred(fitting, defaults) or fitting
        found = [name for name in names if quant_of(name) == quant.upper()]
        found = found or [name for name in names if quant_of(name) == f"UD-{quant.upper()}"]
        if found:
            return found
        there = sorted({text for name in names if (text := quant_of(name))})
        raise NotFoundError(
            f"{self.listing.repo} has no {quant} file",
            hint=f"it has {', '.join(there) or ', '.join(names)}",
        )

    @staticmethod
    def _preferred(names: list[str], order: tuple[str, ...]) -> list[str]:
        for quant in order:
            found = [name for name in names if quant_of(name) == quant]
            if found:
                return found
        return []

    def _one(self, names: list[str], role: str) -> str:
        if len(names) == 1:
            return names[0]
        option = "--draft-file" if role == "drafter" else "--target-file"
        raise PairingError(
            f"{self.listing.repo} has {len(names)} files that could be the {role}: "
            + ", ".join(names),
            hint=f"name one with {option} FILE",
        )

    def _choice(self, name: str) -> Choice:
        start = self.start(name)
        parts = shards.siblings(name)
        if start.split_count > 1 and len(parts) != start.split_count:
            raise IntegrityError(
                f"{self.listing.repo}/{name} is one of {start.split_count} parts by its header, "
                "but its name does not say which",
                hint="the repository renamed its shards: choose another file",
            )
        missing = [part for part in parts if part not in self.listing.files]
        if missing:
            raise IntegrityError(
                f"{self.listing.repo} lacks {len(missing)} of {len(parts)} shards: "
                + ", ".join(missing),
                hint="the upload is incomplete: choose another file or repository",
            )
        return Choice(self.listing, tuple(self.listing.files[part] for part in parts), start)
