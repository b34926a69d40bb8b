"""Adaptive depth judged without a clock: recorded drafts, measured costs, the runner's own policy.

    python bench/depth_replay.py --runner llama-server [--save FILE]

Speeds of one configuration against another drown in noise on a busy machine; what a draft was and
how far it was right do not depend on it. This drafts 8 tokens a round on four kinds of prompt
(SmolLM2 and its Q2_K, strict, temperature 0.6), and replays these rounds at every fixed depth and
under both policies, at the costs of SmolLM2 F16 x8 measured on a quiet moment of two cores.
A simplification: each round is taken as it was, whatever depth the rounds before it had.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from acceptance_adaptive import KINDS, POLICIES
from acceptance_pairs import STRICT, note

from ollama_spec import demo_model, output, paths
from ollama_spec.measure import prompts
from ollama_spec.measure.client import Client
from ollama_spec.measure.server import basic_argv, free_port, running

HERE = Path(__file__).parent
DEPTH = 8
STEP_MS = 6.3
VERIFY_MS = [65.9, 113.4, 121.4, 130.6, 138.6, 142.8, 179.3, 210.5, 214.8]


def record(runner: Path, target: Path, drafter: Path, count: int, tokens: int) -> list[str]:
    """Lines "KIND TAKEN Q1..Q8", one a round."""
    port, lines = free_port(), []
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.ndjson"
        argv = [*basic_argv(runner, target, port), "-t", "1", "--spec-type", "draft-simple"]
        argv += ["--spec-draft-model", str(drafter), "--spec-draft-n-max", str(DEPTH)]
        argv += ["--spec-draft-trace", str(trace)]
        with running(argv, port) as url, Client(url) as client:
            for kind in KINDS:
                seen = trace.stat().st_size if trace.exists() else 0
                for index, text in enumerate(prompts.shipped(kind, count)):
                    asked = {"temperature": 0.6, "seed": index + 1, "ignore_eos": True, **STRICT}
                    client.ask(client.render(text), tokens, **asked)
                note(f"{kind}: recorded")
                for line in trace.read_text()[seen:].splitlines():
                    event = json.loads(line)
                    if event["path"] == "draft" and len(event["drafts"]) == DEPTH:
                        chances = " ".join(map(str, event["draft_p"][:DEPTH]))
                        lines.append(f"{kind} {event['n_accepted']} {chances}")
    return lines


def replayed(lines: list[str]) -> dict[str, dict[str, float]]:
    """Tokens per second by configuration and kind; "mixture" is all kinds together."""
    source = HERE.parent / "runner_src"
    text = "\n".join([" ".join(map(str, [STEP_MS, *VERIFY_MS])), *lines]) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "replay"
        files = [HERE / "depth_replay.cpp", source / "ospec-depth.cpp"]
        command = ["c++", "-O1", "-std=c++17", f"-I{source}", *map(str, files), "-o", str(program)]
        subprocess.run(command, check=True)
        out = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    speeds: dict[str, dict[str, float]] = defaultdict(dict)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for line in out.stdout.splitlines():
        name, kind, tokens, ms = line.split()
        speeds[name][kind] = round(1000 * float(tokens) / float(ms), 3)
        sums[name][0] += float(tokens)
        sums[name][1] += float(ms)
    for name, (tokens_, ms_) in sums.items():
        speeds[name]["mixture"] = round(1000 * tokens_ / ms_, 3)
    return dict(speeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runner", type=Path, required=True, help="llama-server with our overlay")
    parser.add_argument("--target", type=Path, help="a small GGUF instead of SmolLM2")
    parser.add_argument("--drafter", type=Path, help="its drafter")
    parser.add_argument("--prompts", type=int, default=8, help="of each kind")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--save", type=Path)
    a = parser.parse_args()
    target = a.target or demo_model.target(paths.cache_dir() / "demo")
    drafter = a.drafter or demo_model.drafter(a.runner.with_name("llama-quantize"), target)
    lines = record(a.runner, target, drafter, a.prompts, a.tokens)
    speeds = replayed(lines)
    fixed = [f"n{n}" for n in range(1, DEPTH + 1)]
    single = max(fixed, key=lambda name: speeds[name]["mixture"])
    verdicts = {}
    for policy in POLICIES:
        own = speeds[policy]
        verdicts[policy] = {
            "over_best_fixed": round(own["mixture"] / speeds[single]["mixture"], 3),
            "worst_kind_over_its_best_fixed": round(
                min(own[kind] / max(speeds[name][kind] for name in fixed) for kind in KINDS), 3
            ),
            "worst_over_plain": round(min(own[kind] / speeds["plain"][kind] for kind in own), 3),
        }
    columns = [*KINDS, "mixture"]
    rows = [[name, *(f"{row[kind]:.2f}" for kind in columns)] for name, row in speeds.items()]
    print(output.table(["tok/s", *columns], rows))
    result = {
        "benchmark": "depth_replay",
        "rounds": len(lines),
        "best_fixed": single,
        "verdicts": verdicts,
        "tokens_per_second": speeds,
        "step_ms": STEP_MS,
        "verify_ms": VERIFY_MS,
    }
    if a.save:
        a.save.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
