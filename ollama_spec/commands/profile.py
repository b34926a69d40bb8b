"""`profile`: show or change what a model runs with."""

from __future__ import annotations

import click

from ollama_spec import output, profile_edit
from ollama_spec.errors import PairingError
from ollama_spec.modelfile import checks
from ollama_spec.profiles import Profile
from ollama_spec.store import ModelRecord, ModelStore


@click.command("profile", short_help="Show or change what a model runs with.")
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--reset", is_flag=True, help="Start from the defaults: lossless, dense.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(name: str, settings: tuple[str, ...], reset: bool, as_json: bool) -> None:
    """Show NAME's profile, or set keys of it; the next request runs with what was set.

    \b
    ollama-spec profile mypair spec.n_max=4
    ollama-spec profile mypair spec.accept.mode=relaxed spec.accept.ratio=0.25
    ollama-spec profile mypair prefill.mode=sparse prefill.speculator=./small.gguf
    """
    store = ModelStore()
    record = store.get(name)
    if settings or reset:
        start = Profile() if reset else record.profile
        record = record.model_copy(
            update={"profile": profile_edit.changed(start, profile_edit.parse(settings))}
        )
        _check(record)
        store.put(record)
    profile = record.profile
    if as_json:
        values = profile.model_dump(mode="json")
        output.result_json({"name": record.name, "lossless": profile.lossless, "profile": values})
        return
    output.result(profile_edit.as_yaml(profile))
    if not profile.lossless:
        output.note(f"note: {record.name} is lossy now; `verify` and `bench` say what it costs")


def _check(record: ModelRecord) -> None:
    """A speculator must know the target's tokens."""
    speculator = record.profile.prefill.speculator
    if speculator is None:
        return
    report = checks.check_pair(record.target.path, speculator=speculator.path)
    if not report.ok:
        raise PairingError(report.problems[0], hint=report.hints[0] if report.hints else None)
