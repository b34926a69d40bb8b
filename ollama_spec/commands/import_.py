"""`ollama-spec import`: take in a lock; `pull --locked` then makes the model."""

from __future__ import annotations

from typing import TextIO

import click

from ollama_spec import lock, names, output, paths
from ollama_spec.errors import ConfigError


@click.command("import")
@click.argument("file", type=click.File("r"))
@click.option("--name", help="Name to know it by here.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def command(file: TextIO, name: str | None, as_json: bool) -> None:
    """Check the lock in FILE (- is stdin) and remember it; nothing is fetched yet."""
    found = lock.load(file.read(), str(file.name))
    try:
        display = names.parse(name or found.name).display
    except names.InvalidName as error:
        raise ConfigError(
            f"{name or found.name!r} is no model name", hint="choose one with --name"
        ) from error
    kept = found.model_copy(update={"name": display})
    path = lock.imported_path(display)
    paths.atomic_write(path, lock.dump(kept).encode())
    size = sum(item.size for model in kept.models().values() for item in model.files)
    if as_json:
        output.result_json({"name": display, "lock": str(path), "size": size})
        return
    output.result(
        f"{display}: {output.human_size(size)}; fetch it with `ollama-spec pull --locked {display}`"
    )
