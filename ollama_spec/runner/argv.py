"""The command line of a child: from a model's record, the request's load options and what the
runner's `--help` lists (contract 7.1, CASES 16). A wanted flag that is not listed is an error
before any start, except where the same can be said in an older way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ollama_spec.gguf import GgufHeader
from ollama_spec.modelfile import pairing
from ollama_spec.profiles import PrefillSettings, SpecSettings
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord


@dataclass(frozen=True)
class Wanted:
    """What a child shall run with; two requests with equal `Wanted` share one child."""

    record: ModelRecord
    num_ctx: int
    parallel: int
    shift: bool
    load: Mapping[str, Any]  # load options other than num_ctx that were given
    spec_type: str | None
    n_max: int
    num_keep: int
    embedding: bool = False
    projector_on_cpu: bool = False
    # whether nobody asked for num_ctx: then less of it will do when memory is short
    automatic_ctx: bool = field(default=False, compare=False)


def spec_type(record: ModelRecord, target: GgufHeader, drafter: GgufHeader | None) -> str | None:
    """llama-server's `--spec-type`: the profile's, else by the headers; None: no drafting."""
    chosen = record.profile.spec.type
    if chosen:
        return None if chosen == "none" else chosen
    return pairing.choose_spec_type(target, drafter)


def server_argv(binary: Binary, wanted: Wanted, address: str) -> list[str]:
    """The whole command; ApiError 500 naming the flag the runner lacks."""
    record = wanted.record
    argv = [str(binary.path), "--model", str(record.target.path)]
    argv += _listen(binary, address)
    argv += _first_listed(binary, ("--no-ui",), ("--no-webui",))
    argv += _first_listed(binary, ("--offline",))
    argv += ["-c", str(wanted.num_ctx * wanted.parallel), "-np", str(wanted.parallel)]
    argv += _first_listed(binary, ("--log-verbosity", "4"))
    argv += _first_listed(binary, ("--no-log-prefix",))
    argv += _first_listed(binary, ("--no-log-timestamps",))
    if record.projector:
        argv += ["--mmproj", str(record.projector.path)]
        if wanted.projector_on_cpu:
            argv += _need(binary, "--no-mmproj-offload")
    argv += _speculation(binary, wanted)
    argv += _prefill(binary, record.profile.prefill)
    argv += _load_options(binary, wanted)
    if wanted.shift and not record.projector:
        argv += _first_listed(binary, ("--context-shift",))
        if wanted.num_keep > 0:
            argv += ["--keep", str(wanted.num_keep)]
    return argv + list(record.profile.runner.args)


def _listen(binary: Binary, address: str) -> list[str]:
    if address.startswith("/"):
        return ["--host", address]
    host, port = address.rsplit(":", 1)
    return ["--host", host, "--port", port]


def _first_listed(binary: Binary, *ways: Sequence[str]) -> list[str]:
    """The first way whose flag the runner lists, or nothing."""
    for way in ways:
        if way[0] in binary.flags:
            return list(way)
    return []


def _need(binary: Binary, flag: str, *values: str) -> list[str]:
    if flag not in binary.flags:
        raise ApiError(
            500,
            f"this llama-server ({binary.build}) has no {flag}, which the model's profile asks "
            "for; build a runner with `ollama-spec build` or change the profile",
        )
    return [flag, *values]


def _speculation(binary: Binary, wanted: Wanted) -> list[str]:
    if wanted.spec_type is None:
        return []
    kinds = wanted.spec_type.split(",")
    missing = [kind for kind in kinds if kind not in binary.spec_types]
    if missing:
        offered = ", ".join(sorted(binary.spec_types - {"none"})) or "none at all"
        raise ApiError(
            500,
            f"this llama-server ({binary.build}) cannot draft with {missing[0]}; "
            f"it offers: {offered}",
        )
    record, spec = wanted.record, wanted.record.profile.spec
    argv = _need(binary, "--spec-type", wanted.spec_type)
    argv += _need(binary, "--spec-draft-n-max", str(wanted.n_max))
    if spec.n_min:
        argv += _need(binary, "--spec-draft-n-min", str(spec.n_min))
    if spec.p_min:
        argv += _need(binary, "--spec-draft-p-min", f"{spec.p_min:g}")
    if record.drafter:
        argv += _need(binary, "--spec-draft-model", str(record.drafter.path))
    return argv + _acceptance(binary, spec)


def profile_flags(binary: Binary, record: ModelRecord, kind: str | None) -> list[str]:
    """What the profile adds to a command line of Ollama's own making, where the last flag wins.

    `kind`: the `--spec-type` where Ollama would not draft by itself, with the record's drafter.
    """
    spec = record.profile.spec
    flags: list[str] = []
    if kind:
        flags += _need(binary, "--spec-type", kind)
        if record.drafter:
            flags += _need(binary, "--spec-draft-model", str(record.drafter.path))
    flags += _need(binary, "--spec-draft-n-max", str(spec.n_max))
    if spec.p_min:
        flags += _need(binary, "--spec-draft-p-min", f"{spec.p_min:g}")
    flags += _acceptance(binary, spec) + _prefill(binary, record.profile.prefill)
    return flags + list(record.profile.runner.args)


def _acceptance(binary: Binary, spec: SpecSettings) -> list[str]:
    argv: list[str] = []
    if spec.preset:
        argv += _need(binary, "--spec-draft-preset", spec.preset)
    if spec.skip_streak:
        argv += _need(binary, "--spec-draft-skip-streak", str(spec.skip_streak))
        argv += _need(binary, "--spec-draft-skip-cooldown", str(spec.skip_cooldown))
    if spec.adaptive != "off":
        argv += _need(binary, "--spec-draft-adaptive", spec.adaptive)
    accept = spec.accept
    if accept.mode == "relaxed":
        # The budget is a property of the child; the rest is said again with each request.
        argv += _need(binary, "--spec-draft-relaxed-top-n", str(accept.top_n))
        argv += _need(binary, "--spec-draft-relaxed-ratio", f"{accept.ratio:g}")
        argv += _first_listed(binary, ("--spec-draft-relaxed-budget", f"{accept.budget_nats:g}"))
    return argv


def _prefill(binary: Binary, prefill: PrefillSettings) -> list[str]:
    if prefill.mode == "dense":
        return []
    argv = _need(binary, "--specprefill")
    if prefill.speculator:
        argv += _need(binary, "--specprefill-model", str(prefill.speculator.path))
    keep = ",".join(f"{tokens}:{rate:g}" for tokens, rate in sorted(prefill.keep.items()))
    for name, value in (
        ("min-tokens", str(prefill.min_tokens)),
        ("keep", keep),
        ("chunk", str(prefill.chunk)),
        ("lookahead", str(prefill.lookahead)),
        ("pool", str(prefill.pool)),
        *([("tail", str(prefill.tail))] if prefill.tail else []),
        ("anchors", "on" if prefill.anchors else "off"),
        *([("pos", prefill.pos)] if prefill.pos != "auto" else []),
        ("reuse", "on" if prefill.reuse else "off"),
        ("min-gain", f"{prefill.min_gain:g}"),
    ):
        argv += _first_listed(binary, (f"--specprefill-{name}", value))
    return argv


def _load_options(binary: Binary, wanted: Wanted) -> list[str]:
    load = wanted.load
    argv: list[str] = []
    if load.get("use_mmap") is False:
        argv += _first_listed(binary, ("--load-mode", "none"), ("--no-mmap",))
    batch = load.get("num_batch") or _batch(wanted)
    if wanted.embedding:
        argv += ["--embedding"]
        batch = min(load.get("num_batch") or 2048, wanted.num_ctx * wanted.parallel)
    argv += ["-b", str(batch), "-ub", str(batch)]
    if load.get("num_gpu", -1) >= 0:
        argv += ["-ngl", str(load["num_gpu"])]
    if load.get("num_thread", 0) > 0:
        argv += ["-t", str(load["num_thread"])]
    if load.get("main_gpu") is not None:
        argv += ["--split-mode", "none", "--main-gpu", str(load["main_gpu"])]
    return argv


def _batch(wanted: Wanted) -> int:
    """Contract 3.4; the step down by free memory is llama-server's own fitting."""
    total = wanted.num_ctx * wanted.parallel
    return 2048 if total > 32768 else 1024 if total > 4096 else 512
