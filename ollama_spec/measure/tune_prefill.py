"""R4.6: how much of a long prompt must be kept, by needle coverage offline, then by waiting time.

The speculator alone scores documents with a fact in them; the smallest share that keeps nearly all
tokens of the facts stands for prompts of that length. Then the target confirms it: it must answer
as many of the questions as with dense prefill, and the wait must be shorter.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import prompts, session, stats
from ollama_spec.profiles import PrefillSettings
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord

COVERAGE = 0.98
MIN_GAIN = 1.3
_CHARACTERS_PER_TOKEN = 4
_DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
Note = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    lengths: tuple[int, ...]  # tokens
    keeps: tuple[float, ...]
    needles: int  # documents of each length


FULL = Effort(lengths=(4000, 7000), keeps=(0.1, 0.15, 0.2, 0.3, 0.4, 0.5), needles=10)
QUICK = Effort(lengths=(2000,), keeps=(0.1, 0.2, 0.4), needles=3)


def tune(
    runner: Binary, record: ModelRecord, effort: Effort, threads: int | None, note: Note
) -> dict[str, Any]:
    """The evidence and, under "keep", the curve; empty where sparse prefill does not pay."""
    if not runner.specprefill:
        raise OllamaSpecError(
            f"this runner ({runner.build}) has no sparse prefill",
            hint="build ours with `ollama-spec build`",
        )
    file = record.profile.prefill.speculator or record.drafter
    tool = runner.path.with_name("llama-specprefill")
    if file is None or not tool.exists():
        missing = "no speculator" if file is None else f"no {tool.name} beside {runner.path}"
        raise OllamaSpecError(f"{missing} to score prompts with", hint="see `ollama-spec profile`")
    measured, curve = [], {}
    for length in effort.lengths:
        asked = [_needle(length, index) for index in range(effort.needles)]
        keep, coverage = choose_keep(tool, file.path, asked, effort.keeps, threads, note)
        line: dict[str, Any] = {"tokens": length, "keep": keep, "coverage": coverage}
        if keep is not None:
            note(f"prefill: confirming keep {keep:g} at {length} tokens")
            line |= confirm(runner, record, file.path, asked, length, keep, threads)
            if line["passed"]:
                curve[length] = keep
        measured.append(line)
    return {"measured": measured, "keep": curve}


def _needle(length: int, index: int) -> prompts.Needle:
    depth = _DEPTHS[index % len(_DEPTHS)]
    return prompts.needle(length * _CHARACTERS_PER_TOKEN, depth, length + index)


def choose_keep(
    tool: Path, speculator: Path, asked: Sequence[prompts.Needle], keeps: Sequence[float],
    threads: int | None, note: Note,
) -> tuple[float | None, dict[str, float]]:  # fmt: skip
    """The smallest share that keeps COVERAGE of the needles' tokens, and the shares tried."""
    tried: dict[str, float] = {}
    for keep in keeps:
        tried[f"{keep:g}"] = round(coverage(tool, speculator, asked, keep, threads), 4)
        note(f"prefill: keep {keep:g} keeps {tried[f'{keep:g}']:.1%} of the facts")
        if tried[f"{keep:g}"] >= COVERAGE:
            return keep, tried
    return None, tried


def coverage(
    tool: Path, speculator: Path, asked: Sequence[prompts.Needle], keep: float, threads: int | None
) -> float:
    """Share of the needles' tokens that scoring with the speculator keeps."""
    argv = [str(tool), "-m", str(speculator), "--json", "--scores", "--keep", f"{keep:g}"]
    argv += ["--tail", "64", *(["-t", str(threads)] if threads else [])]
    with tempfile.TemporaryDirectory(prefix="ollama-spec-tune-") as folder:
        for index, needle in enumerate(asked):
            path = Path(folder) / f"{index}.txt"
            path.write_text(needle.prompt, encoding="utf-8")
            argv += ["-f", str(path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OllamaSpecError(
            f"{tool.name} failed: {done.stderr.strip()[-300:]}",
            hint="the speculator may not fit; `ollama-spec verify` says more",
        )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    counts = [needle_tokens(n, report) for n, report in zip(asked, reports, strict=True)]
    return sum(kept for kept, _ in counts) / sum(all_of for _, all_of in counts)


def needle_tokens(needle: prompts.Needle, report: dict[str, Any]) -> tuple[int, int]:
    """Tokens of the fact that were kept, and all of its tokens; offsets are bytes, as in `span`."""
    kept = {index for first, last in report["ranges"] for index in range(first, last)}
    start, end = needle.span
    offsets = report["offsets"]
    inside = [
        index
        for index in range(report["n_prompt"])
        if offsets[index] < end and offsets[index + 1] > start
    ]
    return sum(index in kept for index in inside), len(inside)


def confirm(
    runner: Binary, record: ModelRecord, speculator: Path, asked: Sequence[prompts.Needle],
    length: int, keep: float, threads: int | None,
) -> dict[str, Any]:  # fmt: skip
    """Dense and sparse in turns on the target: waiting times, and facts answered."""
    extra = ["--specprefill", "--specprefill-model", str(speculator)]
    extra += ["--specprefill-min-tokens", "256", "--specprefill-min-gain", "0"]
    extra += ["--specprefill-tail", "64"]
    how = {"dense": False, "sparse": {"keep": keep}}
    found = dict.fromkeys(how, 0)
    lost = 0
    gains = []
    context = length + length // 4 + 64
    serve = {"drafting": False, "num_ctx": context, "threads": threads, "extra": extra}
    with session.serving(runner, record, **serve) as client:
        for index, needle in enumerate(asked):
            text = f"{client.render(needle.prompt)}{needle.lead}"
            order = list(how) if index % 2 == 0 else list(how)[::-1]
            answers = {
                name: client.ask(text, 10, temperature=0, specprefill=how[name]) for name in order
            }
            hits = {name: needle.code in answers[name].text for name in how}
            for name in how:
                found[name] += hits[name]
            lost += hits["dense"] and not hits["sparse"]
            gains.append(answers["dense"].ttft / answers["sparse"].ttft)
    gain = stats.median(gains)
    return {
        "ttft_gain": gain.rounded(),
        "answered": found,
        "lost": lost,
        "passed": lost == 0 and gain.low >= MIN_GAIN,
    }


def profile_with(prefill: PrefillSettings, curve: dict[int, float]) -> PrefillSettings:
    """The settings with the curve found; dense where there is none."""
    if not curve:
        return prefill.model_copy(update={"mode": "dense"})
    changed = {"mode": "sparse", "keep": curve, "min_tokens": min(curve), "tail": 64}
    return prefill.model_copy(update=changed)
