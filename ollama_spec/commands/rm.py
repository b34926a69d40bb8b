"""`rm`: forget models. Files of the user stay; what `pull` fetched goes when nobody names it."""

from __future__ import annotations

import click

from ollama_spec import output
from ollama_spec.store import ModelStore


@click.command("rm", short_help="Remove models; files that are yours stay.")
@click.argument("names", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the removed names as JSON.")
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Remove each of NAMES."""
    store = ModelStore()
    records = [store.get(name) for name in names]  # all exist, or none is removed
    for record in records:
        store.remove(record.name)
        if not as_json:
            output.result(f"deleted '{record.name}'")
    if as_json:
        output.result_json({"deleted": [record.name for record in records]})
