"""`ollama-spec pair`: find a drafter for a model, or check that two files fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ollama_spec import gguf, output, suggest
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.catalog import Recipe
from ollama_spec.modelfile import pairing


@click.group("pair")
def command() -> None:
    """Find a drafter for a model, or check a pair of files."""


@command.command("suggest")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def suggest_command(name: str, as_json: bool) -> None:
    """Name drafters for NAME, a model in Ollama or of ours."""
    model = suggest.known(name)
    if model.nextn_layers:
        text = f"{name} has a drafting head inside: it needs no drafter (`--spec-type draft-mtp`)"
        if as_json:
            output.result_json({"name": name, "embedded": True, "recipes": []})
        else:
            output.result(text)
        return
    found = suggest.recipes_for(model)
    if as_json:
        recipes = [recipe.model_dump(mode="json") for recipe in found]
        output.result_json({"name": name, "embedded": False, "recipes": recipes})
        return
    if model.has_drafter:
        output.note(f"note: {name} has a drafter already")
    if not found:
        output.note(
            f"note: the size of {name} is not in its names; the catalogue knows {model.arch} in "
            "other sizes: `ollama-spec list --available`"
        )
        return
    rows = [
        (recipe.name, _drafter(recipe), f"n_max {recipe.profile.spec.n_max}") for recipe in found
    ]
    output.result(output.table(("RECIPE", "DRAFTER", "DEPTH"), rows))
    for recipe in found:
        output.note(f"{recipe.name}: {'; '.join(recipe.evidence)}")


def _drafter(recipe: Recipe) -> str:
    source = recipe.drafter
    assert source is not None  # recipes_for leaves embedded heads out
    return f"hf.co/{source.repo}" + (f"/{source.file[0]}" if source.file else "")


@command.command("check")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("drafter", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def check_command(target: Path, drafter: Path, as_json: bool) -> None:
    """Check that the GGUF files TARGET and DRAFTER fit; exit 6 and the reason if not."""
    one, other = gguf.read_header(target), gguf.read_header(drafter)
    pairing.check_target(one)
    pairing.check_pair(one, other)
    runner = ArtefactStore().current()
    if runner:
        pairing.check_tag(one, other, runner.manifest.tag)
    value: dict[str, Any] = {
        "fits": True,
        "spec_type": pairing.choose_spec_type(one, other),
        "target": {"architecture": one.arch, "tokens": one.vocab_size, "size": one.size},
        "drafter": {"architecture": other.arch, "tokens": other.vocab_size, "size": other.size},
        "checked_for": runner.manifest.tag if runner else None,
    }
    if as_json:
        output.result_json(value)
    else:
        output.result(
            f"{drafter.name} fits {target.name}: {value['spec_type']}, "
            f"{other.arch} ({output.human_size(other.size)}) drafts for "
            f"{one.arch} ({output.human_size(one.size)})"
        )
