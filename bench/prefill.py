"""Sparse prefill against dense: waiting time, needles, next-token distribution, later turns.

    python bench/prefill.py [--quick] [--json] [--threads N] [--only PART ...]

Speculator: SmolLM2-135M. Target: the same model with every block eight times, so that it says the
same at eight times the cost. Prompts are free text (the reference topics of pydoc) made here.
Configurations take turns on the same prompts. The last line is one JSON object, also written to
bench/results/ with a plot beside it. `--json` prints nothing else.

For another model, and a windowed one at that: `--only recall --only answers --model FILE --plain`.
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
KEEPS = (0.05, 0.1, 0.2, 0.3)
CHARACTERS_A_TOKEN = 4.5  # of this text, by SmolLM2
NEEDLE_TOKENS = 3200
Row = dict[str, Any]
Case = tuple[int, float, NeedlePrompt]  # needles, depth, prompt


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.quick, self.silent, self.threads = options.quick, options.json, str(options.threads)
        self.plain = options.plain
        artefact = ArtefactStore().current()
        folder = Path(options.runner).parent if options.runner else None
        if folder is None and artefact is None:
            raise SystemExit("no runner: run `ollama-spec build` first, or give --runner")
        self.bin = folder or artefact.server.parent  # type: ignore[union-attr]
        self.speculator = Path(options.model) if options.model else demo_model.target()
        self.target = paths.cache_dir() / "bench" / "smollm2-x8.gguf"
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

    def inflated(self) -> Path:
        return inflate.inflate(self.speculator, self.target, 8)

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
    with bench.server(bench.inflated(), "--specprefill-tail", "64") as url, Client(url) as client:
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
    memory = statistics.median(row["cache_bytes"] / row["n_prompt"] for row in rows)
    result = {"ratio": statistics.median(ratios), "n": len(ratios), "length": length}
    result["cache_mib_per_1000_tokens"] = memory * 1000 / 2**20
    bench.say(f"  scoring costs {result['ratio']:.2f}x a plain prefill of the speculator")
    bench.say(f"  its cache: {result['cache_mib_per_1000_tokens']:.1f} MiB per 1000 tokens")
    return result


def needle_cases(bench: Bench, tokens: int, seeds: int) -> list[Case]:
    size = int(tokens * CHARACTERS_A_TOKEN)
    return [
        (count, depth, needle_prompt(seed, depth, size, needles=count, plain=bench.plain))
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


def recall(bench: Bench) -> list[Row]:
    """Share of needle tokens kept, by length and keep; tail 64, so that it cannot help."""
    lengths = {NEEDLE_TOKENS: 2} if bench.quick else {1600: 2, NEEDLE_TOKENS: 8, 6400: 2}
    rows = []
    for length, seeds in lengths.items():
        cases = needle_cases(bench, length, seeds)
        keeps = [word for keep in KEEPS for word in ("--keep", str(keep))]
        texts = [prompt.text for _, _, prompt in cases]
        found = iter(bench.tool(texts, "--scores", "--tail", "64", *keeps))
        sums: dict[tuple[int, float, float], list[int]] = defaultdict(lambda: [0, 0])
        for count, depth, prompt in cases:
            for keep in KEEPS:
                got, need = kept_share(prompt, next(found))
                for cell in ((count, keep, depth), (count, keep, 0.0)):  # depth 0: all of them
                    sums[cell][0] += got
                    sums[cell][1] += need
        for (count, keep, depth), (got, need) in sorted(sums.items()):
            row = {"length": length, "needles": count, "keep": keep, "depth": depth}
            rows.append(row | {"recall": got / need})
            if depth == 0:
                where = f"  {length} tokens, {count} needle(s), keep {keep:.0%}"
                bench.say(f"{where}: {got / need:.1%} of their tokens kept")
    return rows


def answers(bench: Bench) -> list[Row]:
    """Whether the answer is right after a sparse prefill of 10 %, and after a dense one."""
    cases = needle_cases(bench, NEEDLE_TOKENS, 1 if bench.quick else 8)
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    with bench.server(bench.speculator, "--specprefill-tail", "64") as url, Client(url) as client:
        for count, _, prompt in cases:
            keys: Row = {"cache_prompt": False, "temperature": 0}
            texts = [
                client.ask(prompt.text, 24 * count, specprefill=value, **keys).text
                for value in (False, {"keep": 0.1})
            ]
            right = [sum(code in text for code in prompt.codes) for text in texts]
            for index, value in enumerate((*right, count)):
                sums[count][index] += value
    rows = []
    for count, (dense, sparse, asked) in sorted(sums.items()):
        rows.append({"needles": count, "dense": dense, "sparse": sparse, "asked": asked})
        bench.say(f"  {count} needle(s): dense {dense}, sparse {sparse} of {asked} codes right")
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
    """TTFT of the turns of one chat: dense with the prefix cache, sparse with reuse.

    The sparse chat's prompts are then asked again without reuse: do the answers stay the same?
    """
    turns, tokens = (3, 2500) if bench.quick else (5, 4000)
    dense, _ = chat(bench, turns, document(7, tokens), False)
    sparse, prompts = chat(bench, turns, document(7, tokens), SPARSE_TURN)
    again = ["--specprefill-tail", "64", "--specprefill-reuse", "off"]
    with bench.server(bench.inflated(), *again) as url, Client(url) as client:
        fresh = [client.ask(text, 12, specprefill=SPARSE_TURN, temperature=0) for text in prompts]
    rows = []
    for turn, (one, other, anew) in enumerate(zip(dense, sparse, fresh, strict=True), 1):
        row = {"turn": turn, "dense_s": one.ttft, "sparse_s": other.ttft, "fresh_s": anew.ttft}
        row |= {"ratio": other.ttft / one.ttft, "same_as_fresh": other.text == anew.text}
        row |= {"status": other.timings["specprefill"]["status"]}
        rows.append(row)
        bench.say(
            f"  turn {turn}: dense {one.ttft:.2f} s, sparse {other.ttft:.2f} s ({row['status']}, "
            f"{row['ratio']:.2f} of dense), answer {'same' if row['same_as_fresh'] else 'differs'}"
        )
    return rows


SPARSE_TURN = {"keep": 0.3}


def chat(bench: Bench, turns: int, text: str, value: Any) -> tuple[list[Any], list[str]]:
    """Answers and prompts of a chat that grows by its own answers."""
    said, prompts = [], []
    arguments = ["--specprefill-tail", "64"]
    with bench.server(bench.inflated(), *arguments) as url, Client(url) as client:
        for turn in range(turns):
            prompts.append(text)
            said.append(client.ask(text, 12, specprefill=value, temperature=0))
            text += said[-1].text + "<|im_end|>\n<|im_start|>user\n"
            text += f"Question {turn + 2}: say in your own words what the secret access code "
            text += "is for, and what else you know.<|im_end|>\n<|im_start|>assistant\n"
    return said, prompts


def plot(result: Row) -> str:
    """TTFT gain and needle recall by length and keep, as one SVG."""
    gains = [
        (f"{row['n_prompt']} tokens, keep {float(row['keep']):.0%}", row["gain"])
        for row in result["waiting"]
        if row["keep"] != "dense"
    ]
    shares = [
        (f"{row['length']} tokens, {row['needles']}, keep {row['keep']:.0%}", 100 * row["recall"])
        for row in result["recall"]
        if row["depth"] == 0
    ]
    charts = [
        ("Time to first token: dense over sparse (x)", gains),
        ("Needle tokens kept, by prompt, needles and keep (%)", shares),
    ]
    parts, y = [], 0
    for title, values in charts:
        parts.append(f'<text x="4" y="{y + 18}" font-weight="bold">{title}</text>')
        top = max(value for _, value in values)
        for label, value in values:
            y += 20
            parts.append(f'<text x="4" y="{y + 18}">{label}</text>')
            width = 220 * value / top
            parts.append(f'<rect x="230" y="{y + 8}" width="{width:.0f}" height="12"/>')
            parts.append(f'<text x="{width + 236:.0f}" y="{y + 18}">{value:.3g}</text>')
        y += 44
    body = "\n".join(parts)
    style = "text{font:12px sans-serif;fill:#333}rect{fill:#3b6fb6}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="520" height="{y}">'
        f'<style>{style}</style><rect width="520" height="{y}" style="fill:#fff"/>{body}</svg>\n'
    )


PARTS = {
    "waiting": ("1. waiting time, target inflated x8", waiting_times),
    "scoring": ("   cost of scoring", scoring_cost),
    "recall": ("2. needles: what is kept, tail 64", recall),
    "answers": ("   needles: answers at keep 10 %, tail 64", answers),
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
    parser.add_argument("--plain", action="store_true", help="no chat markers, for base models")
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
    name = f"prefill{'-quick' if bench.quick else ''}"
    (folder / f"{name}.json").write_text(line + "\n")
    if "waiting" in result and "recall" in result:
        (folder / f"{name}.svg").write_text(plot(result))
    print(line)


if __name__ == "__main__":
    main()
