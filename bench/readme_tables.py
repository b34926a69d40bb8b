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

from ollama_spec.measure import compare

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


def twice() -> str:
    """bench-long*.json: two runs of `ollama-spec bench`, and what its `--compare` says."""
    results = [load("bench-long"), load("bench-long-again")]
    own = [{(line["set"], line["config"]): line for line in one["summary"]} for one in results]
    rows = []
    for line in compare.compare(*results):
        runs = [found[line["set"], line["config"]] for found in own]
        seconds = [{key: ms / 1000 for key, ms in run["ttft_ms"].items()} for run in runs]
        cells = [interval(one, 1) for one in seconds]
        cells += [interval(run["ttft_gain"]) for run in runs]
        compared = [interval(line["ttft_gain"]), line["ttft_verdict"]]
        rows.append([line["set"], line["config"], *cells, *compared])
    header = ["prompts", "", "first token, s", "again", "gain", "again", "first / again", "verdict"]
    return rows_of(header, rows)


def waits() -> str:
    """prefill.json: dense and sparse prefill of the inflated target (bench/prefill.py)."""
    rows = [
        [
            str(line["n_prompt"]),
            "dense" if line["keep"] == "dense" else f"keep {float(line['keep']):.0%}",
            str(line["n_kept"]),
            f"{line['ttft_s']:.1f} s",
            f"{line['score_s']:.1f} s",
            f"{line['gain']:.2f} [{line['low']:.2f}, {line['high']:.2f}]",
        ]
        for line in load("prefill")["waiting"]["rows"]
    ]
    return rows_of(["prompt tokens", "", "read", "first token", "of it scoring", "gain"], rows)


def needles() -> str:
    """prefill*.json: needle tokens kept, and answers right, after a sparse prefill."""
    rows = []
    for model, result, longer in _prefill_models():
        right = {line["needles"]: line for line in result["answers"]["rows"] if not line["depth"]}
        for line in result["recall"]["rows"]:
            if line["depth"] or line["keep"] not in (0.1, 0.3):
                continue
            cells = [model, str(line["length"]), str(line["needles"]), f"{line['keep']:.0%}"]
            answer = right[line["needles"]]
            asked = line["keep"] == 0.1 and line["length"] == answer["length"]
            said = f"{answer['sparse']} / {answer['dense']} of {answer['asked']}" if asked else "–"
            rows.append([*cells, f"{line['recall']:.1%}", said])
        for line in longer["answers"]["rows"]:
            if not line["depth"]:
                cells = [model, str(line["length"]), str(line["needles"]), "10%", "–"]
                rows.append([*cells, f"{line['sparse']} / {line['dense']} of {line['asked']}"])
    header = ["model", "tokens", "facts", "keep", "fact tokens kept", "right: sparse / dense"]
    return rows_of(header, rows)


def divergence() -> str:
    """prefill*.json: the next token after a sparse prefill, by kind of positions."""
    rows = []
    for model, result, _ in _prefill_models():
        found = result["divergence"]["rows"]
        for kind in ("original", "compact"):
            divergences = (f"{found[kind][key]:.3f}" for key in ("mean", "median", "worst"))
            rows.append([model, kind, *divergences, f"{found[kind]['same_token']:.0%}"])
    return rows_of(["model", "positions", "KL mean, nats", "median", "worst", "same token"], rows)


def _prefill_models() -> list[tuple[str, Any, Any]]:
    """A model, its results, and those on prompts of 4000 tokens (`--tokens 4000`)."""
    names = {"SmolLM2-135M": "prefill", "gemma3-270m": "prefill-gemma3-270m"}
    return [(model, load(name), load(f"{name}-4000")) for model, name in names.items()]


def turns() -> str:
    """prefill.json: waits of a growing chat, dense with its prefix cache and sparse with reuse."""
    rows = [
        [
            str(line["turn"]),
            *(f"{line[key]:.2f} s" for key in ("dense_s", "sparse_s")),
            f"{line['ratio']:.2f}",
            line["status"],
            "same" if line["same_as_fresh"] else "differs",
        ]
        for line in load("prefill")["turns"]["rows"]
    ]
    return rows_of(["turn", "dense", "sparse", "sparse / dense", "", "answer without reuse"], rows)


def tune() -> str:
    """tune-*.json: what `tune` chose against an exhaustive grid (bench/tune_grid.py)."""
    rows = []
    for path in sorted(RESULTS.glob("tune-*.json")):
        found = json.loads(path.read_text())
        rounds = [
            _share_of_fastest(found[key]) if key in found else "–" for key in ("final", "grid")
        ]
        servers, rules = str(found["servers_started"]), str(len(found["grid"]))
        best = found["best_of_grid"]
        rows.append([found["name"], found["chosen"], best, *rounds, servers, rules])
    header = ["pair", "`tune` chose", "best of the grid", "chosen / best", "in the first round"]
    return rows_of([*header, "servers", "rules in grid"], rows)


def _share_of_fastest(lines: list[dict[str, Any]]) -> str:
    """Of those within the budget of `tune`."""
    allowed = [line for line in lines if line["regret_nats_per_token"] <= 0.05]
    best = max(allowed, key=lambda line: line["tokens_per_second"]["value"])
    return f"{best['chosen_over_this']['value']:.1%}"


TABLES: dict[str, Callable[[], str]] = {
    "decode": decode, "waits": waits, "needles": needles, "divergence": divergence,
    "turns": turns, "tune": tune, "twice": twice,
}  # fmt: skip


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
