"""`tune`: find the fastest settings of drafting for a model on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ollama_spec import output, paths
from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import bench, paired, session, tune, tune_prefill
from ollama_spec.measure.replay import Rule
from ollama_spec.store import ModelStore


@click.command("tune", short_help="Find a model's fastest drafting settings on this machine.")
@click.argument("name")
@click.option("--allow-lossy", is_flag=True, help="Consider lossy settings: relaxed acceptance.")
@click.option("--prefill", is_flag=True, help="Find the keep curve of sparse prefill as well.")
@click.option(
    "--task", type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="GSM8K file for the quality gate instead of the questions shipped.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, help="Measure as --quick does; leave the profile as it is."
)
@click.option("--quick", is_flag=True, help="Few prompts and repeats: a rough answer in minutes.")
@click.option("--temperature", default=0.6, show_default=True, help="Of the measured requests.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the runner. [default: its own]")
@click.option("--runner", type=click.Path(path_type=Path, exists=True), help="llama-server to use.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    name: str, allow_lossy: bool, prefill: bool, task: Path | None, dry_run: bool, quick: bool,
    temperature: float, threads: int | None, runner: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Tune NAME and write the result, with its evidence, to its profile.

    Starts a few servers, at most three at a time. The machine should be otherwise idle. Never makes
    a model lossy without --allow-lossy.
    """
    store = ModelStore()
    record = store.get(name)
    drafts = bool(record.drafter or record.profile.spec.type)
    if not drafts and not prefill:
        raise OllamaSpecError(
            f"{record.name} has no drafter to tune", hint="create it with a DRAFT line, or pull it"
        )
    binary = session.chosen_runner(runner)
    session.need_ours(binary)
    session.warn_if_busy(output.note)
    brief = quick or dry_run
    found: dict[str, Any] = {"model": record.name, "machine": bench.machine()}
    profile = record.profile
    if drafts:
        effort = tune.QUICK if brief else tune.FULL
        tasks = paired.from_file(task, effort.tasks) if task else None
        found |= tune.tune(
            binary, record, effort, lossy=allow_lossy, temperature=temperature, threads=threads,
            tasks=tasks, note=output.note,
        )  # fmt: skip
        chosen = {key: found["chosen"][key] for key in Rule.__dataclass_fields__}
        profile = tune.profile_with(profile, Rule(**chosen))
    if prefill:
        size = tune_prefill.QUICK if brief else tune_prefill.FULL
        found["prefill"] = tune_prefill.tune(binary, record, size, threads, output.note)
        if allow_lossy:
            changed = tune_prefill.profile_with(profile.prefill, found["prefill"]["keep"])
            profile = profile.model_copy(update={"prefill": changed})
    found["written"] = not dry_run
    if not dry_run:
        store.put(record.model_copy(update={"profile": profile}))
        evidence = paths.data_dir() / "evidence" / f"{record.digest[:12]}.json"
        paths.atomic_write(evidence, (json.dumps(found, indent=2) + "\n").encode())
        found["evidence"] = str(evidence)
    if as_json:
        output.result_json(found)
    else:
        output.result(_text(found))


def _text(found: dict[str, Any]) -> str:
    parts = [_drafting(found)] if "chosen" in found else []
    if "prefill" in found:
        parts.append(_prefill(found["prefill"]))
    where = (
        f"written to the profile; evidence: {found['evidence']}" if found["written"] else "dry run"
    )
    return "\n\n".join([*parts, where])


def _prefill(found: dict[str, Any]) -> str:
    rows = []
    for line in found["measured"]:
        gain = line.get("ttft_gain")
        shown = f"{gain['value']:.2f} [{gain['low']:.2f}, {gain['high']:.2f}]" if gain else "-"
        keep = "-" if line["keep"] is None else f"{line['keep']:g}"
        verdict = "sparse" if line.get("passed") else "dense"
        rows.append([str(line["tokens"]), keep, shown, str(line.get("lost", "-")), verdict])
    return output.table(["TOKENS", "KEEP", "TTFT GAIN", "FACTS LOST", "CHOSEN"], rows)


def _drafting(found: dict[str, Any]) -> str:
    rows = [
        [
            line["config"],
            f"{line['tokens_per_second']['value']:.1f}",
            f"{line['speed_ratio']['value']:.2f} "
            f"[{line['speed_ratio']['low']:.2f}, {line['speed_ratio']['high']:.2f}]",
            line["verdict"],
            f"{line['regret_nats_per_token']:.4f}",
        ]
        for line in found["confirmed"]
    ]
    table = output.table(["CONFIG", "TOK/S", "VS PLAIN", "VERDICT", "REGRET/TOKEN"], rows)
    chosen = found["chosen"]
    kind = "lossless" if chosen["lossless"] else "LOSSY"
    return f"{table}\n\nchosen: {chosen['label']} ({kind})"
