"""Does `tune` find what trying everything finds?

    python bench/tune_grid.py --target T.gguf --drafter D.gguf --name NAME [--lossy] [--threads N]

1. `tune` as the command does it: a trace, a cost table, replay offline, three rules confirmed.
2. A modest exhaustive grid, every rule really run: depths 1 to 7 strict, and with --lossy each
   depth at top-n 3 and 10 with ratio 0.5 and 0.1 (35 rules); all rules and the one `tune` chose
   take turns on the same prompts and seeds.
3. The three fastest that keep the regret budget and the chosen rule once more, on other prompts,
   twice as many and as often: the fastest of 36 noisy figures is partly luck.

The prompts of 2 and 3 are those of grid_prompts.jsonl, which `tune` never sees. Goal: the chosen
rule reaches 97 % of the grid's fastest in step 3, from at most 12 servers; its share in step 2 is
shown beside it. The last line is one JSON object, also written to bench/results/tune-NAME.json.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ollama_spec.measure import bench, prompts, sample, session, stats, tune
from ollama_spec.measure.matrix import Configuration, measure, of_config, summarise
from ollama_spec.measure.replay import Rule
from ollama_spec.profiles import WeightFile
from ollama_spec.store import ModelRecord


def note(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def rules(lossy: bool) -> list[Rule]:
    found = [Rule(n) for n in range(1, tune.DEPTH + 1)]
    if lossy:
        found += [
            Rule(n, top_n, ratio)
            for n in range(1, tune.DEPTH + 1)
            for top_n in (3, 10)
            for ratio in (0.5, 0.1)
        ]
    return found


@contextlib.contextmanager
def opened(runner, record: ModelRecord, chosen: Rule, a: argparse.Namespace) -> Iterator[list]:
    """Plain decoding, every rule and the chosen one; a server for each early stop."""
    with contextlib.ExitStack() as stack:
        how = {"drafting": False, "threads": a.threads}
        plain = stack.enter_context(session.serving(runner, record, **how))
        clients = {}
        for p_min in {0.0, chosen.p_min}:
            spec = record.profile.spec.model_copy(update={"p_min": p_min})
            profile = record.profile.model_copy(update={"spec": spec})
            own = record.model_copy(update={"profile": profile})
            how = {"threads": a.threads, "n_max": tune.DEPTH, "dense": True}
            clients[p_min] = stack.enter_context(session.serving(runner, own, **how))
        yield [
            Configuration("plain", plain),
            *(
                Configuration(rule.label(), clients[rule.p_min], dict(rule.options()))
                for rule in dict.fromkeys([*rules(a.lossy), chosen])
                if rule.n_max
            ),
        ]


def compared(configurations, chosen: str, asked, a: argparse.Namespace, repeats: int) -> list[dict]:
    """One line per configuration, with the speed of the chosen one over its own."""
    texts = [configurations[0].client.render(text) for text in asked]
    rows = measure(
        configurations, texts, a.tokens, repeats, note=note, prompt_set="grid",
        temperature=0.6, ignore_eos=True,
    )  # fmt: skip
    lines = summarise(rows, configurations[0].name)
    mine = sample.timed(of_config(rows, chosen))
    for line in lines:
        others = sample.timed(of_config(rows, line["config"]))
        line["chosen_over_this"] = stats.speed_ratio(mine, others).rounded()
    return lines


def fastest(lines: list[dict], count: int) -> list[str]:
    """Of those that keep the budget."""
    allowed = [line for line in lines if line["regret_nats_per_token"] <= tune.BUDGET]
    allowed.sort(key=lambda line: -line["tokens_per_second"]["value"])
    return [line["config"] for line in allowed[:count]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--name", required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--runner", type=Path, help="default: the one in use")
    parser.add_argument("--lossy", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prompts", type=int, default=8, help="of the grid, at most 8")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer, tune and grid")
    parser.add_argument("--repeats", type=int, default=1, help="of the grid")
    a = parser.parse_args()
    files = [WeightFile(path=p, size=p.stat().st_size) for p in (a.target, a.drafter)]
    record = ModelRecord(name=a.name, target=files[0], drafter=files[1])
    runner = session.chosen_runner(a.runner)
    asked = prompts.from_file(Path(__file__).parent / "grid_prompts.jsonl", 3 * a.prompts)
    grid, again = asked[: a.prompts], asked[a.prompts :]
    effort = dataclasses.replace(tune.QUICK, tokens=a.tokens, prompts=24, confirmed=6)
    start = time.monotonic()
    tuned = tune.tune(
        runner, record, effort, lossy=a.lossy, temperature=0.6, threads=a.threads, tasks=None,
        note=note,
    )  # fmt: skip
    seconds = time.monotonic() - start
    rule = Rule(**{key: tuned["chosen"][key] for key in Rule.__dataclass_fields__})
    chosen = rule.label() if rule.n_max else "plain"
    note(f"tune chose {chosen} in {seconds:.0f} s; now the grid")
    with opened(runner, record, rule, a) as configurations:
        lines = compared(configurations, chosen, grid, a, a.repeats)
        finalists = {*fastest([line for line in lines if line["config"] != chosen], 3), chosen}
        note(f"once more: {', '.join(sorted(finalists))}")
        of_them = [one for one in configurations if one.name in finalists]
        final = compared(of_them, chosen, again, a, 2 * a.repeats)
    winner = (fastest(final, 1) or [chosen])[0]
    best = next(line for line in final if line["config"] == winner)
    result = {
        "name": a.name,
        "machine": bench.machine(),
        "command": " ".join(["bench/tune_grid.py", *(Path(arg).name for arg in sys.argv[1:])]),
        "chosen": chosen,
        "best_of_grid": best["config"],
        "share_of_best": best["chosen_over_this"],
        "reached": best["chosen_over_this"]["value"] >= 0.97,
        "servers_started": tuned["servers_started"],
        "tune_seconds": round(seconds),
        "grid": lines,
        "final": final,
        "tune": tuned,
    }
    for line in sorted([*final, *lines], key=lambda line: -line["tokens_per_second"]["value"]):
        speed, share = line["tokens_per_second"]["value"], line["chosen_over_this"]["value"]
        print(f"{line['config']:40} {speed:8.2f} tok/s  chosen/this {share:.3f}")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    line = json.dumps(result)
    (folder / f"tune-{a.name}.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
