"""`ps`: the models that are loaded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from ollama_spec import config, output, sidecar_api

_FOREVER = 20 * 365 * 86400  # seconds; Ollama's own client draws the line here


@click.command("ps", short_help="List the loaded models and how their drafting goes.")
@click.option("--host", help="Address of the sidecar, HOST:PORT.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(host: str | None, as_json: bool) -> None:
    """List the loaded models: ours and, where an Ollama is behind, its own."""
    models = sidecar_api.call(config.load(host=host), "GET", "/api/ps")["models"]
    if as_json:
        output.result_json(models)
        return
    header = ("NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "DRAFTING", "UNTIL")
    output.result(output.table(header, [_row(model) for model in models]))


def _row(model: dict[str, Any]) -> list[str]:
    return [
        model["name"],
        model["digest"][:12],
        output.human_size(model["size"]),
        _processor(model["size"], model["size_vram"]),
        str(model.get("context_length", "")),
        _drafting(model.get("spec")),
        _until(model["expires_at"]),
    ]


def _processor(size: int, vram: int) -> str:
    if vram == 0:
        return "100% CPU"
    if size == 0 or vram > size:
        return "Unknown"
    on_cpu = round((size - vram) / size * 100)
    return "100% GPU" if on_cpu == 0 else f"{on_cpu}%/{100 - on_cpu}% CPU/GPU"


def _drafting(spec: dict[str, Any] | None) -> str:
    if spec is None:
        return "-"
    if spec["problem"]:
        return "off (see status)"
    if not spec["type"]:
        return "none"
    if not spec["drafted"]:
        return str(spec["type"])
    return f"{spec['type']}, {spec['accepted'] / spec['drafted']:.0%} accepted"


def _until(text: str) -> str:
    seconds = (datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds()
    if seconds > _FOREVER:
        return "Forever"
    if seconds < 0:
        return "Stopping..."
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit} from now"
    return f"{seconds:.0f} seconds from now"
