"""Sparse prefill against dense: waiting time, needles, next-token distribution, later turns.

    python bench/prefill.py [--quick] [--json] [--threads N]

Speculator: SmolLM2-135M. Target: the same model with every block eight times, so that it says the
same at eight times the cost. Prompts are free text (the reference topics of pydoc) made here.
Configurations take turns on the same prompts. The last line is one JSON object, also written to
bench/results/. `--json` prints nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ollama_spec import demo_model, paths
from ollama_spec.artefacts import ArtefactStore
from ollama_spec.measure.client import Client
from ollama_spec.measure.fixtures import inflate
from ollama_spec.measure.fixtures.needles import NeedlePrompt, needle_prompt
from ollama_spec.measure.server import free_port, running

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
CHARACTERS_A_TOKEN = 4.0
Row = dict[str, Any]


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.quick, self.silent, self.threads = options.quick, options.json, str(options.threads)
        artefact = ArtefactStore().current()
        folder = Path(options.runner).parent if options.runner else None
        if folder is None and artefact is None:
            raise SystemExit("no runner: run `ollama-spec build` first, or give --runner")
        self.bin = folder or artefact.server.parent  # type: ignore[union-attr]
        self.speculator = Path(options.model) if options.model else demo_model.target()
        self.target = paths.cache_dir() / "bench" / "smollm2-x8.gguf"
        inflate.inflate(self.speculator, self.target, 8)
        self.folder = Path(tempfile.mkdtemp(prefix="bench-prefill-"))

    def say(self, text: str) -> None:
        if not self.silent:
            print(text, flush=True)

    def tool(self, prompts: list[str], *arguments: str) -> list[Row]:
        """One report of llama-specprefill a prompt."""
        argv = [str(self.bin / "llama-specprefill"), "-m", str(self.speculator), "--json"]
        argv += ["-t", self.threads, *arguments]
        for index, prompt in enumerate(prompts):
            path = self.folder / f"{index}.txt"
            path.write_text(prompt)
            argv += ["-f", str(path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def server(self, model: Path, *arguments: str) -> Any:
        port = free_port()
        argv = [str(self.bin / "llama-server"), "-m", str(model), "--port", str(port)]
        argv += ["-np", "1", "-c", "8192", "-t", self.threads, "-b", "512", "--no-webui"]
        argv += ["--specprefill-model", str(self.speculator), "--specprefill-min-tokens", "256"]
        return running([*argv, "--specprefill-min-gain", "0", *arguments], port)


def document(seed: int, tokens: int) -> str:
    return needle_prompt(seed, 0.4, int(tokens * CHARACTERS_A_TOKEN)).text


def waiting_times(bench: Bench) -> list[Row]:
    """TTFT of the inflated target, dense and sparse in turns."""
    lengths, repeats = ((4000,), 1) if bench.quick else ((4000, 7300), 3)
    asked: dict[str, Any] = {"dense": False, "0.3": {"keep": 0.3}, "0.15": {"keep": 0.15}}
    rows = []
    with bench.server(bench.target, "--specprefill-tail", "64") as url, Client(url) as client:
        for length in lengths:
            seen: dict[str, list[float]] = defaultdict(list)
            last: dict[str, Row] = {}
            for repeat in range(repeats):
                prompt = document(repeat, length)
                for name, value in asked.items():
                    answer = client.ask(
                        prompt, 1, specprefill=value, cache_prompt=False, temperature=0
                    )
                    seen[name].append(answer.ttft)
                    last[name] = answer.timings["specprefill"]
            for name, times in seen.items():
                ratios = [d / t for d, t in zip(seen["dense"], times, strict=True)]
                row = {"keep": name, "n_prompt": last[name]["n_prompt"]}
                row |= {"n_kept": last[name]["n_kept"], "ttft_s": statistics.median(times)}
                row |= {"gain": statistics.median(ratios), "status": last[name]["status"]}
                row |= {"score_ms": last[name].get("score_ms", 0.0)}
                rows.append(row)
                bench.say(
                    f"  {row['n_prompt']} tokens, keep {name}: TTFT {row['ttft_s']:.1f} s, "
                    f"{row['gain']:.2f}x dense ({row['status']}, kept {row['n_kept']})"
                )
    return rows


def scoring_cost(bench: Bench) -> Row:
    """Scoring against a plain prefill of the speculator, prompt by prompt in one process."""
    count, length = (2, 4000) if bench.quick else (5, 7000)
    prompts = [document(50 + seed, length) for seed in range(count)]
    rows = bench.tool(prompts, "--target", str(bench.speculator))
    ratios = [row["score_ms"] / row["target"]["dense_ms"] for row in rows]
    result = {"ratio": statistics.median(ratios), "n": len(ratios), "length": length}
    bench.say(f"  scoring costs {result['ratio']:.2f}x a plain prefill of the speculator")
    return result


def needle_prompts(bench: Bench) -> list[tuple[int, float, NeedlePrompt]]:
    seeds, tokens = (2, 3200) if bench.quick else (8, 3200)
    return [
        (count, depth, needle_prompt(seed, depth, int(tokens * CHARACTERS_A_TOKEN), needles=count))
        for count in (1, 3)
        for seed in range(seeds)
        for depth in DEPTHS
    ]


def kept_share(prompt: NeedlePrompt, row: Row) -> tuple[int, int]:
    """Needle tokens kept, needle tokens."""
    kept = {index for first, last in row["ranges"] for index in range(first, last)}
    offsets, got, need = row["offsets"], 0, 0
    for start, end in prompt.spans:
        for index in range(row["n_prompt"]):
            if offsets[index] < end and offsets[index + 1] > start:
                need += 1
                got += index in kept
    return got, need


def needles(bench: Bench) -> list[Row]:
    """Recall of needle tokens at keep 10 %, tail 64, and whether the answer is right."""
    prompts = needle_prompts(bench)
    texts = [prompt.text for _, _, prompt in prompts]
    scored = bench.tool(texts, "--scores", "--keep", "0.1", "--tail", "64")
    sums: dict[tuple[int, float], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    with bench.server(bench.speculator, "--specprefill-tail", "64") as url, Client(url) as client:
        for (count, depth, prompt), row in zip(prompts, scored, strict=True):
            got, need = kept_share(prompt, row)
            answers = [
                client.ask(
                    prompt.text,
                    24 * count,
                    specprefill=value,
                    cache_prompt=False,
                    temperature=0,
                ).text
                for value in (False, {"keep": 0.1})
            ]
            right = [sum(code in text for code in prompt.codes) for text in answers]
            for index, value in enumerate((got, need, *right, count)):
                sums[count, depth][index] += value
    rows = []
    for (count, depth), (got, need, dense, sparse, asked) in sorted(sums.items()):
        row = {"needles": count, "depth": depth, "recall": got / need, "asked": asked}
        rows.append(row | {"right_dense": dense, "right_sparse": sparse})
        bench.say(
            f"  {count} needle(s) at {depth}: {got / need:.1%} of their tokens kept; "
            f"codes answered: dense {dense}, sparse {sparse} of {asked}"
        )
    return rows


def divergence(bench: Bench) -> Row:
    """KL(dense || sparse) of the next token at keep 30 %, by kind of positions."""
    count, tokens = (8, 2000) if bench.quick else (40, 3200)
    prompts = [document(100 + seed, tokens) for seed in range(count)]
    rows = bench.tool(prompts, "--keep", "0.3", "--tail", "64", "--target", str(bench.speculator))
    result: Row = {"n": count}
    for kind in ("original", "compact"):
        values = [row["target"][f"kl_{kind}"] for row in rows]
        same = sum(row["target"][f"same_{kind}"] for row in rows)
        result[kind] = {"mean": statistics.mean(values), "median": statistics.median(values)}
        result[kind]["same_token"] = same / count
        bench.say(
            f"  {kind} positions: KL mean {result[kind]['mean']:.4f}, median "
            f"{result[kind]['median']:.4f} nats, same token {same} of {count}"
        )
    return result


def later_turns(bench: Bench) -> list[Row]:
    """TTFT of the turns of one chat: dense with the prefix cache, sparse with reuse."""
    turns, tokens = (3, 2500) if bench.quick else (5, 4000)
    runs: dict[str, list[Row]] = {}
    for name, value in (("dense", False), ("sparse", {"keep": 0.3})):
        with bench.server(bench.target, "--specprefill-tail", "64") as url, Client(url) as client:
            text, runs[name] = document(7, tokens), []
            for turn in range(turns):
                answer = client.ask(text, 12, specprefill=value, temperature=0)
                runs[name].append({"ttft": answer.ttft, **answer.timings["specprefill"]})
                text += answer.text + "<|im_end|>\n<|im_start|>user\n"
                text += f"Question {turn + 2}: say in your own words what the secret access code "
                text += "is for, and what else you know.<|im_end|>\n<|im_start|>assistant\n"
    rows = []
    for turn, (dense, sparse) in enumerate(zip(runs["dense"], runs["sparse"], strict=True), 1):
        row = {"turn": turn, "dense_s": dense["ttft"], "sparse_s": sparse["ttft"]}
        rows.append(row | {"status": sparse["status"], "ratio": sparse["ttft"] / dense["ttft"]})
        bench.say(
            f"  turn {turn}: dense {row['dense_s']:.2f} s, sparse {row['sparse_s']:.2f} s "
            f"({sparse['status']}, {rows[-1]['ratio']:.2f} of dense)"
        )
    return rows


PARTS = {
    "waiting": ("1. waiting time, target inflated x8", waiting_times),
    "scoring": ("   cost of scoring", scoring_cost),
    "needles": ("2. needles, keep 10 %, tail 64", needles),
    "divergence": ("3. next-token distribution, keep 30 %", divergence),
    "turns": ("4. later turns", later_turns),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="under 15 minutes on 2 cores")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--runner", help="llama-server to use; its folder holds llama-specprefill")
    parser.add_argument("--model", help="speculator, default: SmolLM2 from the package registry")
    parser.add_argument("--only", choices=sorted(PARTS), action="append")
    options = parser.parse_args()
    bench = Bench(options)
    result: Row = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "quick": bench.quick}
    result |= {"machine": platform.machine(), "cpus": os.cpu_count(), "threads": bench.threads}
    result["load"] = os.getloadavg()
    for name, (title, run) in PARTS.items():
        if not options.only or name in options.only:
            bench.say(title)
            result[name] = run(bench)
    line = json.dumps(result)
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"prefill{'-quick' if bench.quick else ''}.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
