"""`create`: a served model from a Modelfile and local GGUFs."""

from __future__ import annotations

from pathlib import Path

import click

from ollama_spec import output
from ollama_spec.errors import NotFoundError
from ollama_spec.modelfile.create import create_model, plan_model
from ollama_spec.modelfile.parser import parse
from ollama_spec.modelfile.syntax import decode


@click.command("create", short_help="Create a model from a Modelfile with FROM and DRAFT.")
@click.argument("name")
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path),
    default=Path("Modelfile"),
    show_default=True,
    help="The Modelfile.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, create nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def command(name: str, path: Path, dry_run: bool, as_json: bool) -> None:
    """Create NAME from local GGUF files.

    The weights stay where they are. A drafter is checked against its target before the name
    exists: the same vocabulary, or an assistant whose shapes fit.
    """
    try:
        text = decode(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no such Modelfile: {path}", hint="name it with -f, or write one: FROM ./model.gguf"
        ) from error
    for warning in parse(text, str(path)).warnings:
        output.note(f"warning: {warning}")
    make = plan_model if dry_run else create_model
    record = make(name, text, base=path.resolve().parent, file=str(path))
    if as_json:
        output.result_json(record.model_dump(mode="json"))
        return
    draft = f" with drafter {record.drafter.path.name}" if record.drafter else ""
    verb = "would create" if dry_run else "created"
    output.result(f"{verb} {record.name}: {record.target.path.name}{draft}")
