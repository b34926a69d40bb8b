"""What the parts of bench/acceptance.py share: servers, configurations, turns, tables."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ollama_spec import output
from ollama_spec.measure.client import Client
from ollama_spec.measure.matrix import Configuration, measure, summarise
from ollama_spec.measure.server import basic_argv, free_port, running

STRICT = {"speculative.relaxed_top_n": 0}
RELAXED = {"speculative.relaxed_top_n": 5, "speculative.relaxed_ratio": 0.25}


def note(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def pair_servers(
    runner: Path, target: Path, drafter: Path, kind: str, n_max: int, threads: int, *more: str
) -> Iterator[tuple[Client, Client]]:
    """Clients of the plain target and of the pair."""
    base = ["-t", str(threads)]
    draft = ["--spec-type", kind, "--spec-draft-model", str(drafter)]
    draft += ["--spec-draft-n-max", str(n_max), *more]
    plain_port, pair_port = free_port(), free_port()
    with (
        running([*basic_argv(runner, target, plain_port), *base], plain_port) as plain_url,
        running([*basic_argv(runner, target, pair_port), *base, *draft], pair_port) as pair_url,
        Client(plain_url) as plain,
        Client(pair_url) as pair,
    ):
        yield plain, pair


def take_turns(
    rows_file: Path | None,
    stage: str,
    configurations: Sequence[Configuration],
    asked: Sequence[str],
    tokens: int,
    repeats: int,
    **options: Any,
) -> list[dict[str, Any]]:
    """Rows of all repeats of a stage. With `rows_file` each repeat is kept there once it is done,
    and a later run goes on after the last one, so that a long table may be taken in pieces."""
    kept = []
    if rows_file and rows_file.exists():
        lines = rows_file.read_text().splitlines()
        kept = [row for row in map(json.loads, lines) if row["set"] == stage]
    rows = []
    for repeat in range(repeats):
        done = [row for row in kept if row["repeat"] == repeat]
        if not done:
            turn = configurations if repeat % 2 == 0 else configurations[::-1]
            done = measure(
                turn, asked, tokens, 1, note=lambda _: None, prompt_set=stage,
                seed=1000 * repeat + 7, cache_prompt=True, **options,
            )  # fmt: skip
            done = [row | {"repeat": repeat, "text": ""} for row in done]
            if rows_file:
                with rows_file.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in done)
        rows += done
        note(f"{stage}: repeat {repeat + 1} of {repeats}")
    return rows


def lines_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return summarise(rows, "plain")


def table(lines: Sequence[dict[str, Any]]) -> str:
    rows = []
    for line in lines:
        speed, ratio = line["tokens_per_second"], line["speed_ratio"]
        rows.append(
            [
                line["config"],
                f"{speed['value']:.1f} [{speed['low']:.1f}, {speed['high']:.1f}]",
                f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}] {line['verdict']}",
                "-" if line["acceptance"] is None else f"{line['acceptance']:.3f}",
                "-" if line["acceptance_length"] is None else f"{line['acceptance_length']:.2f}",
                f"{line['relaxed_share']:.3f}",
                f"{line['regret_nats_per_token']:.4f}",
            ]
        )
    header = ["config", "tok/s", "vs plain", "acceptance", "tau", "relaxed", "regret/token"]
    return output.table(header, rows)


def speed_of(line: dict[str, Any]) -> float:
    return float(line["tokens_per_second"]["value"])


def best(lines: Sequence[dict[str, Any]], kind: str, count: int = 1) -> list[dict[str, Any]]:
    """The fastest `count` lines of a kind, fastest first."""
    mine = [line for line in lines if line["config"].startswith(kind)]
    return sorted(mine, key=speed_of, reverse=True)[:count]
