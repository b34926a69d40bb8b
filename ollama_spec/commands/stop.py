"""`stop`: unload a model."""

from __future__ import annotations

import click

from ollama_spec import config, output, sidecar_api


@click.command("stop", short_help="Unload a model; a running answer is finished first.")
@click.argument("model")
@click.option("--host", help="Address of the sidecar, HOST:PORT.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(model: str, host: str | None, as_json: bool) -> None:
    """Unload MODEL. Fails when there is no such model."""
    body = {"model": model, "prompt": "", "keep_alive": 0, "stream": False}
    reply = sidecar_api.call(config.load(host=host), "POST", "/api/generate", body)
    if as_json:
        output.result_json({"model": model, "done_reason": reply.get("done_reason")})
    else:
        output.result(f"stopped {model}")
