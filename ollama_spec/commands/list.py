"""`list`: our models, as `ollama list` shows its own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from ollama_spec import output
from ollama_spec.store import ModelRecord, ModelStore


@click.command("list", short_help="List our models.")
@click.option("-v", "--verbose", is_flag=True, help="Also each file and the disk space used.")
@click.option("--available", is_flag=True, help="What `pull` knows by name, instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(verbose: bool, available: bool, as_json: bool) -> None:
    """List the models that `serve` answers for."""
    if available:
        _available(as_json)
        return
    records = ModelStore().list()
    if as_json:
        output.result_json([_as_json(record) for record in records])
        return
    rows = [
        (
            record.name,
            record.digest[:12],
            output.human_size(record.size),
            record.drafter.path.name if record.drafter else "-",
            ago(record.created_at),
        )
        for record in records
    ]
    output.result(output.table(("NAME", "ID", "SIZE", "DRAFTER", "MODIFIED"), rows))
    if verbose:
        output.result(_disk(records))


def _available(as_json: bool) -> None:
    from ollama_spec import catalog

    recipes = catalog.available()
    if as_json:
        output.result_json([recipe.model_dump(mode="json") for recipe in recipes])
        return
    rows = [
        (
            recipe.name,
            recipe.target.repo,
            recipe.drafter.repo if recipe.drafter else "in the target",
        )
        for recipe in recipes
    ]
    output.result(output.table(("NAME", "TARGET", "DRAFTER"), rows))


def files_of(record: ModelRecord) -> list[tuple[str, Path, int]]:
    """(role, path, bytes) of every weight of a record."""
    speculator = record.profile.prefill.speculator
    entries = (
        ("target", record.target),
        ("drafter", record.drafter),
        ("projector", record.projector),
        ("speculator", speculator),
    )
    return [(role, entry.path, entry.size) for role, entry in entries if entry]


def _as_json(record: ModelRecord) -> dict[str, object]:
    return {
        "name": record.name,
        "digest": record.digest,
        "size": record.size,
        "lossless": record.profile.lossless,
        "created_at": record.created_at.isoformat(),
        "files": [
            {"role": role, "path": str(path), "size": size} for role, path, size in files_of(record)
        ],
    }


def _disk(records: list[ModelRecord]) -> str:
    lines = [""]
    unique: dict[Path, int] = {}
    for record in records:
        lines.append(record.name)
        for role, path, size in files_of(record):
            unique[path] = size
            lines.append(f"  {role:<11}{output.human_size(size):>8}  {path}")
    total = output.human_size(sum(unique.values()))
    lines.append(f"{len(unique)} files, {total} on disk; shared files count once")
    return "\n".join(lines)


def ago(then: datetime) -> str:
    """E.g. "3 minutes ago", the largest unit only."""
    seconds = int((datetime.now(UTC) - then).total_seconds())
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = seconds // length
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "less than a minute ago"
