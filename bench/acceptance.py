"""Relaxed acceptance against strict and plain decoding, on two pairs made here.

    python bench/acceptance.py [--quick] [--json]

1. The inflated pair: SmolLM2-135M at F16 with every block repeated, so that decoding is bound by
   memory, and SmolLM2 Q2_K as its drafter.
2. The wired Gemma 4 pair with `draft-mtp`, with its default and with a weak drafter.
3. Quality: regret, likelihood under the plain target, requests under JSON schemas and with tools.
4. Adaptive depth against every fixed one on code, lists, prose and chat.

All configurations take turns on the same prompts and seeds. The last line is one JSON object.
A full run takes hours on two cores: `--only` takes one part, `--rows FILE` lets parts 1 and 4 go on
where an earlier run stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acceptance_adaptive import adaptive
from acceptance_inflated import inflated
from acceptance_pairs import RELAXED, STRICT, lines_of, note, pair_servers, table
from acceptance_quality import checked, likelihoods

from ollama_spec import demo_model, paths
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.measure.fixtures import wired
from ollama_spec.measure.matrix import Configuration, measure

PARTS = ("wired", "inflated", "adaptive", "quality")
FULL = {
    "prompts": 30, "tokens": 48, "repeats": 5, "depths": list(range(1, 9)), "scan_prompts": 6,
    "kind_prompts": 4, "kind_repeats": 2, "wired_tokens": 128, "wired_repeats": 5, "schemas": 500,
}  # fmt: skip
QUICK = {
    "prompts": 4, "tokens": 32, "repeats": 2, "depths": [2, 4, 5], "scan_prompts": 2,
    "kind_prompts": 2, "kind_repeats": 1, "wired_tokens": 96, "wired_repeats": 1, "schemas": 30,
}  # fmt: skip


def wired_pairs(a: argparse.Namespace, runner: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: wired_part(a, runner, Path(folder), name, options)
            for name, options in {"default": wired.DEFAULT, "weak": wired.WEAK}.items()
        }


def wired_part(
    a: argparse.Namespace, runner: Path, folder: Path, name: str, options: Any
) -> dict[str, Any]:
    made = wired.make_pair(folder / name, options)
    starts = ["The value of", "If a class defines", "A function call", "The import statement",
              "An object of", "Names refer to", "The following", "When an exception"]  # fmt: skip
    depths = [n for n in a.depths if n <= 4]
    with pair_servers(runner, made.target, made.drafter, "draft-mtp", max(depths), 1) as clients:
        sampling = {"temperature": 0.8, "top_k": 64, "min_p": 0.01, "ignore_eos": True}
        plain, pair = clients
        modes = [Configuration("plain", plain)]
        for n in depths:
            for kind, rule in (("strict", STRICT), ("relaxed", RELAXED)):
                options = {**rule, "speculative.n_max": n}
                modes.append(Configuration(f"{kind} n{n}", pair, options))
        rows = measure(
            modes, starts, a.wired_tokens, a.wired_repeats, note=note,
            prompt_set=f"wired {name}", **sampling,
        )  # fmt: skip
        likelihood = likelihoods(*clients, starts, 64, sampling, depths[-1])
    lines = lines_of(rows)
    print(f"\n## wired MTP pair, {name} drafter, T 0.8\n")
    print(table(lines))
    length = {line["config"]: line["acceptance_length"] for line in lines}
    gains = {n: round(length[f"relaxed n{n}"] / length[f"strict n{n}"], 3) for n in depths}
    return {
        "tau_relaxed_over_strict": gains,
        "holds": all(gains[n] >= 1.15 for n in depths if n >= 2),
        "likelihood": likelihood,
        "lines": lines,
    }


def machine() -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    # Folders of the machine are of no use to a reader of the result.
    said = [Path(item).name if item.startswith("/") else item for item in sys.argv[1:]]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "command": " ".join(["python", "bench/acceptance.py", *said]),
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def find_runner(chosen: Path | None) -> Path:
    if chosen:
        return chosen
    current = ArtefactStore().current()
    if current is None:
        sys.exit("no runner is built: run `ollama-spec build`, or pass --runner")
    return current.server


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer prompts, depths and repeats")
    parser.add_argument("--json", action="store_true", help="only the JSON line on stdout")
    parser.add_argument("--runner", type=Path, help="llama-server with our overlay")
    parser.add_argument("--target", type=Path, help="a small GGUF instead of SmolLM2")
    parser.add_argument("--drafter", type=Path, help="its drafter")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--factor", type=int, default=8, help="how often each block is repeated")
    for name in [key for key in FULL if key != "depths"]:
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=int, help="instead of what --quick or full sets")
    parser.add_argument("--finalists", type=int, default=1, help="n_max of each mode in the final")
    parser.add_argument("--rows", type=Path, help="keep finished repeats here, go on after them")
    parser.add_argument("--trace", type=Path, help="NDJSON trace of the inflated pair")
    parser.add_argument(
        "--depths",
        type=lambda text: [int(n) for n in text.split(",")],
        help="values of n_max, e.g. 2,4",
    )
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--save", type=Path, help="write the result as JSON here too")
    a = parser.parse_args()
    for key, value in (QUICK if a.quick else FULL).items():
        if getattr(a, key) is None:
            setattr(a, key, value)
    return a


def main() -> None:
    a = parse()
    runner = find_runner(a.runner)
    target = a.target or demo_model.target(paths.cache_dir() / "demo")
    drafter = a.drafter or demo_model.drafter(runner.with_name("llama-quantize"), target)
    result: dict[str, Any] = {"benchmark": "acceptance", "quick": a.quick, **machine()}
    parts = {
        "wired": lambda: wired_pairs(a, runner),
        "inflated": lambda: inflated(a, runner, target, drafter),
        "adaptive": lambda: adaptive(a, runner, target, drafter),
        "quality": lambda: checked(a, runner, target, drafter),
    }
    with contextlib.redirect_stdout(io.StringIO() if a.json else sys.stdout):
        for name in PARTS:
            if a.only in (None, name):
                result[name] = parts[name]()
                note(f"{name} done after {time.monotonic() - START:.0f} s")
    result["seconds"] = round(time.monotonic() - START, 1)
    if a.save:
        a.save.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


START = time.monotonic()
if __name__ == "__main__":
    main()
