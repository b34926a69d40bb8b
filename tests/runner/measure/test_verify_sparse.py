"""The checks of sparse prefill pass with our runner and fail with one that has a fault.

As in test_verify_faults.py, the runner is the real one and the fault is put in front of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import sparse
from ollama_spec.measure.client import Client
from ollama_spec.measure.sparse import SparseBench
from ollama_spec.profiles import Profile, RunnerSettings, WeightFile
from ollama_spec.runner import binary
from ollama_spec.store import ModelRecord

pytestmark = [pytest.mark.real_runner, pytest.mark.timeout(600)]

Body = dict[str, Any]


@pytest.fixture(scope="module")
def bench(patched_runner: Path, smollm2: Path, smollm2_drafter: Path) -> Iterator[SparseBench]:
    files = [WeightFile(path=p, size=p.stat().st_size) for p in (smollm2, smollm2_drafter)]
    one_thread = Profile(runner=RunnerSettings(args=["-t", "1"]))
    record = ModelRecord(name="x", target=files[0], drafter=files[1], profile=one_thread)
    with sparse.opened(binary.probe(patched_runner), record, quick=True) as opened:
        yield dataclasses.replace(opened, depths=(0.3,))


class FaultyClient(Client):
    """A client whose server has the fault."""

    def __init__(
        self, sound: Client, before: Callable[[Body], Body], after: Callable[[Body], Body]
    ) -> None:
        self.dialect, self.model, self._http = sound.dialect, sound.model, sound._http
        self._before, self._after = before, after

    def post(self, path: str, body: Body) -> Body:
        return self._after(super().post(path, self._before(dict(body))))


def same(value: Body) -> Body:
    return value


def is_sparse(body: Body) -> bool:
    return isinstance(body.get("specprefill"), dict)


def builds_on_holes(body: Body) -> Body:
    """The dense turn after a sparse one is answered from what the sparse one left."""
    after_sparse = body.get("cache_prompt") and body.get("specprefill") is False
    return {**body, "specprefill": {"keep": 0.3}} if after_sparse else body


def drops_the_fact(body: Body) -> Body:
    if not is_sparse(body):
        return body
    head, tail = body["prompt"].split(" The secret access code", 1)
    return {**body, "prompt": head + " Nothing is known of it. As was said" + tail[40:]}


def never_sparse(body: Body) -> Body:
    return {**body, "specprefill": False} if is_sparse(body) else body


def counts_all_as_kept(reply: Body) -> Body:
    report = reply.get("timings", {}).get("specprefill") or {}
    if report.get("status") == "active":
        report["n_kept"] = report["n_prompt"]
    return reply


def tells_the_short_prompt(reply: Body) -> Body:
    timings = reply.get("timings", {})
    if (timings.get("specprefill") or {}).get("status") == "active":
        timings["prompt_n"] = timings["specprefill"]["n_kept"]
    return reply


FAULTS = {
    "holes reused": (builds_on_holes, same, sparse.holes),
    "the fact is dropped": (drops_the_fact, same, sparse.needles),
    "never sparse": (never_sparse, same, sparse.needles),
    "kept count wrong": (same, counts_all_as_kept, sparse.needles),
    "prompt count wrong": (same, tells_the_short_prompt, sparse.needles),
    "sparse although not asked for": (
        lambda body: {**body, "specprefill": {"keep": 0.1}}, same, sparse.dense,
    ),
}  # fmt: skip


def test_the_sound_runner_passes(bench: SparseBench) -> None:
    failures = {check.name: check.failures for check in sparse.run(bench, lambda _: None)}
    assert not any(failures.values()) and len(failures) == 3


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(bench: SparseBench, name: str) -> None:
    before, after, check = FAULTS[name]
    faulty = dataclasses.replace(bench, client=FaultyClient(bench.client, before, after))
    assert not check(faulty).passed


def test_a_runner_without_sparse_prefill_is_refused(stock_runner: Path) -> None:
    file = WeightFile(path=stock_runner, size=1)
    record = ModelRecord(name="x", target=file)
    with (
        pytest.raises(OllamaSpecError, match="no sparse prefill"),
        sparse.opened(binary.probe(stock_runner), record, quick=True),
    ):
        pass
