"""Sparse prefill against dense: waiting time, needles, next-token distribution, later turns.

    python bench/prefill.py [--quick] [--json] [--threads N] [--only PART ...]

Speculator: SmolLM2-135M, in F16 (on a CPU its Q4_1 prefills at half that speed). Target: the same
model with every block eight times, so that it says the same at eight times the cost. Prompts are
free text (the reference topics of pydoc) made here. Configurations take turns on the same prompts.
The last line is one JSON object, also written to bench/results/ with a plot beside it; a run with
`--only` replaces these parts there. `--json` prints nothing else.

`--gemma` takes gemma3-270m, a base model with windowed layers: needles and next token only.
`--tokens N` asks for the needles in prompts of N tokens; its results have a file of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from acceptance import machine
from prefill_fixtures import Bench, Row
from prefill_needles import answers, divergence, ranking, recall
from prefill_plot import plot
from prefill_times import later_turns, scoring_cost, waiting_times

RESULTS = Path(__file__).parent / "results"
PARTS = {
    "waiting": ("1. waiting time, target inflated x8", waiting_times),
    "scoring": ("   cost of scoring", scoring_cost),
    "recall": ("2. needles: what is kept, tail 64", recall),
    "ranking": ("   the same by ranking alone, no anchors", ranking),
    "answers": ("   needles: answers at keep 10 %, tail 64", answers),
    "divergence": ("3. next-token distribution, keep 30 %", divergence),
    "turns": ("4. later turns", later_turns),
}


def main() -> None:
    options = parse()
    bench = Bench(options)
    name = "prefill" + ("-quick" if bench.quick else "")
    name += "-gemma3-270m" if options.gemma else ""
    name += f"-{options.tokens}" if options.tokens else ""
    path = RESULTS / f"{name}.json"
    usual = ("recall", "answers", "divergence") if options.gemma else PARTS
    wanted = options.only or [part for part in usual if not (bench.quick and part == "ranking")]
    whole: Row = {}
    for part, (title, run) in PARTS.items():
        if part not in wanted:
            continue
        bench.say(title)
        start = time.monotonic()
        about = {**machine(), "command": f"python bench/prefill.py {_arguments()}".strip()}
        about["threads"] = options.threads
        rows = run(bench)
        if options.only and path.exists():  # read late: other parts may have ended meanwhile
            whole = json.loads(path.read_text())
        whole[part] = {**about, "rows": rows, "seconds": round(time.monotonic() - start)}
        RESULTS.mkdir(exist_ok=True)  # each part as it ends: the whole takes more than an hour
        path.write_text(json.dumps(whole, indent=1) + "\n")
    if {"waiting", "recall"} <= whole.keys():
        path.with_suffix(".svg").write_text(plot(whole))
    print(json.dumps({"when": datetime.now(UTC).isoformat(timespec="seconds"), **whole}))


def _arguments() -> str:
    """As given, folders left out."""
    return shlex.join(Path(item).name if item.startswith("/") else item for item in sys.argv[1:])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="under 15 minutes on 2 cores")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--runner", help="llama-server to use; its folder holds llama-specprefill")
    parser.add_argument("--gemma", action="store_true", help="quality of gemma3-270m instead")
    parser.add_argument("--tokens", type=int, help="length of the needle prompts")
    parser.add_argument("--only", choices=sorted(PARTS), action="append")
    return parser.parse_args()


if __name__ == "__main__":
    main()
