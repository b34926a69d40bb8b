"""`ollama-spec pull`: fetch a target and its drafter, check the pair, give it to Ollama."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ollama_spec import catalog, config, lock, output, pull_steps, pulling, registering
from ollama_spec.errors import ConfigError, OllamaSpecError
from ollama_spec.exclusive import exclusive
from ollama_spec.hub.client import Hub
from ollama_spec.ollama_api import OllamaApi
from ollama_spec.ollama_store import OllamaStore
from ollama_spec.pulling import Plan, Planner
from ollama_spec.store import ModelRecord, ModelStore


@click.command("pull")
@click.argument("model")
@click.option("--draft", metavar="REF", help="Drafter, as hf.co/OWNER/REPO[:QUANT] or with a file.")
@click.option("--name", help="Name to give the model here and in Ollama.")
@click.option("--target-file", metavar="FILE", help="The file of the repository to use as target.")
@click.option("--draft-file", metavar="FILE", help="The file to use as drafter.")
@click.option("--projector", is_flag=True, help="Also fetch the projector for images.")
@click.option("--speculator", is_flag=True, help="Also fetch the small model for SpecPrefill.")
@click.option("--no-register", is_flag=True, help="Keep it ours: do not give it to Ollama.")
@click.option("--keep-download", is_flag=True, help="Keep a second copy after registering.")
@click.option("--locked", is_flag=True, help="Exactly what the lock says, or fail.")
@click.option("--dry-run", is_flag=True, help="Show what would be fetched; fetch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def command(
    model: str,
    draft: str | None,
    name: str | None,
    target_file: str | None,
    draft_file: str | None,
    projector: bool,
    speculator: bool,
    no_register: bool,
    keep_download: bool,
    locked: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Fetch MODEL: a tag of the catalogue or a repository of the hub.

    \b
    ollama-spec pull gemma4:e2b-mtp
    ollama-spec pull hf.co/OWNER/REPO:Q4_K_M --draft hf.co/OWNER/REPO2:Q8_0 --name mine
    ollama-spec pull --locked gemma4:e2b-mtp
    """
    hub = Hub()
    extras = {"projector"} if projector else set()
    extras |= {"speculator"} if speculator else set()
    plan = _plan(Planner(hub), model, draft, name, target_file, draft_file, extras, locked)
    for note in plan.notes:
        output.note(f"note: {note}")
    if dry_run:
        _report(plan, "planned", registered=False, as_json=as_json)
        return
    pull_steps.check_tag(plan)
    guard = lock.path_of(plan.name).with_suffix(".pulling")
    with exclusive(guard, plan.name, "fetched"):
        status, registered = _pull(hub, plan, register=not no_register, keep=keep_download)
    _report(plan, status, registered=registered, as_json=as_json)


def _plan(
    planner: Planner,
    model: str,
    draft: str | None,
    name: str | None,
    target_file: str | None,
    draft_file: str | None,
    extras: set[str],
    locked: bool,
) -> Plan:
    if locked:
        if draft or target_file or draft_file:
            raise ConfigError(
                "--locked takes everything from the lock: leave the other options out"
            )
        file = Path(model)
        wanted = lock.load(file.read_text(), model) if file.is_file() else lock.get(model)
        return planner.locked(wanted, name)
    if not pulling.is_reference(model):
        if draft or target_file or draft_file:
            raise ConfigError(
                "--draft and the file options go with a repository, not with a catalogue tag",
                hint="pull hf.co/OWNER/REPO --draft hf.co/OWNER/REPO2 --name NAME",
            )
        return planner.recipe(catalog.find(model), name, extras)
    target = pulling.reference(model)
    drafter = pulling.reference(draft) if draft else None
    if target_file:
        target = pulling.Reference(target.repo, None, target_file, target.revision)
    if draft_file:
        home = drafter or target
        drafter = pulling.Reference(home.repo, None, draft_file, home.revision)
    return planner.free(target, drafter, name, extras)


def _pull(hub: Hub, plan: Plan, *, register: bool, keep: bool) -> tuple[str, bool]:
    """Fetch, check, register, record; returns what happened and whether Ollama has it."""
    upstream = config.load().upstream
    with OllamaApi(upstream) as api:
        there = register and bool(upstream) and api.reachable()
        if _up_to_date(plan, api if there else None):
            return "up to date", there
        pull_steps.check_space(plan, _ollama_models() if there else None)
        files = pull_steps.fetch(hub, plan)
        try:
            pull_steps.check_pair(files)
        except OllamaSpecError:
            registering.drop_downloads(files)
            raise
        pull_steps.tell_memory(files)
        record = pull_steps.record_of(plan, files)
        if there:
            registering.register(api, *registering.for_ollama(record, files))
            record = _after_registering(api, record)
        elif register:
            output.note(
                f"note: no Ollama at {upstream or 'no address'}, so the model is ours alone; "
                "start Ollama and pull again to register it (nothing is fetched twice)"
            )
        ModelStore().put(record)
        lock.save(plan.lock)
        if there and not keep:
            registering.drop_downloads(files)
        return "pulled", there


def _after_registering(api: OllamaApi, record: ModelRecord) -> ModelRecord:
    try:
        return registering.use_ollamas_copy(api, record)
    except OllamaSpecError as error:
        output.note(f"note: {error.message}; the download stays")
        if error.hint:
            output.note(f"hint: {error.hint}")
        return record


def _up_to_date(plan: Plan, api: OllamaApi | None) -> bool:
    record = ModelStore().find(plan.name)
    known = lock.find(plan.name) if record else None
    if record is None or known is None or not known.same_content(plan.lock):
        return False
    entries = (record.target, record.drafter, record.projector)
    if not all(entry.path.is_file() for entry in entries if entry):
        return False
    if api is None:
        return True
    try:
        return f"{record.target.path}" in str(api.show(plan.name).get("modelfile", ""))
    except OllamaSpecError:
        return False


def _ollama_models() -> Path | None:
    store = OllamaStore.local()
    return store.root if store else None


def _report(plan: Plan, status: str, *, registered: bool, as_json: bool) -> None:
    files = pull_steps.listing_of(plan)
    if as_json:
        value: dict[str, Any] = {
            "name": plan.name,
            "status": status,
            "registered": registered,
            "files": files,
            "notes": plan.notes,
            "lock": str(lock.path_of(plan.name)),
            "profile": plan.lock.profile.model_dump(mode="json"),
        }
        output.result_json(value)
        return
    if status != "planned":
        output.result(f"{plan.name}: {status}" + (", registered with Ollama" if registered else ""))
        return
    rows = [
        (
            file["role"],
            f"{file['repo']}/{file['file']}",
            output.human_size(file["size"]),
            output.human_size(file["to_fetch"]),
            (file["sha256"] or "-")[:12],
        )
        for file in files
    ]
    output.result(output.table(("ROLE", "FILE", "SIZE", "TO FETCH", "SHA256"), rows))
