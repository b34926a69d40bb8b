"""`status`: is the sidecar up, with which runner, and does every model draft?"""

from __future__ import annotations

from typing import Any

import click

from ollama_spec import config, output, sidecar_api
from ollama_spec.runner import binary


@click.command("status", short_help="State of sidecar, runner and drafting.")
@click.option("--host", help="Address of the sidecar, HOST:PORT.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(host: str | None, as_json: bool) -> int:
    """Show the state; exit code 8 when no sidecar answers, 0 otherwise."""
    settings = config.load(host=host)
    state = {"url": sidecar_api.url(settings), **binary.describe(settings)}
    state |= sidecar_api.state(settings)
    if as_json:
        output.result_json(state)
    else:
        output.result("\n".join(_lines(state)))
    return 0 if state["running"] else 8


def _lines(state: dict[str, Any]) -> list[str]:
    sidecar = f"running on {state['url']}" if state["running"] else f"down: {state['problem']}"
    lines = [f"sidecar: {sidecar}"]
    if state["runner"]:
        offers = "relaxed acceptance" if state["relaxed"] else "lossless drafting only"
        lines.append(f"runner:  {state['build']} ({offers})")
        lines.append(f"         {state['runner']}")
    else:
        lines.append(f"runner:  {state['runner_problem']}")
    for model in state["models"]:
        lines.append(f"model:   {model['name']}: {_drafting(model.get('spec'))}")
    return lines


def _drafting(spec: dict[str, Any] | None) -> str:
    if spec is None:
        return "served by Ollama"
    if spec["problem"]:
        return f"speculation off: {spec['problem']}"
    if spec["type"] is None:
        return "no drafter"
    if not spec["drafted"]:
        return f"{spec['type']}, nothing drafted yet"
    return f"{spec['type']}, {spec['accepted']} of {spec['drafted']} drafted tokens accepted"
