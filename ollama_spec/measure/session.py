"""The servers a measurement of a stored model needs: with its drafter, and without."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ollama_spec import config
from ollama_spec.errors import OllamaSpecError, StartFailed
from ollama_spec.measure.client import Client
from ollama_spec.measure.server import free_port, running
from ollama_spec.profiles import PrefillSettings
from ollama_spec.runner import argv, binary, options, planning
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord

STRICT = {"speculative.relaxed_top_n": 0}
RELAXED = {"speculative.relaxed_top_n": 5, "speculative.relaxed_ratio": 0.25}


def chosen_runner(path: Path | None = None) -> Binary:
    return binary.probe(path) if path else binary.find(config.load())


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spare_threads(record: ModelRecord) -> int | None:
    """Threads for checks that are not timed: half the cores, as two threads that wait for each
    other on a busy machine take ten times as long as one. None: the model says itself."""
    own = {"-t", "--threads"} & set(record.profile.runner.args)
    return None if own or record.parameters.get("num_thread") else max(1, cores() // 2)


def warn_if_busy(note: Callable[[str], None]) -> None:
    """Speeds measured on a machine that has other things to do are low and vary."""
    load = os.getloadavg()[0]
    if load > 0.5 * cores():
        note(
            f"warning: load {load:.1f} on {cores()} cores; speeds will be low and vary; "
            "fewer --threads suffer less"
        )


def need_ours(runner: Binary) -> None:
    """OllamaSpecError unless the runner has our overlay."""
    if not runner.relaxed:
        raise OllamaSpecError(
            f"this runner ({runner.build}) has no relaxed acceptance to judge",
            hint="build ours with `ollama-spec build`",
        )


def server_argv(
    runner: Binary,
    record: ModelRecord,
    port: int,
    *,
    drafting: bool = True,
    dense: bool = False,
    n_max: int | None = None,
    num_ctx: int | None = None,
    threads: int | None = None,
    extra: Sequence[str] = (),
) -> list[str]:
    """The child's command as `serve` would start it, listening on a local port.

    `dense` leaves out what the profile says of sparse prefill, `drafting=False` the drafter.
    """
    if dense:
        profile = record.profile.model_copy(update={"prefill": PrefillSettings()})
        record = record.model_copy(update={"profile": profile})
    asked: dict[str, Any] = {"num_ctx": num_ctx or 4096}
    extra = [*(["-t", str(threads)] if threads else []), *extra]
    if n_max is not None:
        asked["draft_num_predict"] = n_max
    try:
        wanted = planning.plan(
            record, options.merge(record.parameters, asked) | asked, None, config.load()
        )
        if not drafting:
            wanted = dataclasses.replace(wanted, spec_type=None, n_max=0)
        return [*argv.server_argv(runner, wanted, f"127.0.0.1:{port}"), *extra]
    except ApiError as error:
        raise StartFailed(error.message, hint="`ollama-spec show` prints the profile") from error


@contextmanager
def serving(runner: Binary, record: ModelRecord, **how: Any) -> Iterator[Client]:
    """A server for `record` (see `server_argv`) and a client of it."""
    port = free_port()
    command = server_argv(runner, record, port, **how)
    with running(command, port) as url, Client(url) as client:
        yield client
