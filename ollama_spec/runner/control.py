"""How one request is to be decoded: `X-Spec-Mode` > `options.spec_*` > the model's profile.

Real Ollama drops option keys it does not know, so clients may always send ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ollama_spec.profiles import Profile
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.binary import Binary

Mode = Literal["off", "strict", "relaxed"]
HEADER = "X-Spec-Mode"
_MODES: tuple[Mode, ...] = ("off", "strict", "relaxed")
# option -> (type of value, body key, lowest, highest)
_NUMBERS: Mapping[str, tuple[type, str, float, float]] = {
    "spec_top_n": (int, "speculative.relaxed_top_n", 1, 1_000_000),
    "spec_ratio": (float, "speculative.relaxed_ratio", 0, 1),
    "spec_delta": (float, "speculative.relaxed_delta", 0, 1),
    "spec_window": (int, "speculative.relaxed_window", 0, 64),
    "spec_budget": (float, "speculative.relaxed_budget", 0, 1_000),
    "spec_n_max": (int, "speculative.n_max", 0, 64),
    "spec_skip_streak": (int, "speculative.skip_streak", 0, 1_000_000),
    "spec_skip_cooldown": (int, "speculative.skip_cooldown", 1, 1_000_000),
}


@dataclass(frozen=True)
class Control:
    """The mode that was asked for and what to add to llama-server's request body."""

    mode: Mode
    body: dict[str, Any] = field(default_factory=dict)


def resolve(
    header: str | None, options: Mapping[str, Any], profile: Profile, binary: Binary
) -> Control:
    """The control of one request; 400 for a value that has no meaning."""
    asked = header if header is not None else options.get("spec_mode")
    if asked is not None and asked not in _MODES:
        where = HEADER if header is not None else "spec_mode"
        raise ApiError(400, f"{where} must be one of strict, relaxed or off, not {asked!r}")
    mode: Mode = asked or profile.spec.accept.mode
    given = _numbers(options)
    body = _acceptance(mode, given, options, profile) | _prefill(mode, header, options, profile)
    if not binary.relaxed:
        # A stock runner has neither relaxation nor a switch per request: it drafts losslessly.
        mode = "strict"
        body = {}
    if not binary.specprefill:
        body.pop("specprefill", None)
    return Control(mode, body)


def _numbers(options: Mapping[str, Any]) -> dict[str, float]:
    given = {}
    for name, (kind, key, low, high) in _NUMBERS.items():
        value = options.get(name)
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or (kind is int and value != int(value)) or not low <= value <= high:
            raise ApiError(400, f"{name} must be {_word(kind)} from {low:g} to {high:g}")
        given[key] = kind(value)
    return given


def _word(kind: type) -> str:
    return "a whole number" if kind is int else "a number"


def _acceptance(
    mode: Mode, given: dict[str, float], options: Mapping[str, Any], profile: Profile
) -> dict[str, Any]:
    scope = options.get("spec_scope")
    if scope is not None and scope not in ("all", "thinking"):
        raise ApiError(400, f"spec_scope must be all or thinking, not {scope!r}")
    if mode == "off":
        return {"speculative.n_max": 0, "speculative.relaxed_top_n": 0}
    lossless = {key: value for key, value in given.items() if ".relaxed_" not in key}
    if mode == "strict":
        return {**lossless, "speculative.relaxed_top_n": 0}
    accept = profile.spec.accept
    return {
        "speculative.relaxed_top_n": accept.top_n,
        "speculative.relaxed_ratio": accept.ratio,
        "speculative.relaxed_delta": accept.delta,
        "speculative.relaxed_scope": scope or accept.scope,
        "speculative.relaxed_window": accept.window,
        "speculative.relaxed_budget": accept.budget_nats,
        **given,
    }


def _prefill(
    mode: Mode, header: str | None, options: Mapping[str, Any], profile: Profile
) -> dict[str, Any]:
    """Sparse prefill is lossy: `strict` or `off` in the header overrules all else."""
    if header in ("strict", "off"):
        return {"specprefill": False}
    asked = options.get("spec_prefill")
    if asked is None:
        asked = profile.prefill.mode == "sparse" and mode != "off"
    if isinstance(asked, bool):
        return {"specprefill": asked}
    keep = asked.get("keep") if isinstance(asked, dict) and set(asked) == {"keep"} else None
    if not isinstance(keep, int | float) or isinstance(keep, bool) or not 0 < keep <= 1:
        raise ApiError(400, 'spec_prefill must be true, false or {"keep": 0.05 to 1}')
    return {"specprefill": {"keep": float(keep)}}
