"""What a recipe says: which files make a pair, what runs it, and how we know."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from ollama_spec.profiles import Profile, Strict

DrafterKind = Literal["mtp", "eagle3", "dflash", "dspark", "draft"]

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


class Source(Strict):
    """A file of a repository. Names are patterns, tried in order; the GGUF header has the say."""

    repo: str
    file: list[str] = Field(default_factory=list, description="paths or shell patterns")
    quant: str | None = Field(default=None, description="chosen by quantisation when no file is")
    revision: str | None = Field(default=None, description="commit or branch; None: main")
    sha256: str | None = Field(
        default=None, description="as last seen, 12 or more hex digits; a newer file is only told"
    )
    size: int | None = Field(default=None, ge=1, description="bytes, as last seen")

    @field_validator("repo")
    @classmethod
    def _is_repo(cls, value: str) -> str:
        if not _REPO.fullmatch(value):
            raise ValueError(f"{value!r} is not OWNER/REPOSITORY")
        return value

    @field_validator("sha256")
    @classmethod
    def _is_hash(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[0-9a-f]{12,64}", value):
            raise ValueError("sha256 takes 12 to 64 lower-case hex digits")
        return value


class Recipe(Strict):
    """One name of the catalogue, `family:size-kind`."""

    family: str
    size: str
    kind: DrafterKind
    target: Source
    drafter: Source | None = Field(default=None, description="None: the head is in the target")
    projector: Source | None = None
    speculator: Source | None = Field(default=None, description="for SpecPrefill")
    arch: str = Field(description="general.architecture of the target")
    drafter_arch: str | None = Field(default=None, description="of the drafter")
    min_tag: int = Field(ge=1, description="first llama.cpp build that runs the pair")
    profile: Profile = Profile()
    license: str | None = None
    confirmed: bool = Field(default=True, description="False: a part of it is not confirmed")
    notes: str = ""
    evidence: list[str] = Field(default_factory=list, description="where the figures come from")

    @property
    def tag(self) -> str:
        return f"{self.size}-{self.kind}"

    @property
    def name(self) -> str:
        return f"{self.family}:{self.tag}"

    @model_validator(mode="after")
    def _complete(self) -> Recipe:
        if self.drafter is None and self.kind != "mtp":
            raise ValueError(f"{self.name}: only an MTP head can be inside the target")
        if not self.evidence:
            raise ValueError(f"{self.name}: says nowhere how we know")
        return self


class CatalogueFile(Strict):
    recipes: list[Recipe]
