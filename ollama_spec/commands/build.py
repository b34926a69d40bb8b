"""`build`: make the patched runner, and choose among those built."""

from __future__ import annotations

import click

from ollama_spec import config, output
from ollama_spec.artefacts import Artefact, ArtefactStore
from ollama_spec.build.native import build_native
from ollama_spec.errors import NotFoundError


@click.group("build", invoke_without_command=True, short_help="Build the patched llama-server.")
@click.option("--tag", help="llama.cpp tag, e.g. b10488.  [default: from the configuration]")
@click.option("--source", help="git, registry, or a folder with llama.cpp.  [default: auto]")
@click.option("--stock", is_flag=True, help="Build llama.cpp as it comes, for comparisons.")
@click.option("--jobs", type=int, help="Parallel compilers.  [default: by cores and free memory]")
@click.option("--use/--no-use", default=True, help="Make it the runner in use afterwards.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(
    ctx: click.Context,
    tag: str | None,
    source: str | None,
    stock: bool,
    jobs: int | None,
    use: bool,
    as_json: bool,
) -> None:
    """Build llama.cpp's server at the tag Ollama carries, with our overlay, and put it in use.

    A build that fails or is interrupted leaves the runner in use as it was.
    """
    if ctx.invoked_subcommand is not None:
        return
    artefact = build_native(
        tag or config.load().llama_tag, stock=stock, source=source, jobs=jobs, use=use
    )
    _show(artefact, as_json)


@command.command("list", short_help="The runners built here, newest first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_(as_json: bool) -> None:
    """Show every runner built here, which is in use, and which `rollback` returns to."""
    store = ArtefactStore()
    items = store.list()
    if as_json:
        output.result_json([_facts(item, store) for item in items])
        return
    rows = [
        [
            {"current": "*", "previous": "-"}.get(str(facts["state"]), ""),
            str(facts["key"]),
            str(facts["tag"]),
            str(facts["engine"]),
            str(facts["backend"]),
            "with overlay" if facts["overlay"] else "stock",
            str(facts["created_at"])[:19],
        ]
        for facts in (_facts(item, store) for item in items)
    ]
    output.result(output.table(["", "KEY", "TAG", "ENGINE", "BACKEND", "KIND", "BUILT"], rows))


@command.command("use", short_help="Choose a runner by (the beginning of) its key.")
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def use(key: str, as_json: bool) -> None:
    """Make the runner KEY the one in use."""
    store = ArtefactStore()
    artefact = store.get(key)
    store.use(artefact)
    _show(artefact, as_json)


@command.command("remove", short_help="Delete a runner that is not in use.")
@click.argument("key")
def remove(key: str) -> None:
    """Delete the runner KEY."""
    store = ArtefactStore()
    artefact = store.get(key)
    store.remove(artefact)
    output.note(f"removed {artefact.manifest.key}")


@command.command("rollback", short_help="Return to the runner used before.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rollback(as_json: bool) -> None:
    """Swap the runner in use with the one used before it."""
    store = ArtefactStore()
    previous = store.previous()
    if previous is None:
        raise NotFoundError("no earlier runner to return to", hint="see `ollama-spec build list`")
    store.use(previous)
    _show(previous, as_json)


def _facts(artefact: Artefact, store: ArtefactStore) -> dict[str, object]:
    key = artefact.manifest.key
    state = None
    for name, item in (("current", store.current()), ("previous", store.previous())):
        if state is None and item and item.manifest.key == key:
            state = name
    return {
        **artefact.manifest.model_dump(mode="json"),
        "state": state,
        "server": str(artefact.server),
    }


def _show(artefact: Artefact, as_json: bool) -> None:
    if as_json:
        output.result_json(_facts(artefact, ArtefactStore()))
    else:
        output.result(str(artefact.server))
