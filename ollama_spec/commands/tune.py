"""`tune`: find the fastest settings of drafting for a model on this machine."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ollama_spec import output, paths
from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import session, tune
from ollama_spec.measure.replay import Rule
from ollama_spec.store import ModelStore


@click.command("tune", short_help="Find a model's fastest drafting settings on this machine.")
@click.argument("name")
@click.option("--allow-lossy", is_flag=True, help="Consider relaxed acceptance, which is lossy.")
@click.option("--dry-run", is_flag=True, help="Measure and report; leave the profile as it is.")
@click.option("--quick", is_flag=True, help="Few prompts and repeats: a rough answer in minutes.")
@click.option("--temperature", default=0.6, show_default=True, help="Of the measured requests.")
@click.option("--runner", type=click.Path(path_type=Path, exists=True), help="llama-server to use.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    name: str, allow_lossy: bool, dry_run: bool, quick: bool, temperature: float,
    runner: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Tune NAME and write the result, with its evidence, to its profile.

    Starts two servers: the plain target, and the target with its drafter. The machine should be
    otherwise idle. Never makes a model lossy without --allow-lossy.
    """
    store = ModelStore()
    record = store.get(name)
    if record.drafter is None and not record.profile.spec.type:
        raise OllamaSpecError(
            f"{record.name} has no drafter to tune", hint="create it with a DRAFT line, or pull it"
        )
    binary = session.chosen_runner(runner)
    session.need_ours(binary)
    effort = tune.QUICK if quick or dry_run else tune.FULL
    found = tune.tune(
        binary, record, effort, lossy=allow_lossy, temperature=temperature, note=output.note
    )
    found["machine"] = {"cpu": platform.processor() or platform.machine(), "node": platform.node()}
    found["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    found["written"] = not dry_run
    if not dry_run:
        rule = Rule(**{key: found["chosen"][key] for key in Rule.__dataclass_fields__})
        store.put(record.model_copy(update={"profile": tune.profile_with(record.profile, rule)}))
        evidence = paths.data_dir() / "evidence" / f"{record.digest[:12]}.json"
        paths.atomic_write(evidence, (json.dumps(found, indent=2) + "\n").encode())
        found["evidence"] = str(evidence)
    if as_json:
        output.result_json(found)
    else:
        output.result(_text(found))


def _text(found: dict[str, Any]) -> str:
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
    where = (
        f"written to the profile; evidence: {found['evidence']}" if found["written"] else "dry run"
    )
    return f"{table}\n\nchosen: {chosen['label']} ({kind}); {where}"
