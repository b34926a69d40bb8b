"""The matrix of `bench`: configurations x prompt sets, against our child or any endpoint."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from ollama_spec import __version__
from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import prompts, session, trace
from ollama_spec.measure.client import Client, Dialect
from ollama_spec.measure.matrix import Configuration, measure, summarise
from ollama_spec.profiles import SpecSettings
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord

Note = Callable[[str], None]
CHARACTERS_PER_TOKEN = 4  # of English; long documents are cut by characters
BASELINE = "plain"


def prompt_set(name: str, count: int) -> tuple[list[str], int]:
    """Prompts of a set and the context they need in tokens.

    `long:N` makes documents of about N tokens; NAME.jsonl is a file of the user's.
    """
    if name.startswith("long:") and name[5:].isdigit():
        size = int(name[5:])
        made = [prompts.long_document(size * CHARACTERS_PER_TOKEN, i) for i in range(count)]
        return made, size + size // 4
    if name.endswith((".jsonl", ".json", ".jsonl.gz", ".json.gz")):
        found = prompts.from_file(Path(name), count)
        return found, max((len(text) for text in found), default=0) // 2
    return prompts.shipped(name, count), 256


@contextlib.contextmanager
def local(
    runner: Binary, record: ModelRecord, wanted: Sequence[str], num_ctx: int, threads: int | None
) -> Iterator[list[Configuration]]:
    """Configurations of a stored model: plain, strict, relaxed, and dense / sparse prefill."""
    spec = record.profile.spec
    drafts = bool(record.drafter or spec.type)
    allowed = ["plain"]
    allowed += ["strict"] if drafts else []
    allowed += ["relaxed"] if drafts and runner.relaxed else []
    allowed += ["sparse"] if runner.specprefill and record.profile.prefill.mode == "sparse" else []
    names = list(wanted) or allowed
    for name in names:
        if name not in allowed:
            raise OllamaSpecError(
                f"{record.name} cannot run {name!r} with this runner",
                hint=f"possible: {', '.join(allowed)}",
            )
    options: dict[str, dict[str, Any]] = {
        "plain": {"specprefill": False} if runner.specprefill else {},
        "strict": {"speculative.relaxed_top_n": 0} if runner.relaxed else {},
        "relaxed": _relaxed(spec),
        "sparse": {"specprefill": True},
    }
    how: dict[str, Any] = {"num_ctx": num_ctx, "threads": threads}
    with contextlib.ExitStack() as stack:
        # Sparse is measured against dense on one and the same server, which has no drafter.
        plain = stack.enter_context(
            session.serving(runner, record, drafting=False, extra=_speculator(record, names), **how)
        )
        pair = plain
        if {"strict", "relaxed"} & set(names):
            pair = stack.enter_context(session.serving(runner, record, dense=True, **how))
        # The speculator keeps its cache of the last prompt whatever `cache_prompt` says.
        salted = "sparse" in names
        yield [
            Configuration(
                name, pair if name in ("strict", "relaxed") else plain, options[name], True, salted
            )
            for name in dict.fromkeys([BASELINE, *names])
        ]


def _speculator(record: ModelRecord, names: Sequence[str]) -> list[str]:
    if "sparse" not in names or record.profile.prefill.speculator or not record.drafter:
        return []
    return ["--specprefill-model", str(record.drafter.path)]


def draft_cost(
    runner: Binary, record: ModelRecord, sets: Sequence[str], num_ctx: int, n_predict: int,
    threads: int | None,
) -> dict[str, float]:  # fmt: skip
    """Median milliseconds a round spends on drafting, by prompt set. From a run of its own: the
    runner's trace tells it, and a trace would slow the measured ones."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="ollama-spec-bench-") as folder:
        path = Path(folder) / "trace.ndjson"
        how: dict[str, Any] = {"num_ctx": num_ctx, "threads": threads, "dense": True}
        extra = ["--spec-draft-trace", str(path)]
        with session.serving(runner, record, extra=extra, **how) as client:
            for name in sets:
                start = path.stat().st_size if path.exists() else 0
                for text in prompt_set(name, 2)[0]:
                    client.ask(client.render(text), n_predict, temperature=0.6, seed=1)
                spent = [one.draft_us / 1000 for one in trace.read(path, start) if one.drafts]
                if spent:
                    found[name] = round(median(spent), 2)
    return found


def _relaxed(spec: SpecSettings) -> dict[str, Any]:
    accept = spec.accept
    return {
        "speculative.relaxed_top_n": accept.top_n,
        "speculative.relaxed_ratio": accept.ratio,
        "speculative.relaxed_window": accept.window,
        "speculative.relaxed_budget": accept.budget_nats,
    }


@contextlib.contextmanager
def remote(endpoints: Sequence[str], model: str) -> Iterator[list[Configuration]]:
    """Configurations of running servers, one each: `[ollama|openai|llama]+URL`; the first is what
    the others are compared with."""
    with contextlib.ExitStack() as stack:
        yield [
            Configuration(
                endpoint, stack.enter_context(_endpoint(endpoint, model)), chat=True, salted=True
            )
            for endpoint in endpoints
        ]


def _endpoint(text: str, model: str) -> Client:
    dialects: dict[str, Dialect] = {"ollama": "ollama", "openai": "openai", "llama": "llama"}
    kind, separator, url = text.partition("+")
    if not separator:
        kind, url = "ollama", text
    if kind not in dialects or not url.startswith(("http://", "https://")):
        raise OllamaSpecError(
            f"not an endpoint: {text}", hint="e.g. ollama+http://127.0.0.1:11434, openai+http://..."
        )
    return Client(url, dialects[kind], model)


def run(
    opened: Callable[[], contextlib.AbstractContextManager[list[Configuration]]],
    sets: Sequence[str],
    *,
    count: int,
    n_predict: int,
    repeats: int,
    temperature: float,
    note: Note,
) -> dict[str, Any]:
    """Measure all sets; the result is what `report` shows and `compare` reads.

    Each repeat opens its configurations anew: a process can be faster or slower than its twin for
    all its life, by 17 % in one of our runs, and no repeat inside it shows that.
    Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time" (2013).
    """
    rows = []
    asked = {name: prompt_set(name, count)[0] for name in sets}
    for repeat in range(repeats):
        note(f"repeat {repeat + 1} of {repeats}")
        with opened() as configurations:
            for name, texts in asked.items():
                rows += measure(
                    configurations, texts, n_predict, 1, note=note, prompt_set=name,
                    first=repeat, temperature=temperature, ignore_eos=True,
                )  # fmt: skip
    baseline = configurations[0].name
    return {
        "format": 1,
        "baseline": baseline,
        "settings": {
            "prompts": count,
            "n_predict": n_predict,
            "repeats": repeats,
            "temperature": temperature,
        },
        "configurations": {one.name: one.options for one in configurations},
        "machine": machine(),
        "summary": summarise(rows, baseline),
        "rows": rows,
        "prompts": asked,
    }


def machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "ollama_spec": __version__,
        "commit": commit(),
        "command": " ".join([Path(sys.argv[0]).name, *(Path(arg).name for arg in sys.argv[1:])]),
    }


def commit() -> str | None:
    """Of the checkout this runs from; None where it is an installed package."""
    here = Path(__file__).parent
    try:
        argv = ["git", "-C", str(here), "rev-parse", "--short", "HEAD"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
