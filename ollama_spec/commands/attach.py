"""`attach`: the installed Ollama, run with our llama-server, without changing its files."""

from __future__ import annotations

from pathlib import Path

import click

from ollama_spec import config, names, output
from ollama_spec.errors import NotFoundError
from ollama_spec.ollama_store import OllamaStore
from ollama_spec.runner import argv, attach_run, attach_tree, binary, planning
from ollama_spec.store import ModelStore


@click.command("attach", short_help="Run your Ollama with our runner inside a private tree.")
@click.option("--ollama", "program", type=click.Path(path_type=Path), help="The `ollama` program.")
@click.option("--host", default="127.0.0.1:11436", show_default=True, help="Where to listen.")
@click.option("--models", type=click.Path(path_type=Path), help="Ollama's models folder.")
@click.option("--runner", help="llama-server to use instead of the built one.")
@click.option("--print", "show", is_flag=True, help="Show the tree and end.")
@click.option("--remove", is_flag=True, help="Remove the tree and end.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
@click.option("--ready-file", type=click.Path(path_type=Path, dir_okay=False), hidden=True)
def command(
    program: Path | None,
    host: str,
    models: Path | None,
    runner: str | None,
    show: bool,
    remove: bool,
    as_json: bool,
    ready_file: Path | None,
) -> int:
    """Ollama renders, parses and schedules; our runner computes.

    For models whose prompt Ollama renders itself (gemma4, qwen3.5 and others) this is the way to
    the very same answers. A model takes part when `ollama-spec` and Ollama both know its name.
    """
    if remove:
        removed = attach_tree.remove()
        if as_json:
            output.result_json({"removed": removed})
        else:
            output.result("removed the tree" if removed else "there was no tree")
        return 0
    installed = attach_tree.find_installed(program)
    chosen = binary.find(config.load(runner=runner))
    store = OllamaStore(models) if models else OllamaStore.local()
    if store is None:
        raise NotFoundError(
            "Ollama's models folder was not found", hint="name it with --models or OLLAMA_MODELS"
        )
    folder = attach_tree.root() / installed.identity / "trace"
    flags, traces = _models(store, chosen, folder)
    tree = attach_tree.build(installed, chosen.path, flags)
    if show:
        if as_json:
            output.result_json({"tree": str(tree), "runner": str(chosen.path), "models": flags})
        else:
            output.result("\n".join(attach_tree.describe(tree)))
        return 0
    attached = attach_run.Attached(tree, store.root, traces, chosen.build)
    return attach_run.serve(attached, host, ready_file)


def _models(
    store: OllamaStore, chosen: binary.Binary, folder: Path
) -> tuple[dict[str, list[str]], dict[tuple[str, str, str, str], Path]]:
    """Flags by blob, and traces by name, of the models that both stores know."""
    flags: dict[str, list[str]] = {}
    traces: dict[tuple[str, str, str, str], Path] = {}
    for record in ModelStore().list():
        name = names.parse(record.name)
        stored = store.find(name.full)
        target = stored.weight("model") if stored else None
        if stored is None or target is None:
            continue
        kind = None if stored.layer("draft") else planning.spec_kind(record)
        extra = argv.profile_flags(chosen, record, kind)
        if "--spec-draft-trace" in chosen.flags:
            folder.mkdir(parents=True, exist_ok=True)
            traces[name.key] = folder / f"{target.path.name}.jsonl"
            traces[name.key].unlink(missing_ok=True)
            extra += ["--spec-draft-trace", str(traces[name.key])]
        flags[str(target.path)] = extra
    return flags, traces
