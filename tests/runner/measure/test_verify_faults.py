"""`verify` passes with our runner and fails with a runner that has a fault.

The runner is the real one; each fault is put between it and `verify`, in the request (the runner
then really behaves that way), in the reply or in the trace. A runner compiled for each fault would
say the same at ten times the cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fixtures.wired import pair

from ollama_spec.measure import verify
from ollama_spec.measure.check import Bench
from ollama_spec.measure.client import Answer, Client
from ollama_spec.measure.trace import Round
from ollama_spec.profiles import RunnerSettings, WeightFile
from ollama_spec.runner import binary
from ollama_spec.store import ModelRecord, Profile

pytestmark = pytest.mark.real_runner

Body = dict[str, Any]


@dataclass
class Fault:
    """What is wrong with the runner; the defaults change nothing."""

    body: Callable[[Body], Body] = lambda body: body
    timings: Callable[[dict[str, Any]], dict[str, Any]] = lambda timings: timings
    text: Callable[[str], str] = lambda text: text
    position: Callable[[dict[str, Any]], dict[str, Any]] = lambda position: position


class FaultyClient(Client):
    """A client whose server has the fault."""

    def __init__(self, sound: Client, fault: Fault) -> None:
        self.dialect, self.model, self._http = sound.dialect, sound.model, sound._http
        self._fault = fault

    def stream(self, path: str, body: Body) -> Answer:
        answer = super().stream(path, self._fault.body(dict(body)))
        return dataclasses.replace(
            answer,
            text=self._fault.text(answer.text),
            timings=self._fault.timings(dict(answer.timings)),
        )

    def post(self, path: str, body: Body) -> Body:
        return super().post(path, self._fault.body(dict(body)))

    def reply(self, path: str, body: Body) -> httpx.Response:
        return super().reply(path, self._fault.body(dict(body)))


class FaultyBench(Bench):
    fault: Fault

    def traced(self, prompt: str, options: Body) -> tuple[Answer, list[Round]]:
        answer, rounds = super().traced(prompt, options)
        changed = [
            dataclasses.replace(
                one, positions=tuple(self.fault.position(dict(p)) for p in one.positions)
            )
            for one in rounds
        ]
        return answer, changed


@pytest.fixture(scope="module")
def bench(patched_runner: Any) -> Iterator[Bench]:
    made = pair()
    record = ModelRecord(
        name="wired",
        target=WeightFile(path=made.target, size=made.target.stat().st_size),
        drafter=WeightFile(path=made.drafter, size=made.drafter.stat().st_size),
        profile=Profile(runner=RunnerSettings(args=["-t", "1"])),
    )
    with verify.opened(binary.probe(patched_runner), record, quick=True) as opened:
        yield dataclasses.replace(opened, n_predict=96)


def faulty(bench: Bench, fault: Fault) -> FaultyBench:
    values = {field.name: getattr(bench, field.name) for field in dataclasses.fields(bench)}
    made = FaultyBench(**{**values, "pair": FaultyClient(bench.pair, fault)})
    object.__setattr__(made, "fault", fault)
    return made


def test_the_sound_runner_passes(bench: Bench) -> None:
    checks = verify.run(bench, lambda _: None)
    assert {check.name: check.failures for check in checks if not check.passed} == {}
    assert len(checks) == len(verify.CHECKS)


def put(**values: Any) -> Callable[[Body], Body]:
    """Set keys (dots written as __) in every drafting request."""
    keys = {key.replace("__", "."): value for key, value in values.items()}
    return lambda body: {**body, **keys} if "speculative.relaxed_top_n" in body else body


def without(*keys: str) -> Callable[[Body], Body]:
    return lambda body: {key: value for key, value in body.items() if key not in keys}


def add(key: str, amount: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda timings: {**timings, key: timings.get(key, 0) + amount}


def sample_instead_of_draft(position: dict[str, Any]) -> dict[str, Any]:
    return {**position, "token": position["sampled"]}


def ends_early(body: Body) -> Body:
    return {**body, "n_predict": body["n_predict"] // 2} if "n_predict" in body else body


def loses_a_token_of_the_cache(body: Body) -> Body:
    prompt = body.get("prompt")
    if body.get("cache_prompt") and isinstance(prompt, list):
        return {**body, "prompt": [*prompt[: len(prompt) // 2], *prompt[len(prompt) // 2 + 1 :]]}
    return body


def ignores_wrong_values(body: Body) -> Body:
    wrong = {"speculative.relaxed_top_n": ("five", -1), "speculative.relaxed_ratio": (2,)}
    wrong["speculative.n_max"] = (1.5,)
    return {key: value for key, value in body.items() if value not in wrong.get(key, ())}


FAULTS = {
    "relaxed although off": (
        Fault(body=put(speculative__relaxed_top_n=5, speculative__relaxed_budget=0)),
        verify.control,
    ),
    "relaxed although off, seen in the trace": (
        Fault(body=put(speculative__relaxed_top_n=5, speculative__relaxed_budget=0)),
        verify.inert,
    ),
    "relaxed rule never applies": (Fault(body=put(speculative__relaxed_top_n=0)), verify.positive),
    "rank and ratio ignored": (
        Fault(body=put(speculative__relaxed_top_n=1_000_000, speculative__relaxed_ratio=0)),
        verify.positive,
    ),
    "everything accepted is called a match": (
        Fault(position=lambda p: {**p, "verdict": p["verdict"].replace("relaxed", "match")}),
        verify.positive,
    ),
    "emits the sample instead of the draft": (
        Fault(position=sample_instead_of_draft),
        verify.positive,
    ),
    "text is not what was verified": (Fault(text=lambda text: text[::-1]), verify.positive),
    "relaxed count wrong": (Fault(timings=add("draft_n_relaxed", 1)), verify.positive),
    "accepted count wrong": (Fault(timings=add("draft_n_accepted", 20)), verify.positive),
    "regret wrong": (Fault(timings=add("draft_regret_nats", 0.5)), verify.positive),
    "no drafts at all": (Fault(body=put(speculative__n_max=0)), verify.control),
    "guard of probabilities gone": (Fault(body=without("n_probs")), verify.guards),
    "grammar not enforced": (Fault(body=without("json_schema")), verify.grammar),
    "answer ends early": (Fault(body=ends_early), verify.end_of_text),
    "cache holds another text": (Fault(body=loses_a_token_of_the_cache), verify.second_turn),
    "wrong values ignored": (Fault(body=ignores_wrong_values), verify.validation),
    "limit below the vocabulary": (
        Fault(body=put(speculative__relaxed_ratio=0.25)),
        verify.stress,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(bench: Bench, name: str) -> None:
    fault, check = FAULTS[name]
    assert check(bench).passed
    assert not check(faulty(bench, fault)).passed
