"""Which drafter goes with a model that is already in Ollama (or ours): catalogue and header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ollama_spec import catalog, config, gguf
from ollama_spec.catalog import Recipe
from ollama_spec.errors import NotFoundError
from ollama_spec.ollama_api import OllamaApi
from ollama_spec.store import ModelStore


@dataclass(frozen=True)
class Known:
    """What is known of a model: its architecture, its own head, and every text that names it."""

    name: str
    arch: str
    nextn_layers: int
    words: str
    has_drafter: bool

    def is_size(self, size: str) -> bool:
        """Whether one of its names holds a size like "e2b" or "27b" as a word of its own."""
        words = self.words
        for sign in "-_:./ ":
            words = words.replace(sign, " ")
        return size.lower() in words.split()


def known(name: str) -> Known:
    """A model of ours, else of Ollama; raises NotFoundError."""
    record = ModelStore().find(name)
    if record:
        header = gguf.read_header(record.target.path)
        source = f"{record.target.repo or ''} {record.target.file or ''}"
        words = f"{name} {header.name} {source} {header.kv.get('general.size_label', '')}"
        drafter = record.drafter is not None
        return Known(name, header.arch, header.nextn_layers, words.lower(), drafter)
    with OllamaApi(config.load().upstream) as api:
        shown = api.show(name)
    info: dict[str, Any] = shown.get("model_info") or {}
    arch = str(info.get("general.architecture", ""))
    keys = ("general.name", "general.basename", "general.size_label")
    words = " ".join([name, *(str(info.get(key, "")) for key in keys)])
    drafter = "\nDRAFT " in str(shown.get("modelfile", ""))
    head = int(info.get(f"{arch}.nextn_predict_layers", 0) or 0)
    return Known(name, arch, head, words.lower(), drafter)


def recipes_for(model: Known) -> list[Recipe]:
    """Recipes for its architecture: those of its size, the cheapest kind of drafter first.

    Raises NotFoundError when the catalogue has nothing for this architecture.
    """
    same = [
        recipe
        for recipe in catalog.available()
        if recipe.arch == model.arch and recipe.drafter is not None
    ]
    if not same:
        raise NotFoundError(
            f"the catalogue has no drafter for {model.name} ({model.arch or 'unknown'})",
            hint="n-gram drafting needs none; or name one: `ollama-spec pull … --draft …`",
        )
    sized = [recipe for recipe in same if model.is_size(recipe.size)]
    order = ("mtp", "dspark", "dflash", "eagle3", "draft")
    return sorted(sized, key=lambda recipe: order.index(recipe.kind))
