"""The measured tables of README.md, made from bench/results.

    python bench/readme_tables.py          write them between their markers
    python bench/readme_tables.py --check  exit code 1 if README.md is not in step

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME is a key of TABLES.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
_MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def load(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def rows_of(header: list[str], rows: list[list[str]]) -> str:
    rule = "|".join(["---"] * len(header))
    return "\n".join([f"| {' | '.join(header)} |", f"|{rule}|", *map(_row, rows)])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def interval(value: dict[str, float], digits: int = 2) -> str:
    return f"{value['value']:.{digits}f} [{value['low']:.{digits}f}, {value['high']:.{digits}f}]"


def decode() -> str:
    """bench-inflated.json: `ollama-spec bench` of the inflated pair."""
    result = load("bench-inflated")
    rows = [
        [
            line["set"],
            line["config"],
            interval(line["tokens_per_second"], 1),
            interval(line["speed_ratio"]),
            line["verdict"],
            "–" if line["acceptance"] is None else f"{line['acceptance']:.2f}",
            f"{line['regret_nats_per_token']:.3f}",
        ]
        for line in result["summary"]
    ]
    header = ["prompts", "", "tok/s", "vs plain", "verdict", "acceptance", "regret/token"]
    return rows_of(header, rows)


def prefill() -> str:
    """bench-long.json: dense and sparse prefill of long documents."""
    result = load("bench-long")
    rows = [
        [
            f"{line['prompt_tokens']:.0f}",
            "dense" if line["config"] == "plain" else line["config"],
            f"{line['ttft_ms']['value'] / 1000:.1f} s",
            interval(line["ttft_gain"]),
        ]
        for line in result["summary"]
    ]
    return rows_of(["prompt tokens", "prefill", "wait for the first token", "gain"], rows)


def tune() -> str:
    """tune-*.json: what `tune` chose against an exhaustive grid (bench/tune_grid.py)."""
    rows = []
    for path in sorted(RESULTS.glob("tune-*.json")):
        found = json.loads(path.read_text())
        share = f"{found['share_of_best']['value']:.1%}"
        servers, rules = str(found["servers_started"]), str(len(found["grid"]))
        rows.append([found["name"], found["chosen"], found["best_of_grid"], share, servers, rules])
    return rows_of(
        ["pair", "`tune` chose", "best of the grid", "chosen / best", "servers", "rules in grid"],
        rows,
    )


TABLES: dict[str, Callable[[], str]] = {"decode": decode, "prefill": prefill, "tune": tune}


def filled(text: str) -> str:
    """`text` with every marked table made anew."""
    return _MARKED.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}\n{match[3]}", text)


def main() -> None:
    readme = ROOT / "README.md"
    before = readme.read_text()
    after = filled(before)
    if "--check" in sys.argv[1:]:
        sys.exit(before != after)
    readme.write_text(after)


if __name__ == "__main__":
    main()
