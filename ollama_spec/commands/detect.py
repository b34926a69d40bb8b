"""`detect`: which Ollama is here, which llama.cpp it carries, and how we could build that."""

from __future__ import annotations

import click

from ollama_spec import output
from ollama_spec.build.detect import Report, detect


@click.command("detect", short_help="Show the Ollama here, its llama.cpp tag, and the engines.")
@click.option("--refresh", is_flag=True, help="Also ask the repositories, and keep what they say.")
@click.option("--assume", is_flag=True, help="Unknown release: take the nearest lower one's tag.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(refresh: bool, assume: bool, as_json: bool) -> None:
    """Look at this machine; nothing is started, changed, or (without --refresh) asked elsewhere."""
    report = detect(online=refresh, assume=assume)
    if as_json:
        output.result_json(report.model_dump(mode="json"))
    else:
        output.result(_text(report))


def _text(report: Report) -> str:
    server, conclusion = report.server, report.conclusion
    lines = [
        f"server     {server.url}: "
        + (f"Ollama {server.version}" if server.version else f"none ({server.error})")
    ]
    for item in report.binaries:
        mark = "*" if item.path == report.chosen else " "
        lines.append(
            f"program  {mark} {item.path}: {item.version or 'unknown version'} "
            f"({', '.join(item.found)})"
        )
        lines.append(f"libraries  {item.library}: {', '.join(item.backends) or 'no backends'}")
        if item.llama:
            lines.append(f"           llama-server {item.llama.text}")
    if not report.binaries:
        lines.append("program    none found")
    lines.append(f"llama.cpp  {conclusion.tag or 'unknown'} (by {conclusion.how})")
    if conclusion.commit:
        lines.append(
            f"commit     {conclusion.commit} (by {conclusion.commit_by}), "
            f"confirmed: {report.confirmed}"
        )
    if conclusion.warning:
        lines.append(f"warning    {conclusion.warning}")
    for gpu in report.gpu.gpus:
        lines.append(f"gpu        {gpu.name}, compute {gpu.compute_capability}")
    lines.append(
        f"driver     {report.gpu.driver or 'none'}, CUDA up to {report.gpu.cuda_limit or 'unknown'}"
        if report.gpu.gpus
        else f"gpu        {report.gpu.note}"
    )
    for verdict in report.engines:
        mark = "*" if verdict.engine == report.engine else " "
        word = "yes" if verdict.works else "no"
        lines.append(f"engine   {mark} {verdict.engine}: {word}, {verdict.reason}")
    return "\n".join(lines)
