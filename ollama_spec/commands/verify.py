"""`verify`: prove that drafting does what it claims with this model and runner."""

from __future__ import annotations

from pathlib import Path

import click

from ollama_spec import config, output, sidecar_api
from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import render, session, sparse, verify, verify_model
from ollama_spec.measure.check import Check
from ollama_spec.ollama_api import OllamaApi
from ollama_spec.store import ModelStore


@click.command("verify", short_help="Check drafting and acceptance against plain decoding.")
@click.argument("name")
@click.option(
    "--sparse", "with_sparse", is_flag=True, help="Check sparse prefill too (needles, KL)."
)
@click.option(
    "--render",
    "rendering",
    is_flag=True,
    help="Only compare the prompts of sidecar and Ollama; both must run.",
)
@click.option("--quick", is_flag=True, help="Fewer prompts.")
@click.option(
    "--runner", type=click.Path(path_type=Path, exists=True), help="llama-server to judge."
)
@click.option(
    "--stock", type=click.Path(path_type=Path, exists=True),
    help="Unchanged llama-server that computes the plain answers.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    name: str,
    with_sparse: bool,
    rendering: bool,
    quick: bool,
    runner: Path | None,
    stock: Path | None,
    as_json: bool,
) -> None:
    """Check NAME with the runner in use; exit code 1 when a check fails.

    Speed is not measured: half of the cores are used. Minutes for a small model on a CPU.
    """
    record = ModelStore().get(name)
    if rendering:
        settings = config.load()
        ours, theirs = OllamaApi(sidecar_api.url(settings)), OllamaApi(settings.upstream)
        with ours, theirs:
            renderings = render.compare(ours, theirs, record.name)
        if as_json:
            shown = [item.as_json() for item in renderings]
            output.result_json({"model": record.name, "renderings": shown})
        else:
            output.result(render.report(renderings))
        render.need_same(renderings)
        return
    binary = session.chosen_runner(runner)
    session.need_ours(binary)
    plain = session.chosen_runner(stock) if stock else None
    found = [verify_model.pair(record)]
    if record.drafter or record.profile.spec.type:
        output.note(f"verifying {record.name} with {binary.build}")
        with verify.opened(binary, record, quick=quick, stock=plain) as bench:
            found += verify.run(bench, output.note)
    if record.projector:
        found.append(verify_model.images(binary, record, output.note))
    if with_sparse:
        with sparse.opened(binary, record, quick=quick, stock=plain) as grid:
            found += sparse.run(grid, output.note)
    if len(found) == 1:
        raise OllamaSpecError(
            f"{record.name} has nothing to verify: no drafter", hint="add a DRAFT, or use --sparse"
        )
    failed = [check.name for check in found if not check.passed]
    if as_json:
        output.result_json(
            {
                "model": record.name,
                "runner": binary.build,
                "passed": not failed,
                "checks": [check.as_json() for check in found],
            }
        )
    else:
        output.result("\n".join(_text(check) for check in found))
    if failed:
        raise OllamaSpecError(
            f"{len(failed)} of {len(found)} checks failed: {', '.join(failed)}",
            hint="do not trust this runner with this model; `ollama-spec build rollback` goes back",
        )


def _text(check: Check) -> str:
    lines = [f"{'pass' if check.passed else 'FAIL'}  {check.name}: {check.proves}"]
    lines += [f"      {failure}" for failure in check.failures[:8]]
    if check.figures:
        lines.append("      " + ", ".join(f"{key} {value}" for key, value in check.figures.items()))
    lines += [f"      | {sample!r}" for sample in check.samples[:6]]
    return "\n".join(lines)
