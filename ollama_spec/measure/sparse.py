"""The checks of sparse prefill: needles, the next token's distribution, and caches with holes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import prompts, session
from ollama_spec.measure.check import Check
from ollama_spec.measure.client import Client
from ollama_spec.measure.distribution import LISTED, kl, worst_kl
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord

KEEP = 0.3
_CONTEXT = 8192
_HOLE = 0.001  # nats, see holes()
_CHARACTERS_PER_TOKEN = 4
_DENSE: dict[str, Any] = {"specprefill": False}
_SPARSE: dict[str, Any] = {"specprefill": {"keep": KEEP}}
_PLAIN: dict[str, Any] = {"temperature": 0, "speculative.n_max": 0}
Note = Callable[[str], None]


@dataclass(frozen=True)
class SparseBench:
    """A server with a speculator, one without, and the grid of lengths (tokens) and depths."""

    client: Client
    plain: Client
    lengths: Sequence[int]
    depths: Sequence[float]

    def needles(self) -> Iterator[tuple[int, float, prompts.Needle]]:
        for length in self.lengths:
            for depth in self.depths:
                seed = int(length + 100 * depth)
                yield length, depth, prompts.needle(length * _CHARACTERS_PER_TOKEN, depth, seed)


@contextmanager
def opened(
    runner: Binary, record: ModelRecord, *, quick: bool, stock: Binary | None = None
) -> Iterator[SparseBench]:
    """The servers. OllamaSpecError where the runner or the model cannot prefill sparsely."""
    if not runner.specprefill:
        raise OllamaSpecError(
            f"this runner ({runner.build}) has no sparse prefill",
            hint="build ours with `ollama-spec build`",
        )
    # Short documents, all of whose tokens but the last 64 may be dropped, at any gain.
    extra = ["--specprefill", "--specprefill-min-tokens", "256", "--specprefill-min-gain", "0"]
    extra += ["--specprefill-tail", "64"]
    if not record.profile.prefill.speculator and record.drafter:
        extra += ["--specprefill-model", str(record.drafter.path)]
    how: dict[str, Any] = {"num_ctx": _CONTEXT, "threads": session.spare_threads(record)}
    # A last turn of up to 1024 tokens is kept whole, so the shortest document is longer than that.
    lengths = (1500,) if quick else (1500, 3000)
    depths = (0.1, 0.5, 0.9) if quick else (0.1, 0.3, 0.5, 0.7, 0.9)
    with (
        session.serving(stock or runner, record, drafting=False, dense=True, **how) as plain,
        session.serving(runner, record, extra=extra, **how) as client,
    ):
        yield SparseBench(client, plain, lengths, depths)


def run(bench: SparseBench, note: Note) -> list[Check]:
    return [needles(bench, note), dense(bench), holes(bench)]


def needles(bench: SparseBench, note: Note = lambda _: None) -> Check:
    """Two questions to each document: is the fact still found, and is the next token's
    distribution nearer to that of dense prefill than that of a prompt cut to the same size?"""
    check = Check(
        "sparse: needles", f"at keep {KEEP} what dense prefill finds in a long document is found"
    )
    found = {"dense": 0, "sparse": 0}
    lost = 0
    divergence: list[tuple[float, float]] = []
    for length, depth, needle in bench.needles():
        where = f"{length} tokens, depth {depth:.0%}"
        note(f"needle: {where}")
        text = f"{bench.client.render(needle.prompt)}{needle.lead}"
        full = _ask(bench.client, text, _DENSE)
        part = _ask(bench.client, text, _SPARSE)
        _check_report(check, bench, part, text, where)
        hits = {"dense": needle.code in full["content"], "sparse": needle.code in part["content"]}
        for kind in found:
            found[kind] += hits[kind]
        lost += hits["dense"] and not hits["sparse"]
        tokens = bench.client.tokenize(text)
        cut = _ask(bench.client, tokens[-_report(part).get("n_kept", 1) :], _DENSE)
        divergence.append((kl(full, part), kl(full, cut)))
        check.samples.append(
            f"{where}, {needle.code}: dense {full['content']!r}, sparse {part['content']!r}, "
            f"KL {divergence[-1][0]:.3f} (cut prompt {divergence[-1][1]:.3f})"
        )
    means = [fmean(values) for values in zip(*divergence, strict=True)]
    check.figures = {"needles": len(divergence), **found, "kl_nats": round(means[0], 4),
                     "kl_of_cut_prompts": round(means[1], 4)}  # fmt: skip
    check.expect(lost == 0, f"{lost} of {found['dense']} facts that dense prefill finds are lost")
    check.expect(
        means[0] < means[1],
        f"KL from dense is {means[0]:.3f}, no better than the {means[1]:.3f} of prompts cut short",
    )
    return check


def dense(bench: SparseBench) -> Check:
    check = Check("sparse: off", "not asked for, the answer is that of a server without it")
    _, _, needle = next(bench.needles())
    text = bench.client.render(needle.prompt)
    ours, plain = (_ask(client, text, _DENSE) for client in (bench.client, bench.plain))
    check.expect(
        ours["content"] == plain["content"],
        f"{ours['content']!r} with a speculator, {plain['content']!r} without",
    )
    status = _report(ours).get("status")
    check.expect(status == "skipped_request", f"status {status}, expected skipped_request")
    for keep in (0, 1.5, "much"):
        body = {"prompt": "x", "n_predict": 1, "specprefill": {"keep": keep}}
        code = bench.client.reply("/completion", body).status_code
        check.expect(code == 400, f"keep {keep!r}: HTTP {code}, expected 400")
    return check


def holes(bench: SparseBench) -> Check:
    """The cache of a sparse prompt lacks tokens: a dense follow-up must not build on it.

    Built on holes, some next token comes out 0.002 nats and more from its due (SmolLM2, a third
    kept); built on the text, by what another split into batches does to the last bits.
    """
    check = Check("sparse: holes", "a cache with holes is never taken for a whole one")
    worst = 0.0
    for _, depth, needle in bench.needles():
        text = f"{bench.client.render(needle.prompt)}{needle.lead}"
        # Not from the cache: what an earlier dense turn left there would have no holes.
        first = _ask(bench.client, text, _SPARSE)
        status = _report(first).get("status")
        check.expect(
            status == "active", f"depth {depth:.0%}: the first turn's prefill was {status}"
        )
        # What comes next hangs on the whole text, dropped parts included, not on the fact alone.
        follow = f"{text}{first['content']}. Apart from that, the text above is about"
        again = _ask(bench.client, follow, {**_DENSE, "cache_prompt": True})
        fresh = _ask(bench.client, follow, _DENSE)
        apart = worst_kl(fresh, again)
        worst = max(worst, apart)
        check.expect(
            apart < _HOLE,
            f"depth {depth:.0%}: {again['content']!r} after a sparse turn, {fresh['content']!r} "
            f"afresh; a next token's distributions are {apart:.4f} nats apart",
        )
    check.figures = {"worst_kl_nats": round(worst, 6)}
    return check


def _ask(client: Client, prompt: str | list[int], options: dict[str, Any]) -> dict[str, Any]:
    body = {"prompt": prompt, "n_predict": 10, "n_probs": LISTED, "cache_prompt": False}
    return client.post("/completion", {**body, **_PLAIN, **options})


def _report(reply: dict[str, Any]) -> dict[str, Any]:
    return dict(reply.get("timings", {}).get("specprefill") or {})


def _check_report(
    check: Check, bench: SparseBench, reply: dict[str, Any], text: str, where: str
) -> None:
    """The counts of the runner's report, held against a count of our own."""
    report = _report(reply)
    tokens = len(bench.client.tokenize(text))
    told = reply["timings"]["prompt_n"]
    check.expect(report.get("status") == "active", f"{where}: prefill was {report.get('status')}")
    check.expect(
        (report.get("n_prompt"), told) == (tokens, tokens),
        f"{where}: {tokens} tokens reported as {report.get('n_prompt')} and {told}",
    )
    kept = report.get("n_kept", 0)
    # Start, tail and what the question quotes are kept beside the ranked share.
    check.expect(
        KEEP * tokens * 0.8 <= kept <= KEEP * tokens + 256,
        f"{where}: {kept} of {tokens} tokens kept at keep {KEEP}",
    )
