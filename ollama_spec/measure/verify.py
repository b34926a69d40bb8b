"""The checks of `verify`: is drafting lossless when off, and what it claims when on?

Each check compares independent accounts of the same thing - plain text and drafted text, the
server's counters and its trace, the trace and the text - so that a fault in one shows.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ollama_spec.measure import prompts, quality, session
from ollama_spec.measure.accounts import (
    TAKEN,
    check_counters,
    check_emitted,
    check_text,
    difference,
    relaxed_of,
)
from ollama_spec.measure.check import RELAXED, STRESS, STRICT, Bench, Check
from ollama_spec.measure.distribution import LISTED, worst_kl
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord

_CONTEXT = 2048
_ROUNDING = 0.01  # nats; what batches of another size may change in a distribution
Note = Callable[[str], None]


@contextmanager
def opened(
    runner: Binary, record: ModelRecord, *, quick: bool, stock: Binary | None = None
) -> Iterator[Bench]:
    """The two servers. With `stock`, an unchanged llama-server computes the plain answers."""
    with tempfile.TemporaryDirectory(prefix="ollama-spec-verify-") as folder:
        path = Path(folder) / "trace.ndjson"
        how: dict[str, Any] = {"num_ctx": _CONTEXT, "threads": session.spare_threads(record)}
        traced = {"extra": ["--spec-draft-trace", str(path)], "n_max": 4}
        with (
            session.serving(stock or runner, record, drafting=False, dense=True, **how) as plain,
            session.serving(runner, record, **how, **traced) as pair,
        ):
            asked = [pair.render(text) for text in prompts.mixture(3 if quick else 8)]
            yield Bench(plain, pair, path, asked, 48 if quick else 96, _CONTEXT)


def run(bench: Bench, note: Note) -> list[Check]:
    """All checks, in the order of the protocol. An error of the server fails its check."""
    found = []
    for make in CHECKS:
        start = time.monotonic()
        found.append(make(bench))
        verdict = "pass" if found[-1].passed else "FAIL"
        note(f"{verdict}  {found[-1].name} ({time.monotonic() - start:.0f} s)")
    return found


def control(bench: Bench) -> Check:
    check = Check("control", "features off: the text of plain decoding, at temperature 0 and 0.8")
    for temperature in (0.0, 0.8):
        for index, prompt in enumerate(bench.prompts):
            options = {"temperature": temperature, "seed": index + 1}
            plain = bench.plain.ask(prompt, bench.n_predict, **options)
            drafted = bench.pair.ask(prompt, bench.n_predict, **options, **STRICT)
            same = plain.text == drafted.text
            check.expect(same, f"T {temperature}, prompt {index}: {difference(plain, drafted)}")
            check.expect(drafted.timings.get("draft_n", 0) > 0, f"prompt {index}: nothing drafted")
    return check


def inert(bench: Bench) -> Check:
    check = Check("inert", "features off: no relaxed token, in the counters and in the trace")
    for index, prompt in enumerate(bench.prompts):
        answer, rounds = bench.traced(prompt, {"temperature": 0.8, "seed": index + 1, **STRICT})
        relaxed = answer.timings.get("draft_n_relaxed", 0)
        check.expect(relaxed == 0, f"prompt {index}: {relaxed} relaxed tokens counted")
        check.expect(bool(rounds), f"prompt {index}: no round in the trace")
        check.expect(
            not any(relaxed_of(one) for one in rounds), f"prompt {index}: relaxed in the trace"
        )
        check_emitted(check, rounds, f"prompt {index}")
    return check


def positive(bench: Bench) -> Check:
    check = Check("positive", "relaxed: some drafts are taken against the sample, some refused")
    relaxed: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for index, prompt in enumerate(bench.prompts):
        answer, rounds = bench.traced(prompt, {"temperature": 0.6, "seed": index + 1, **RELAXED})
        for one in rounds:
            relaxed += relaxed_of(one)
            refused += [p for p in one.positions if p["verdict"] not in TAKEN]
        check_emitted(check, rounds, f"prompt {index}")
        check_text(check, bench, answer, rounds, f"prompt {index}")
        check_counters(check, answer, rounds, f"prompt {index}")
    check.figures = {"relaxed": len(relaxed), "refused": len(refused)}
    check.expect(bool(relaxed), "no draft was ever taken against the sample")
    check.expect(bool(refused), "no draft was ever refused")
    for p in relaxed:
        check.expect(p["rank"] < 5, f"a token of rank {p['rank']} was taken with top-n 5")
        check.expect(
            p["log_ratio"] >= math.log(0.25) - 1e-4,
            f"a token of ratio {math.exp(p['log_ratio']):.3f} was taken with ratio 0.25",
        )
    for verdict, positions in (("taken", relaxed), ("refused", refused)):
        for p in positions[:5]:
            pair = [bench.pair.detokenize([p[key]]) for key in ("token", "sampled")]
            check.samples.append(f"{verdict}: emitted {pair[0]!r}, sampled {pair[1]!r}")
    check.failures = list(dict.fromkeys(check.failures))
    return check


def guards(bench: Bench) -> Check:
    check = Check("guards", "no relaxed token is an end or a digit, or comes with probabilities")
    for index, prompt in enumerate(bench.prompts):
        listing = f"{prompt}\nPrices: 1.25, 3.50, 7.99, 12.00, "
        _, rounds = bench.traced(listing, {"temperature": 0.8, "seed": index + 1, **RELAXED})
        for p in (p for one in rounds for p in relaxed_of(one)):
            for token in (p["token"], p["sampled"]):
                text = bench.pair.detokenize([token])
                check.expect(
                    not any(char.isdecimal() and char.isascii() for char in text),
                    f"relaxed at a digit: {text!r}",
                )
                check.expect(
                    len(bench.pair.tokenize(text, start=False)) != 1 or not _is_control(text),
                    f"relaxed at a control token: {text!r}",
                )
    with_probabilities = {"n_probs": 3, "temperature": 0.8, "seed": 1, **RELAXED}
    answer = bench.pair.ask(bench.prompts[0], bench.n_predict, **with_probabilities)
    relaxed = answer.timings.get("draft_n_relaxed", 0)
    check.expect(relaxed == 0, f"{relaxed} relaxed tokens although probabilities were asked for")
    return check


def stress(bench: Bench) -> Check:
    check = Check("stress", "top-n above the vocabulary: all drafts taken, no crash, right counts")
    drafted = accepted = guarded = 0
    for index, prompt in enumerate(bench.prompts):
        options = {"temperature": 0.8, "seed": index + 1, "min_p": 0.0, **STRESS}
        answer, rounds = bench.traced(prompt, options)
        drafted += answer.timings.get("draft_n", 0)
        accepted += answer.timings.get("draft_n_accepted", 0)
        verdicts = [p["verdict"] for one in rounds for p in one.positions]
        guarded += sum(verdict not in TAKEN for verdict in verdicts)
        check.expect("rule" not in verdicts, "the rule refused a draft")
        check_text(check, bench, answer, rounds, f"prompt {index}")
        check_counters(check, answer, rounds, f"prompt {index}")
        check.samples.append(answer.text[:160])
    check.figures = {"drafted": drafted, "accepted": accepted, "refused_by_guards": guarded}
    rate = accepted / drafted if drafted else 0.0
    # Only guards, ends and the answer's limit may keep it from 1.
    check.expect(rate > 0.8, f"acceptance {rate:.3f}, expected nearly 1")
    return check


def grammar(bench: Bench) -> Check:
    check = Check("grammar", "relaxed under a JSON schema: no error, valid JSON")
    checked = quality.check_json(
        bench.pair, len(bench.prompts), {"temperature": 0.6, **RELAXED}, lambda _: None
    )
    check.figures = {"requests": checked.requests, "relaxed": checked.relaxed}
    check.expect(not checked.errors, f"{checked.errors} of {checked.requests} requests failed")
    check.expect(not checked.invalid, f"{checked.invalid} answers are not what the schema asks")
    check.samples = list(checked.samples)
    return check


def end_of_text(bench: Bench) -> Check:
    check = Check("end of text", "an answer ends where plain decoding ends")
    for index, prompt in enumerate(bench.prompts[:3]):
        options = {"temperature": 0, "seed": index + 1}
        plain = bench.plain.ask(prompt, 4 * bench.n_predict, **options)
        drafted = bench.pair.ask(prompt, 4 * bench.n_predict, **options, **STRICT)
        check.expect(
            (plain.stop, plain.n_tokens) == (drafted.stop, drafted.n_tokens),
            f"prompt {index}: {plain.n_tokens} tokens ({plain.stop}) without drafts, "
            f"{drafted.n_tokens} ({drafted.stop}) with",
        )
    return check


def context_end(bench: Bench) -> Check:
    check = Check("context end", "drafts up to the last position neither crash nor overrun")
    words = bench.pair.tokenize(prompts.long_document(12 * bench.context, 1))
    start = words[: bench.context - 60]
    body = {"prompt": start, "n_predict": 40, "temperature": 0.6, **RELAXED, "ignore_eos": True}
    reply = bench.pair.post("/completion", body)
    used = reply["tokens_evaluated"] + reply["tokens_predicted"]
    check.figures = {"prompt": len(start), "predicted": reply["tokens_predicted"]}
    check.expect(used <= bench.context, f"{used} tokens in a context of {bench.context}")
    check.expect(reply["tokens_predicted"] == 40, "the answer stopped short of its limit")
    again = bench.pair.ask(bench.prompts[0], 8, temperature=0)
    check.expect(again.n_tokens > 0, "no answer after a full context")
    return check


def second_turn(bench: Bench) -> Check:
    check = Check("second turn", "after refused and relaxed drafts the cache still holds the text")
    worst = 0.0
    for index, prompt in enumerate(bench.prompts[:3]):
        options = {"temperature": 0.6, "seed": index + 1, **RELAXED}
        start = bench.pair.tokenize(prompt)
        first = quality.answer_tokens(bench.pair, start, bench.n_predict, options)
        follow = [*start, *first, *bench.pair.tokenize("\nIn short, ", start=False)]
        # Drafts that were accepted come without probabilities, so this turn drafts nothing.
        body = {"prompt": follow, "n_predict": 24, "temperature": 0, "n_probs": LISTED}
        body["speculative.n_max"] = 0
        reused = bench.pair.post("/completion", {**body, "cache_prompt": True})
        fresh = bench.plain.post("/completion", {**body, "cache_prompt": False})
        # What was decoded in batches of another size differs in its last bits, and a close call may
        # then go the other way: the text may differ, the distributions may not.
        apart = worst_kl(fresh, reused)
        worst = max(worst, apart)
        check.expect(
            reused["content"] == fresh["content"] or apart < _ROUNDING,
            f"prompt {index}: {reused['content']!r} from the cache, {fresh['content']!r} without; "
            f"a next token's distributions are {apart:.4f} nats apart",
        )
    check.figures = {"worst_kl_nats": round(worst, 6)}
    return check


def validation(bench: Bench) -> Check:
    check = Check("validation", "a setting of a wrong type or range is refused, not ignored")
    for key, value in (
        ("speculative.relaxed_top_n", "five"),
        ("speculative.relaxed_ratio", 2),
        ("speculative.relaxed_top_n", -1),
        ("speculative.n_max", 1.5),
    ):
        body = {"prompt": "x", "n_predict": 1, key: value}
        status = bench.pair.reply("/completion", body).status_code
        check.expect(status == 400, f"{key}={value!r}: HTTP {status}, expected 400")
    return check


CHECKS: tuple[Callable[[Bench], Check], ...] = (
    control, inert, positive, guards, stress, grammar, end_of_text, context_end, second_turn,
    validation,
)  # fmt: skip


def _is_control(text: str) -> bool:
    return text.startswith("<|") and text.endswith("|>")
