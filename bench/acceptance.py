"""Relaxed acceptance against strict and plain decoding, on two pairs made here.

    python bench/acceptance.py [--quick] [--json]

1. The inflated pair: SmolLM2-135M at F16 with every block repeated, so that decoding is bound by
   memory, and SmolLM2 Q2_K as its drafter.
2. The wired Gemma 4 pair with `draft-mtp`, with its default and with a weak drafter.
3. Quality: regret, likelihood under the plain target, requests under a JSON schema.

All configurations take turns on the same prompts and seeds. The last line is one JSON object.
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

from ollama_spec import demo_model, output, paths
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.measure import prompts, quality
from ollama_spec.measure.client import Client
from ollama_spec.measure.fixtures import inflate, wired
from ollama_spec.measure.matrix import Configuration, measure, summarise
from ollama_spec.measure.server import basic_argv, free_port, running

STRICT = {"speculative.relaxed_top_n": 0}
RELAXED = {"speculative.relaxed_top_n": 5, "speculative.relaxed_ratio": 0.25}


def note(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def pair_servers(runner: Path, target: Path, drafter: Path, kind: str, n_max: int, threads: int):
    """Clients of the plain target and of the pair."""
    base = ["-t", str(threads)]
    draft = ["--spec-type", kind, "--spec-draft-model", str(drafter)]
    draft += ["--spec-draft-n-max", str(n_max), "-td", str(threads)]
    plain_port, pair_port = free_port(), free_port()
    with (
        running([*basic_argv(runner, target, plain_port), *base], plain_port) as plain_url,
        running([*basic_argv(runner, target, pair_port), *base, *draft], pair_port) as pair_url,
        Client(plain_url) as plain,
        Client(pair_url) as pair,
    ):
        yield plain, pair


def configurations(plain: Client, pair: Client, depths: list[int]) -> list[Configuration]:
    found = [Configuration("plain", plain)]
    for n in depths:
        found.append(Configuration(f"strict n{n}", pair, {**STRICT, "speculative.n_max": n}))
        found.append(Configuration(f"relaxed n{n}", pair, {**RELAXED, "speculative.n_max": n}))
    return found


def table(lines: list[dict]) -> str:
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


def best(lines: list[dict], kind: str) -> dict:
    mine = [line for line in lines if line["config"].startswith(kind)]
    return max(mine, key=lambda line: line["tokens_per_second"]["value"])


def inflated_part(a: argparse.Namespace, runner: Path, target: Path, drafter: Path) -> dict:
    large = target.with_name(f"{target.stem}.x{a.factor}-f16.gguf")
    inflate.inflate(target, large, a.factor, half=True)
    with pair_servers(runner, large, drafter, "draft-simple", max(a.depths), a.threads) as clients:
        plain, pair = clients
        asked = [plain.render(text) for text in prompts.mixture(a.prompts)]
        rows = measure(
            configurations(plain, pair, a.depths), asked, a.tokens, a.repeats, note=note,
            prompt_set="inflated", temperature=0.6, ignore_eos=True,
        )  # fmt: skip
    lines = summarise(rows, "plain")
    print(f"\n## inflated pair: SmolLM2 F16 x{a.factor}, drafter {drafter.name}, T 0.6\n")
    print(table(lines))
    strict, relaxed = best(lines, "strict"), best(lines, "relaxed")
    speeds = [
        line["tokens_per_second"]["value"] for line in (best(lines, "plain"), strict, relaxed)
    ]
    return {
        "lines": lines,
        "best_strict": strict["config"],
        "best_relaxed": relaxed["config"],
        "relaxed_over_strict": round(speeds[2] / speeds[1], 3),
        "relaxed_over_plain": round(speeds[2] / speeds[0], 3),
        "regret_nats_per_token": relaxed["regret_nats_per_token"],
    }


def wired_part(a: argparse.Namespace, runner: Path, folder: Path, name: str, options) -> dict:
    made = wired.make_pair(folder / name, options)
    starts = ["The value of", "If a class defines", "A function call", "The import statement",
              "An object of", "Names refer to", "The following", "When an exception"]  # fmt: skip
    depths = [n for n in a.depths if n <= 4]
    with pair_servers(runner, made.target, made.drafter, "draft-mtp", max(depths), 1) as clients:
        rows = measure(
            configurations(*clients, depths), starts, a.wired_tokens, a.repeats, note=note,
            prompt_set=f"wired {name}", temperature=0.8, top_k=64, min_p=0.01, ignore_eos=True,
        )  # fmt: skip
        sampling = {"temperature": 0.8, "top_k": 64, "min_p": 0.01, "ignore_eos": True}
        likelihood = likelihoods(*clients, starts, 64, sampling, depths[-1])
    lines = summarise(rows, "plain")
    print(f"\n## wired MTP pair, {name} drafter, T 0.8\n")
    print(table(lines))
    length = {line["config"]: line["acceptance_length"] for line in lines}
    gains = {n: round(length[f"relaxed n{n}"] / length[f"strict n{n}"], 3) for n in depths}
    return {"lines": lines, "tau_relaxed_over_strict": gains, "likelihood": likelihood}


def likelihoods(
    plain: Client, pair: Client, starts: list[str], n_predict: int, sampling: dict, n_max: int
) -> dict:
    """Nats per token under the plain target, of relaxed and of strict output."""
    found = {}
    for kind, rule in (("strict", STRICT), ("relaxed", RELAXED)):
        options = {**sampling, **rule, "speculative.n_max": n_max}
        found[kind] = quality.mean_log_likelihood(pair, plain, starts, n_predict, options)
    found = {kind: round(value, 4) for kind, value in found.items()}
    return {**found, "loss": round(found["strict"] - found["relaxed"], 4)}


def quality_part(a: argparse.Namespace, runner: Path, target: Path, drafter: Path) -> dict:
    with pair_servers(runner, target, drafter, "draft-simple", 4, a.threads) as (plain, pair):
        asked = [plain.render(text) for text in prompts.mixture(a.prompts)]
        sampling = {"temperature": 0.6}
        likelihood = likelihoods(plain, pair, asked, a.tokens, sampling, 4)
        note("schema requests")
        checked = quality.check_json(
            pair, a.schemas, {**sampling, **RELAXED, "speculative.n_max": 4}, note
        )
    print(
        f"\n## quality, SmolLM2 pair, T 0.6\n\nlikelihood, nats per token: {likelihood}\n{checked}"
    )
    return {"likelihood": likelihood, "schema": vars(checked)}


def machine() -> dict:
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
    for name in ("prompts", "tokens", "repeats"):
        parser.add_argument(f"--{name}", type=int, help="instead of what --quick or full sets")
    parser.add_argument(
        "--depths",
        type=lambda text: [int(n) for n in text.split(",")],
        help="values of n_max, e.g. 2,4",
    )
    parser.add_argument("--only", choices=["inflated", "wired", "quality"])
    parser.add_argument("--save", type=Path, help="write the result as JSON here too")
    a = parser.parse_args()
    full = {"prompts": 30, "tokens": 96, "repeats": 5, "depths": list(range(1, 9)),
            "wired_tokens": 128, "schemas": 500}  # fmt: skip
    quick = {"prompts": 4, "tokens": 40, "repeats": 2, "depths": [2, 4],
             "wired_tokens": 128, "schemas": 30}  # fmt: skip
    for key, value in (quick if a.quick else full).items():
        if getattr(a, key, None) is None:
            setattr(a, key, value)
    return a


def main() -> None:
    a = parse()
    runner = find_runner(a.runner)
    target = a.target or demo_model.target(paths.cache_dir() / "demo")
    drafter = a.drafter or demo_model.drafter(runner.with_name("llama-quantize"), target)
    result = {"benchmark": "acceptance", "quick": a.quick, **machine()}
    talk = io.StringIO() if a.json else sys.stdout
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(talk):
        if a.only in (None, "wired"):
            made = {"default": wired.DEFAULT, "weak": wired.WEAK}
            result["wired"] = {
                name: wired_part(a, runner, Path(folder), name, options)
                for name, options in made.items()
            }
        if a.only in (None, "inflated"):
            result["inflated"] = inflated_part(a, runner, target, drafter)
        if a.only in (None, "quality"):
            result["quality"] = quality_part(a, runner, target, drafter)
    result["seconds"] = round(time.monotonic() - START, 1)
    if a.save:
        a.save.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


START = time.monotonic()
if __name__ == "__main__":
    main()
