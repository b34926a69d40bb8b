"""`ollama-spec export`: the lock of a model, so that others can make the same one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ollama_spec import lock, output, paths
from ollama_spec.errors import NotFoundError
from ollama_spec.store import ModelStore


@click.command("export")
@click.argument("name")
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE instead of stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print the lock as JSON.")
def command(name: str, target: str | None, as_json: bool) -> None:
    """Print exactly which files and settings NAME was made of.

    The settings are those the model has now, also when `tune` changed them since it was pulled.
    """
    record = ModelStore().get(name)
    found = lock.find(record.name)
    if found is None:
        raise NotFoundError(
            f"{record.name} was not pulled, so nobody else could fetch its files",
            hint="only models of `ollama-spec pull` can be exported",
        )
    # A speculator's path means nothing elsewhere; the lock names it by repository.
    prefill = record.profile.prefill.model_copy(update={"speculator": None})
    profile = record.profile.model_copy(update={"prefill": prefill})
    current = found.model_copy(update={"profile": profile})
    if as_json:
        output.result_json(json.loads(current.model_dump_json()))
    elif target:
        paths.atomic_write(Path(target), lock.dump(current).encode())
        output.note(f"wrote {target}")
    else:
        output.result(lock.dump(current).rstrip("\n"))
