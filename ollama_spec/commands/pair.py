"""`ollama-spec pair`: find a drafter for a model, add it, or check that two files fit."""

from __future__ import annotations

from pathlib import Path

import click

from ollama_spec import add_drafter, config, names, output, pulling, suggest
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.catalog import Recipe
from ollama_spec.errors import ConfigError, PairingError
from ollama_spec.hub.client import Hub
from ollama_spec.modelfile import checks
from ollama_spec.ollama_api import OllamaApi


@click.group("pair")
def command() -> None:
    """Find a drafter for a model, add one, or check a pair of files."""


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


@command.command("add")
@click.argument("base")
@click.option("--draft", required=True, metavar="REF", help="hf.co/OWNER/REPO[/FILE][:QUANT].")
@click.option("--name", required=True, help="Name of the pair; BASE stays as it is.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def add_command(base: str, draft: str, name: str, as_json: bool) -> None:
    """Give a drafter to BASE, a model already in Ollama; only the drafter is fetched."""
    try:
        display = names.parse(name).display
    except names.InvalidName as error:
        raise ConfigError(f"{name!r} is no model name") from error
    with OllamaApi(config.load().upstream) as api:
        done = add_drafter.add(api, Hub(), base, pulling.reference(draft), display)
    if as_json:
        record = done.record.model_dump(mode="json")
        output.result_json({"registered": done.registered, "model": record})
    else:
        output.result(
            f"{display}: {base} with a drafter, {done.record.profile.spec.type}"
            + (", registered with Ollama" if done.registered else "")
        )


@command.command("check")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("drafter", type=click.Path(path_type=Path))
@click.option(
    "--speculator", type=click.Path(path_type=Path), help="Model that scores for SpecPrefill."
)
@click.option("--context", default=0, help="Tokens of context to plan memory for.")
@click.option("--tag", help="llama.cpp tag of the runner, e.g. b10488; default: the one in use.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def check_command(
    target: Path,
    drafter: Path,
    speculator: Path | None,
    context: int,
    tag: str | None,
    as_json: bool,
) -> int:
    """Check that the GGUF files TARGET and DRAFTER fit; exit 6 and the reason if not."""
    runner = ArtefactStore().current()
    tag = tag or (runner.manifest.tag if runner else None)
    report = checks.check_pair(target, drafter, speculator=speculator, tag=tag, context=context)
    if as_json:
        output.result_json(
            {"fits": report.ok, "total": report.memory.total, **report.model_dump(mode="json")}
        )
        return 0 if report.ok else PairingError.exit_code
    output.result(checks.text(report))
    if not report.ok:
        raise PairingError(report.problems[0], hint=report.hints[0] if report.hints else None)
    return 0
