"""`serve`: run the sidecar in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from ollama_spec import config
from ollama_spec.runner import daemon


@click.command("serve", short_help="Run the sidecar: Ollama's API, our models, yours behind.")
@click.option("--host", help="Address to listen on, HOST:PORT; port 0 takes a free one.")
@click.option("--upstream", help="The real Ollama's address; empty: there is none.")
@click.option("--runner", help="llama-server to use instead of the built one.")
@click.option("--keep-alive", help="How long an idle model stays loaded, e.g. 5m, -1 for ever.")
@click.option("--max-loaded-models", type=int, help="Models kept loaded at the same time.")
@click.option("--num-parallel", type=int, help="Requests a model answers at the same time.")
@click.option("--context-length", type=int, help="Default context; 0: chosen by memory.")
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write {url, pid} as JSON here once requests are answered.",
)
def command(
    host: str | None,
    upstream: str | None,
    runner: str | None,
    keep_alive: str | None,
    max_loaded_models: int | None,
    num_parallel: int | None,
    context_length: int | None,
    ready_file: Path | None,
) -> int:
    """Answer Ollama's API: models of ours from patched llama-servers, all else passed through."""
    settings = config.load(
        host=host,
        upstream=upstream,
        runner=runner,
        keep_alive=keep_alive,
        max_loaded_models=max_loaded_models,
        num_parallel=num_parallel,
        context_length=context_length,
    )
    return daemon.serve(settings, ready_file)
