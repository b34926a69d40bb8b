"""`build`: make the patched runner, and choose among those built."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ollama_spec import output
from ollama_spec.artefacts import Artefact, ArtefactStore
from ollama_spec.build import check as checks
from ollama_spec.build import docker_plan, engines
from ollama_spec.build import follow as following
from ollama_spec.errors import BuildError, NotFoundError, OverlayError

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """What to build: shared by `build` itself and `build follow`."""
    for option in reversed(
        (
            click.option(
                "--tag", help="llama.cpp tag, e.g. b10488.  [default: what Ollama carries]"
            ),
            click.option(
                "--engine",
                type=click.Choice(engines.ENGINES),
                default="auto",
                help="thin links Ollama's libraries, native compiles all, docker does so in a "
                "container.  [default: auto]",
            ),
            click.option("--source", help="git, registry, or a llama.cpp folder.  [default: auto]"),
            click.option(
                "--jobs", type=int, help="Parallel compilers.  [default: cores and memory]"
            ),
            click.option("--library", type=_FOLDER, help="thin: Ollama's lib/ollama."),
            click.option(
                "--compat",
                default="auto",
                help="native, docker: Ollama's source for its compat layer: auto, none, git or a "
                "folder.  [default: auto]",
            ),
            click.option(
                "--backend",
                type=click.Choice(docker_plan.BACKENDS),
                help="docker: what to build; native: cpu or cuda.",
            ),
            click.option("--cuda-arch", help='e.g. "86;120".  [default: the GPUs here]'),
            click.option("--base-image", help="docker: image with compiler or CUDA devel."),
            click.option("--mirror", help="docker: registry to take the base image from."),
            click.option(
                "--in-container", is_flag=True, help="docker: also run the result in its image."
            ),
        )
    ):
        function = option(function)
    return function


@click.group("build", invoke_without_command=True, short_help="Build the patched llama-server.")
@_options
@click.option("--stock", is_flag=True, help="Build llama.cpp as it comes, for comparisons.")
@click.option("--use/--no-use", default=True, help="Make it the runner in use afterwards.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; needs no daemon.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(dry_run: bool, as_json: bool, **values: Any) -> None:
    """Build llama.cpp's server at the tag Ollama carries, with our overlay, and put it in use.

    A build that fails or is interrupted leaves the runner in use as it was.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    request = engines.Request(**values)
    choice = engines.choose(request)
    if dry_run:
        _dry_run(request, choice, as_json)
        return
    output.note(f"llama.cpp {choice.tag} ({choice.why}), engine {choice.engine}")
    _show(engines.build(request, choice), as_json)


def _dry_run(request: engines.Request, choice: engines.Choice, as_json: bool) -> None:
    facts: dict[str, Any] = {"tag": choice.tag, "engine": choice.engine, "why": choice.why}
    if choice.engine == "docker":
        facts |= engines.plan_docker(request, choice).model_dump(mode="json")
    elif choice.engine == "thin":
        facts["library"] = str(choice.library)
    else:
        facts["backend"] = engines.native_backend(request)
    if as_json:
        output.result_json(facts)
        return
    long = {name: facts.pop(name) for name in ("dockerfile", "script") if name in facts}
    lines = [f"{name}: {value}" for name, value in facts.items()]
    output.result("\n".join([*lines, *(f"\n--- {name}\n{text}" for name, text in long.items())]))


@command.command("check", short_help="Does the overlay fit these llama.cpp tags?")
@click.option("--tags", default="all", help="Comma list, or all: Ollama's pins and the newest.")
@click.option("--source", help="git, registry, or a llama.cpp folder.  [default: auto]")
@click.option("--compile/--no-compile", "compile_", default=True, help="Also compile, no linking.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def check(tags: str, source: str | None, compile_: bool, as_json: bool) -> None:
    """Apply the hooks to each tag and compile what they touch (syntax only).

    A tag without a source is checked as the nearest tag that has one.
    """
    results = []
    for tag in checks.resolve_tags(tags):
        results.append(checks.check_tag(tag, source=source, compile_=compile_))
        if not as_json:
            output.result(_check_line(results[-1]))
    if as_json:
        output.result_json([item.model_dump(mode="json") for item in results])
    bad = [item.tag for item in results if item.error]
    if bad:
        raise OverlayError(f"the overlay does not fit {', '.join(bad)}")


def _check_line(item: checks.CheckResult) -> str:
    as_ = "" if item.checked_as == item.tag else f" (checked as {item.checked_as})"
    compiles = {True: ", compiles", False: ", does not compile", None: ""}[item.compiles]
    verdict = ("applies" if item.applies else "does not apply") + compiles
    return f"{item.tag}{as_}: {verdict}" + (f": {item.error}" if item.error else "")


@command.command("follow", short_help="Build anew when Ollama has changed.")
@_options
@click.option("--interval", type=float, help="Look again every so many seconds, for ever.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per look.")
def follow(interval: float | None, as_json: bool, **values: Any) -> None:
    """Build for the Ollama found now and switch to it; the runner before stays for rollback.

    When the build fails, the runner in use stays and the reason is told.
    """
    request = engines.Request(**values)
    while True:
        found = following.follow(request)
        if as_json:
            output.result_json(found.model_dump(mode="json"))
        elif found.error is None:
            word = "now in use" if found.changed else "already in use"
            output.result(f"{found.now}: {word}")
        if interval is None:
            break
        if found.error:
            output.note(f"stays on {found.now or 'no runner'}: {found.error}")
        time.sleep(interval)
    if found.error:
        raise BuildError(f"stays on {found.now or 'no runner'}: {found.error}", hint=found.hint)


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
