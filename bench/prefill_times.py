"""Waiting times of bench/prefill.py: dense and sparse, scoring, later turns."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from prefill_fixtures import Bench, Row, document

from ollama_spec.measure.client import Answer, Client


def waiting_times(bench: Bench) -> list[Row]:
    """TTFT of the inflated target, dense and sparse in turns."""
    lengths, repeats = ((2500,), 1) if bench.quick else ((4000, 7300), 2)
    asked: dict[str, Any] = {"dense": False, "0.3": {"keep": 0.3}, "0.15": {"keep": 0.15}}
    rows = []
    with bench.server(bench.repeated(8)) as url, Client(url) as client:
        for length in lengths:
            seen: dict[str, list[Answer]] = defaultdict(list)
            for repeat in range(repeats):
                for number, (name, value) in enumerate(asked.items()):
                    text = renamed(document(repeat, length), number)
                    seen[name].append(
                        client.ask(text, 1, specprefill=value, cache_prompt=False, temperature=0)
                    )
            for name, said in seen.items():
                rows.append({"keep": name, **_waited(seen["dense"], said)})
                bench.say(
                    f"  {rows[-1]['n_prompt']} tokens, keep {name}: TTFT {rows[-1]['ttft_s']:.1f} "
                    f"s, {rows[-1]['gain']:.2f}x dense (kept {rows[-1]['n_kept']})"
                )
    return rows


def renamed(prompt: str, number: int) -> str:
    """The same work, but no beginning that the speculator or the target has in its cache."""
    return prompt.replace("about a document", f"about document {chr(ord('A') + number)}", 1)


def _waited(dense: list[Answer], said: list[Answer]) -> Row:
    gains = [one.ttft / other.ttft for one, other in zip(dense, said, strict=True)]
    reports = [answer.timings["specprefill"] for answer in said]
    row: Row = {"n_prompt": round(statistics.median(report["n_prompt"] for report in reports))}
    row["n_kept"] = round(statistics.median(report["n_kept"] for report in reports))
    row["status"] = sorted({report["status"] for report in reports})
    row["ttft_s"] = statistics.median(answer.ttft for answer in said)
    row["score_s"] = statistics.median(report.get("score_ms", 0) / 1000 for report in reports)
    return {**row, "gain": statistics.median(gains), "low": min(gains), "high": max(gains)}


def scoring_cost(bench: Bench) -> Row:
    """Scoring against a plain prefill of the speculator just before and just after, in one process,
    so that neither side always has the fresher machine."""
    count, length = (2, 2500) if bench.quick else (3, 7000)
    prompts = [renamed(document(50 + seed, length), seed) for seed in range(count)]
    rows = bench.tool(prompts, "--time-prefill")
    ratios = [row["score_ms"] / statistics.mean(row["prefill_ms"]) for row in rows]
    memory = statistics.median(row["cache_bytes"] / row["n_prompt"] for row in rows)
    result = {"ratio": statistics.median(ratios), "n": len(ratios), "length": length}
    result |= {"low": min(ratios), "high": max(ratios)}
    times = ("prefill_ms", "prompt_ms", "query_ms")
    result["ms"] = [{name: row[name] for name in times} for row in rows]
    result["cache_mib_per_1000_tokens"] = memory * 1000 / 2**20
    bench.say(f"  scoring costs {result['ratio']:.2f}x a plain prefill of the speculator")
    bench.say(f"  its cache: {result['cache_mib_per_1000_tokens']:.1f} MiB per 1000 tokens")
    return result


def later_turns(bench: Bench) -> list[Row]:
    """TTFT of the turns of one chat: dense with the prefix cache, sparse with reuse.

    The sparse chat's prompts are then asked again without reuse: do the answers stay the same?
    """
    turns, tokens = (3, 1600) if bench.quick else (5, 4000)
    dense, _ = chat(bench, turns, document(7, tokens), False)
    sparse, prompts = chat(bench, turns, document(7, tokens), SPARSE_TURN)
    without = bench.server(bench.repeated(8), "--specprefill-reuse", "off")
    with without as url, Client(url) as client:
        fresh = [client.ask(text, 12, specprefill=SPARSE_TURN, **KEEPING) for text in prompts]
    rows = []
    for turn, (one, other, anew) in enumerate(zip(dense, sparse, fresh, strict=True), 1):
        row = {"turn": turn, "dense_s": one.ttft, "sparse_s": other.ttft, "fresh_s": anew.ttft}
        row |= {"ratio": other.ttft / one.ttft, "same_as_fresh": other.text == anew.text}
        row |= {"status": other.timings["specprefill"]["status"]}
        row |= {"texts": [one.text, other.text, anew.text]}
        rows.append(row)
        bench.say(
            f"  turn {turn}: dense {one.ttft:.2f} s, sparse {other.ttft:.2f} s ({row['status']}, "
            f"{row['ratio']:.2f} of dense), answer {'same' if row['same_as_fresh'] else 'differs'}"
        )
    return rows


SPARSE_TURN = {"keep": 0.3}
KEEPING: Row = {"cache_prompt": True, "temperature": 0}


def chat(bench: Bench, turns: int, text: str, value: Any) -> tuple[list[Answer], list[str]]:
    """Answers and prompts of a chat that grows by its own answers."""
    said, prompts = [], []
    with bench.server(bench.repeated(8)) as url, Client(url) as client:
        for turn in range(turns):
            prompts.append(text)
            said.append(client.ask(text, 12, specprefill=value, **KEEPING))
            text += said[-1].text + "<|im_end|>\n<|im_start|>user\n"
            text += f"Question {turn + 2}: say in your own words what the secret access code "
            text += "is for, and what else you know.<|im_end|>\n<|im_start|>assistant\n"
    return said, prompts
