"""The catalogue: names that `pull` knows. Ours are beside this file, a user's in the config folder.

Tags read `family:size[-quant]-kind`, e.g. `gemma4:e2b-mtp` or `gemma4:e2b-q8_0-mtp`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import ValidationError

from ollama_spec import names, paths
from ollama_spec.catalog.schema import CatalogueFile, Recipe, Source
from ollama_spec.errors import ConfigError, NotFoundError

__all__ = ["Found", "Recipe", "Source", "available", "find", "user_folder"]


@dataclass(frozen=True)
class Found:
    """A recipe and the quantisation that the tag asked for, if any."""

    recipe: Recipe
    quant: str | None

    @property
    def name(self) -> str:
        if not self.quant:
            return self.recipe.name
        recipe = self.recipe
        return f"{recipe.family}:{recipe.size}-{self.quant.lower()}-{recipe.kind}"


def user_folder() -> Path:
    """Where a user's own recipes lie; one of the same name wins over ours."""
    return paths.config_dir() / "recipes"


def available() -> list[Recipe]:
    """All recipes, by name; raises ConfigError naming the file and the line of a broken one."""
    recipes = {recipe.name.lower(): recipe for recipe in _builtin()}
    for path in sorted(user_folder().glob("*.yaml")):
        recipes |= {recipe.name.lower(): recipe for recipe in _read(path)}
    return [recipes[name] for name in sorted(recipes)]


def find(text: str) -> Found:
    """The recipe that a tag names; raises NotFoundError with the nearest names there are."""
    recipes = available()
    family, size, kind = _split(text)
    for recipe in recipes:
        same = recipe.family.lower() == family and recipe.kind == kind
        if not same:
            continue
        known = recipe.size.lower()
        if size == known:
            return Found(recipe, None)
        if size.startswith(f"{known}-"):
            # What follows the size is the quantisation; both may hold dashes.
            return Found(recipe, size[len(known) + 1 :].upper())
    known_names = [recipe.name for recipe in recipes]
    near = difflib.get_close_matches(text.lower(), known_names, 3, 0.5)
    raise NotFoundError(
        f"the catalogue has no {text}",
        hint=(f"near it: {', '.join(near)}; " if near else "")
        + "`ollama-spec list --available` shows all; "
        + "or `pull hf.co/OWNER/REPO:QUANT --draft hf.co/OWNER/REPO --name NAME`",
    )


def _split(text: str) -> tuple[str, str, str]:
    """Family, size with quantisation, kind; empty parts where the text is no such tag."""
    try:
        name = names.parse(text)
    except names.InvalidName:
        return text.lower(), "", ""
    size, _, kind = name.tag.lower().rpartition("-")
    return name.model.lower(), size, kind


@lru_cache(maxsize=1)
def _builtin() -> tuple[Recipe, ...]:
    folder = Path(__file__).parent
    return tuple(recipe for path in sorted(folder.glob("*.yaml")) for recipe in _read(path))


def _read(path: Path) -> list[Recipe]:
    try:
        values = yaml.safe_load(path.read_text())
        return CatalogueFile.model_validate(values).recipes
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{path}: {where or 'recipe'}: {first['msg']}",
            hint="compare with the recipes that come with ollama-spec",
        ) from error
