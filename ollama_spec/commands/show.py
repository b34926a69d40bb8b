"""`show`: what a model of ours is made of and runs with."""

from __future__ import annotations

import json

import click

from ollama_spec import gguf, output
from ollama_spec.gguf import GgufHeader
from ollama_spec.modelfile import writer
from ollama_spec.modelfile.pairing import choose_spec_type
from ollama_spec.store import ModelRecord, ModelStore

_PARTS = ("modelfile", "parameters", "system", "template", "license")


@click.command("show", short_help="Show a model: its files, drafter and settings.")
@click.argument("name")
@click.option("--modelfile", is_flag=True, help="Print the Modelfile.")
@click.option("--parameters", is_flag=True, help="Print the parameters.")
@click.option("--system", is_flag=True, help="Print the system text.")
@click.option("--template", is_flag=True, help="Print the template that is used.")
@click.option("--license", is_flag=True, help="Print the licences.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str, as_json: bool, **parts: bool) -> None:
    """Show NAME."""
    record = ModelStore().get(name)
    target = gguf.read_header(record.target.path)
    chosen = [part for part in _PARTS if parts[part]]
    if len(chosen) > 1:
        raise click.UsageError(f"only one of {', '.join('--' + part for part in _PARTS)}")
    if chosen:
        output.result(_part(record, target, chosen[0]))
        return
    drafter = gguf.read_header(record.drafter.path) if record.drafter else None
    kind = record.profile.spec.type or choose_spec_type(target, drafter)
    if as_json:
        output.result_json({**record.model_dump(mode="json"), "spec_type": kind})
        return
    output.result(_summary(record, target, drafter, kind))


def _part(record: ModelRecord, target: GgufHeader, part: str) -> str:
    texts = {
        "modelfile": lambda: writer.of_record(record).rstrip("\n"),
        "parameters": lambda: "\n".join(_parameters(record)),
        "system": lambda: record.system or "",
        "template": lambda: target.chat_template or record.template or "",
        "license": lambda: "\n".join(record.license),
    }
    return texts[part]()


def _parameters(record: ModelRecord) -> list[str]:
    lines = []
    for key, value in record.parameters.items():
        for item in value if isinstance(value, list) else [value]:
            lines.append(f"{key:<30} {json.dumps(item, ensure_ascii=False)}")
    return lines


def _summary(
    record: ModelRecord, target: GgufHeader, drafter: GgufHeader | None, kind: str | None
) -> str:
    lines = ["  Model", *_facts(target), f"    file                {record.target.path}"]
    if drafter:
        lines += ["", "  Drafter", *_facts(drafter), f"    file                {drafter.path}"]
    spec, accept = record.profile.spec, record.profile.spec.accept
    lines += ["", "  Serving", f"    drafting            {kind or 'off'}"]
    if kind:
        lines.append(f"    depth               {spec.n_max}")
    acceptance: str = accept.mode
    if accept.mode == "relaxed":
        acceptance += f", top {accept.top_n}, ratio {accept.ratio:g}"
    prefill = record.profile.prefill.mode
    lines.append(f"    acceptance          {acceptance} ({_cost(accept.mode == 'strict')})")
    lines.append(f"    prefill             {prefill} ({_cost(prefill == 'dense')})")
    template = "the GGUF's own (jinja)" if target.chat_template else "none"
    if record.template:
        template += "; the Modelfile's TEMPLATE is kept for Ollama and not used here"
    lines.append(f"    template            {template}")
    if record.parameters:
        lines += ["", "  Parameters", *(f"    {line}" for line in _parameters(record))]
    if record.system:
        lines += ["", "  System", f"    {record.system}"]
    return "\n".join(lines)


def _cost(lossless: bool) -> str:
    return "lossless" if lossless else "LOSSY"


def _facts(header: GgufHeader) -> list[str]:
    return [
        f"    architecture        {header.arch}",
        f"    parameters          {header.parameter_size}",
        f"    context length      {header.context_length}",
        f"    embedding length    {header.embedding_length}",
        f"    quantization        {header.file_type}",
    ]
