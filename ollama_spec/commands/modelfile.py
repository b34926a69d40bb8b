"""`modelfile`: the Modelfile of one of our models, ready for `ollama create` or our `create`."""

from __future__ import annotations

import click

from ollama_spec import output
from ollama_spec.modelfile import writer
from ollama_spec.store import ModelStore


@click.command("modelfile", short_help="Print a model's Modelfile.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print name and text as JSON.")
def command(name: str, as_json: bool) -> None:
    """Print the Modelfile of NAME; `ollama create` reads it too."""
    record = ModelStore().get(name)
    text = writer.of_record(record)
    if as_json:
        output.result_json({"name": record.name, "modelfile": text})
    else:
        output.result(text.rstrip("\n"))
