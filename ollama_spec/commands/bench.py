"""`bench`: measure a model's configurations, or any running servers, against each other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from ollama_spec import output
from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import bench, compare, report, session
from ollama_spec.store import ModelStore

_ANSWER = 512  # tokens of context kept free for answer and template


@click.command("bench", short_help="Measure plain, strict and relaxed decoding side by side.")
@click.argument("name", required=False)
@click.option("--config", "wanted", multiple=True, help="plain, strict, relaxed or sparse.")
@click.option(
    "--set", "sets", multiple=True,
    help="chat, code, list, prose, long:TOKENS or FILE.jsonl. [default: the four short ones]",
)  # fmt: skip
@click.option(
    "--endpoint", "endpoints", multiple=True,
    help="Measure a running server instead: ollama+URL, openai+URL or llama+URL.",
)  # fmt: skip
@click.option("--prompts", "count", type=click.IntRange(1), help="Prompts of each set.")
@click.option("--tokens", type=click.IntRange(2), help="Tokens of each answer.")
@click.option("--repeats", type=click.IntRange(1), help="Times each prompt is asked.")
@click.option("--temperature", default=0.6, show_default=True)
@click.option("--quick", is_flag=True, help="Two prompts, two repeats, short answers.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the runner. [default: its own]")
@click.option("--runner", type=click.Path(path_type=Path, exists=True), help="llama-server to use.")
@click.option(
    "--compare", "files", nargs=2, type=click.Path(path_type=Path, exists=True),
    help="Compare two results of --json, speed and TTFT, instead of measuring.",
)  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path), help="Write a report page here.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write all answers here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    name: str | None, wanted: tuple[str, ...], sets: tuple[str, ...], endpoints: tuple[str, ...],
    count: int | None, tokens: int | None, repeats: int | None, temperature: float, quick: bool,
    threads: int | None, runner: Path | None, files: tuple[Path, Path] | None, html: Path | None,
    csv_file: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure NAME. Configurations take turns on the same prompts and seeds, each repeat on servers
    started anew; speeds come with 95 % bootstrap intervals, and where these allow no verdict it
    says "no difference"."""
    if files:
        _compare(*files, as_json)
        return
    if name is None:
        raise click.UsageError("NAME is needed")
    chosen = list(sets) or ["chat", "code", "list", "prose"]
    count = count or (2 if quick else 8)
    context = _ANSWER + max(bench.prompt_set(item, count)[1] for item in chosen)
    session.warn_if_busy(output.note)
    n_predict = tokens or (32 if quick else 128)
    how: dict[str, Any] = {"count": count, "n_predict": n_predict, "note": output.note}
    how |= {"repeats": repeats or (2 if quick else 5), "temperature": temperature}
    if endpoints:
        if wanted or threads:
            raise OllamaSpecError(
                "--config and --threads are for our own runner", hint="leave out --endpoint"
            )
        result = bench.run(partial(bench.remote, endpoints, name), chosen, **how)
    else:
        binary, record = session.chosen_runner(runner), ModelStore().get(name)
        serve: dict[str, Any] = {"num_ctx": max(2048, context), "threads": threads}
        result = bench.run(partial(bench.local, binary, record, wanted, **serve), chosen, **how)
        if binary.relaxed and {"strict", "relaxed"} & set(result["configurations"]):
            output.note("cost of drafting, in a run of its own")
            spent = bench.draft_cost(binary, record, chosen, n_predict=n_predict, **serve)
            for line in result["summary"]:
                if line["config"] in ("strict", "relaxed"):
                    line["draft_ms_per_round"] = spent.get(line["set"])
    result["model"] = name
    if html:
        html.write_text(report.html(result), encoding="utf-8")
        output.note(f"report: {html}")
    if csv_file:
        csv_file.write_text(report.as_csv(result), encoding="utf-8")
        output.note(f"answers: {csv_file}")
    if as_json:
        output.result_json(result)
    else:
        output.result(report.markdown(result))


def _compare(before: Path, after: Path, as_json: bool) -> None:
    lines = compare.compare(compare.load(before), compare.load(after))
    if not lines:
        raise OllamaSpecError(
            "the two results have no set and configuration in common", hint="see --set and --config"
        )
    if as_json:
        output.result_json(lines)
        return
    rows = [
        [line["set"], line["config"], *cells]
        for line in lines
        for cells in (_speed(line), _wait(line))
    ]
    header = ["SET", "CONFIG", "", "BEFORE", "AFTER", "RATIO", "VS BASELINE", "VERDICT"]
    output.result(output.table(header, rows))


def _speed(line: dict[str, Any]) -> list[str]:
    times = [f"{line[when]['value']:.1f}" for when in ("before", "after")]
    ratios = _ratios(line["speed_ratio"], line["vs_baseline"])
    return ["tok/s", *times, *ratios, line["verdict"]]


def _wait(line: dict[str, Any]) -> list[str]:
    times = [f"{value:.0f}" for value in line["ttft_ms"]]
    ratios = _ratios(line["ttft_gain"], line["ttft_vs_baseline"])
    return ["TTFT ms", *times, *ratios, line["ttft_verdict"]]


def _ratios(ratio: dict[str, float], own: list[dict[str, float] | None]) -> list[str]:
    return [
        f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]",
        ", ".join("-" if one is None else f"{one['value']:.2f}" for one in own),
    ]
