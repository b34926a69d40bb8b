"""Quality parts of bench/prefill.py: needles kept, answers, next-token distribution."""

from __future__ import annotations

import statistics
from collections import defaultdict

from prefill_fixtures import CHARACTERS_A_TOKEN, Bench, Row, document

from ollama_spec.measure.client import Client
from ollama_spec.measure.fixtures.needles import NeedlePrompt, needle_prompt

DEPTHS = (0.9, 0.7, 0.5, 0.3, 0.1)  # falling: each shares most of its beginning with the one before
KEEPS = (0.05, 0.1, 0.2, 0.3)
Case = tuple[int, float, NeedlePrompt]  # needles, depth, prompt


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
    """Share of needle tokens kept, by length, needles, keep and depth (0: all depths)."""
    return _recall(bench, 8)


def ranking(bench: Bench) -> list[Row]:
    """The same without anchors: the question names each fact, so anchors alone would find them."""
    return _recall(bench, 2, "--no-anchors")


def _recall(bench: Bench, seeds: int, *arguments: str) -> list[Row]:
    length, seeds = bench.needle_tokens, 1 if bench.quick else seeds
    cases = needle_cases(bench, length, seeds)
    keeps = [word for keep in KEEPS for word in ("--keep", str(keep))]
    found = iter(bench.tool([prompt.text for *_, prompt in cases], "--scores", *keeps, *arguments))
    sums: dict[tuple[int, float, float], list[int]] = defaultdict(lambda: [0, 0])
    for count, depth, prompt in cases:
        for keep in KEEPS:
            got, need = kept_share(prompt, next(found))
            for cell in ((count, keep, depth), (count, keep, 0.0)):
                sums[cell][0] += got
                sums[cell][1] += need
    rows = []
    for (count, keep, depth), (got, need) in sorted(sums.items()):
        row = {"length": length, "needles": count, "keep": keep, "depth": depth}
        rows.append(row | {"kept": got, "tokens": need, "recall": got / need})
        if depth == 0:
            where = f"  {length} tokens, {count} needle(s), keep {keep:.0%}"
            bench.say(f"{where}: {got / need:.1%} of their tokens kept")
    return rows


def answers(bench: Bench) -> list[Row]:
    """How many codes are right after a sparse prefill of 10 %, and after a dense one.

    Time does not count here: the dense slot keeps the beginning it shares with the case before.
    """
    length, seeds = bench.needle_tokens, 1 if bench.quick else 8
    sums: dict[tuple[int, float], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    slots = bench.server(bench.speculator, "-np", "2", "-c", "16384", "--no-kv-unified")
    with slots as url, Client(url) as client:
        for count, depth, prompt in needle_cases(bench, length, seeds):
            said = [
                client.ask(prompt.text, 24 * count, temperature=0, **how)
                for how in (
                    {"specprefill": False, "cache_prompt": True, "id_slot": 0},
                    {"specprefill": {"keep": 0.1}, "id_slot": 1},
                )
            ]
            assert said[1].timings["specprefill"]["status"] == "active"
            dense, sparse = ([code in one.text for code in prompt.codes] for one in said)
            both = sum(one and other for one, other in zip(dense, sparse, strict=True))
            for cell in ((count, depth), (count, 0.0)):
                for index, value in enumerate((sum(dense), sum(sparse), both, count)):
                    sums[cell][index] += value
    rows = []
    for (count, depth), (dense_right, sparse_right, both, asked) in sorted(sums.items()):
        row: Row = {"length": length, "needles": count, "depth": depth, "asked": asked}
        rows.append({**row, "dense": dense_right, "sparse": sparse_right, "both": both})
        if depth == 0:
            bench.say(
                f"  {count} needle(s): dense {dense_right}, sparse {sparse_right}, both {both} of "
                f"{asked} codes right"
            )
    return rows


def divergence(bench: Bench) -> Row:
    """KL(dense || sparse) of the next token at keep 30 %, by kind of positions."""
    count, tokens = (4, 1800) if bench.quick else (40, 2400)
    prompts = [document(100 + seed, tokens, plain=bench.plain) for seed in range(count)]
    rows = bench.tool(prompts, "--keep", "0.3", "--target", str(bench.speculator))
    result: Row = {"n": count, "tokens": statistics.median(row["n_prompt"] for row in rows)}
    for kind in ("original", "compact"):
        values = [row["target"][f"kl_{kind}"] for row in rows]
        same = sum(row["target"][f"same_{kind}"] for row in rows)
        result[kind] = {"mean": statistics.mean(values), "median": statistics.median(values)}
        result[kind] |= {"worst": max(values), "same_token": same / count}
        bench.say(
            f"  {kind} positions: KL mean {result[kind]['mean']:.4f}, median "
            f"{result[kind]['median']:.4f} nats, same token {same} of {count}"
        )
    return result
