"""Do the client of `bench` and one that shares no code with it (independent.py) see the same speed?

    python bench/agree.py --runner llama-server --target T.gguf --drafter D.gguf [--threads N]

Both ask the same servers the same prompts with the same seeds, one right after the other, the
second first every other time, so that both see the same machine. Goal: within 3 %. The last line is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from ollama_spec.measure import prompts, sample, stats
from ollama_spec.measure.client import Client

sys.path.insert(0, str(Path(__file__).parent))
import independent

CONFIGURATIONS = {
    "plain": {},
    "strict": {"speculative.relaxed_top_n": 0},
    "relaxed": {"speculative.relaxed_top_n": 5, "speculative.relaxed_ratio": 0.25},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name in ("runner", "target", "drafter"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    a = parser.parse_args()
    base = [a.runner, "-m", a.target, "-c", "2048", "-t", str(a.threads)]
    draft = ["--spec-type", "draft-simple", "--spec-draft-model", a.drafter]
    ours = {name: [] for name in CONFIGURATIONS}
    theirs = {name: [] for name in CONFIGURATIONS}
    with independent.server(*base) as plain, independent.server(*base, *draft) as pair:
        ports = {"plain": plain, "strict": pair, "relaxed": pair}
        clients = {name: Client(f"http://127.0.0.1:{port}") for name, port in ports.items()}
        asked = [independent.templated(plain, text) for text in prompts.mixture(a.prompts)]
        for turn in range(a.repeats * len(asked)):
            prompt = asked[turn % len(asked)]
            options = {"temperature": 0.6, "ignore_eos": True, "seed": turn + 1}
            for name, own in CONFIGURATIONS.items():
                body = {"prompt": prompt, "n_predict": a.tokens, **options, **own}

                def our(name=name, prompt=prompt, options=options, own=own) -> None:
                    answer = clients[name].ask(prompt, a.tokens, **options, **own)
                    ours[name].append(sample.row(answer))

                def their(name=name, body=body) -> None:
                    theirs[name].append(independent.ask(ports[name], body))

                for ask in (our, their) if turn % 2 else (their, our):
                    ask()
    lines = []
    for name in CONFIGURATIONS:
        mine = stats.speed(sample.timed(ours[name]))
        rate = sum(n - 1 for _, _, n in theirs[name]) / sum(s for _, s, _ in theirs[name])
        waits = [first for first, _, _ in theirs[name]]
        line = {"config": name, "answers": len(waits), "ours_tokens_per_second": mine.rounded(2)}
        line |= {"independent_tokens_per_second": round(rate, 2)}
        line |= {"speed_apart": round(rate / mine.value - 1, 4)}
        line |= {"ours_ttft_ms": round(sample.median_of(ours[name], "ttft_ms"), 1)}
        line |= {"independent_ttft_ms": round(1000 * statistics.median(waits), 1)}
        lines.append(line)
        print("  ".join(f"{key} {value}" for key, value in line.items()))
    print(json.dumps(lines))


if __name__ == "__main__":
    main()
