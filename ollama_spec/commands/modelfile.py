"""`modelfile`: the Modelfile of one of our models, ready for `ollama create` or our `create`."""

from __future__ import annotations

import click

from ollama_spec import output
from ollama_spec.modelfile import writer
from ollama_spec.store import ModelStore


@click.command("modelfile", short_help="Print a model's Modelfile.")
@click.argument("name")
def command(name: str) -> None:
    """Print the Modelfile of NAME; `ollama create` reads it too."""
    output.result(writer.of_record(ModelStore().get(name)).rstrip("\n"))
