"""Do the client of `bench` and one that shares no code with it (independent.py) see the same speed?

    python bench/agree.py --runner llama-server --target T.gguf --drafter D.gguf [--threads N]
    python bench/agree.py --runner llama-server --target T.gguf --speculator S.gguf --long 4000 ...

Both ask the same servers the same prompts with the same seeds, one right after the other, the
second first every other time, so that both see the same machine. First form: speed plain, strict
and relaxed; second form: time to the first token of long documents, dense and sparse. Goal: within
3 %. Two prefills of a minute can differ by more than that by themselves, so each wait is also
divided by what the server says that very prefill took. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from ollama_spec.measure import bench, prompts, sample, stats
from ollama_spec.measure.client import Client

sys.path.insert(0, str(Path(__file__).parent))
import independent

SPEEDS = {
    "plain": {},
    "strict": {"speculative.relaxed_top_n": 0},
    "relaxed": {"speculative.relaxed_top_n": 5, "speculative.relaxed_ratio": 0.25},
}
WAITS = {"dense": {"specprefill": False}, "sparse": {"specprefill": {"keep": 0.2}}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name in ("runner", "target"):
        parser.add_argument(f"--{name}", required=True)
    pair = parser.add_mutually_exclusive_group(required=True)
    pair.add_argument("--drafter")
    pair.add_argument("--speculator")
    parser.add_argument("--long", type=int, action="append", help="tokens of a long document")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    a = parser.parse_args()
    lines = waits(a) if a.speculator else speeds(a)
    for line in lines:
        print("  ".join(f"{key} {value}" for key, value in line.items()))
    print(json.dumps(lines))


def speeds(a: argparse.Namespace) -> list[dict]:
    base = [a.runner, "-m", a.target, "-c", "2048", "-t", str(a.threads)]
    draft = ["--spec-type", "draft-simple", "--spec-draft-model", a.drafter]
    with independent.server(*base) as plain, independent.server(*base, *draft) as pair:
        clients = {name: Pair(pair if name != "plain" else plain, a.tokens) for name in SPEEDS}
        asked = [independent.templated(plain, text) for text in prompts.mixture(a.prompts)]
        for turn in range(a.repeats * len(asked)):
            for name, own in SPEEDS.items():
                clients[name].ask([asked[turn % len(asked)]] * 2, turn, own)
    return [{"config": name, **one.compared()} for name, one in clients.items()]


def waits(a: argparse.Namespace) -> list[dict]:
    """Each request begins with letters of its own: nothing of it lies in a cache."""
    base = [a.runner, "-m", a.target, "-c", "8192", "-t", str(a.threads), "-b", "512"]
    sparse = ["--specprefill-model", a.speculator, "--specprefill-min-tokens", "256"]
    sparse += ["--specprefill-min-gain", "0", "--specprefill-tail", "64"]
    lines = []
    with independent.server(*base, *sparse) as port:
        for length in a.long or [4000]:
            clients = {name: Pair(port, 8) for name in WAITS}
            for turn in range(a.repeats):
                text = prompts.long_document(length * bench.CHARACTERS_PER_TOKEN, turn)
                for name, own in WAITS.items():
                    # Neither client has the same mark always.
                    marks = "ab" if turn % 4 in (0, 3) else "ba"
                    marked = [f"[{name}{turn}{who}] {text}" for who in marks]
                    texts = [independent.templated(port, one) for one in marked]
                    clients[name].ask(texts, turn, own)
            lines += [
                {"length": length, "config": name, **one.compared()}
                for name, one in clients.items()
            ]
    return lines


class Pair:
    """Both clients of one server, and what each of them saw."""

    def __init__(self, port: int, tokens: int) -> None:
        self.port, self.tokens = port, tokens
        self.client = Client(f"http://127.0.0.1:{port}")
        self.ours: list[sample.Row] = []
        self.theirs: list[independent.Asked] = []

    def ask(self, texts: list[str], turn: int, own: dict) -> None:
        """Our client asks the first text, the other the second."""
        options = {"temperature": 0.6, "ignore_eos": True, "seed": turn + 1, **own}

        def our() -> None:
            answer = self.client.ask(texts[0], self.tokens, **options)
            self.ours.append(sample.row(answer))

        def their() -> None:
            body = {"prompt": texts[1], "n_predict": self.tokens, **options}
            self.theirs.append(independent.ask(self.port, body))

        for ask in (our, their) if turn % 2 else (their, our):
            ask()

    def compared(self) -> dict:
        mine = stats.speed(sample.timed(self.ours))
        rate = sum(one.tokens - 1 for one in self.theirs) / sum(one.rest for one in self.theirs)
        our_wait = sample.median_of(self.ours, "ttft_ms")
        wait = 1000 * statistics.median(one.first for one in self.theirs)
        our_share = statistics.median(row["ttft_ms"] / row["prompt_ms"] for row in self.ours)
        share = statistics.median(one.first / one.prefill for one in self.theirs)
        return {
            "answers": len(self.theirs),
            "ours_tokens_per_second": mine.rounded(2),
            "independent_tokens_per_second": round(rate, 2),
            "speed_apart": round(rate / mine.value - 1, 4),
            "ours_ttft_ms": round(our_wait, 1),
            "independent_ttft_ms": round(wait, 1),
            "ttft_apart": round(wait / our_wait - 1, 4),
            "ttft_over_servers_prefill": [round(our_share, 4), round(share, 4)],
            "of_the_same_work_apart": round(share / our_share - 1, 4),
            "each_ttft_ms": [[round(row["ttft_ms"]) for row in self.ours],
                             [round(1000 * one.first) for one in self.theirs]],
        }  # fmt: skip


if __name__ == "__main__":
    main()
