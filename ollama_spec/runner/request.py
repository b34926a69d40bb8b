"""A request for a model of ours, with everything that the record, the header of the file and the
options say about it worked out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ollama_spec import names
from ollama_spec.config import Config
from ollama_spec.gguf import GgufHeader
from ollama_spec.runner import capabilities, control, keepalive, options, planning, wire
from ollama_spec.runner.apierror import ApiError
from ollama_spec.runner.argv import Wanted
from ollama_spec.runner.passthrough import Upstream
from ollama_spec.runner.pool import Lease, Loaded, Pool
from ollama_spec.runner.rates import Rates
from ollama_spec.runner.receipts import receipt
from ollama_spec.store import ModelRecord, ModelStore

_LEVELS = ("high", "medium", "low", "max")
_THINK = '"high", "medium", "low", "max", true, or false'


@dataclass
class Services:
    """What every handler needs."""

    config: Config
    pool: Pool
    store: ModelStore
    upstream: Upstream
    rates: Rates


@dataclass
class Request:
    services: Services
    record: ModelRecord
    header: GgufHeader
    body: dict[str, Any]  # the known fields
    mode_header: str | None
    options: dict[str, Any]
    wanted: Wanted
    keep_alive: float | None
    started: float
    load_seconds: float = 0.0

    @property
    def model(self) -> str:
        """As the client wrote it: replies echo it."""
        return str(self.body.get("model", ""))

    @property
    def full_name(self) -> str:
        return names.parse(self.record.name).full

    @property
    def capabilities(self) -> list[str]:
        return capabilities.of_model(self.record, self.header)

    def control(self, lease: Lease) -> control.Control:
        asked = self.body.get("options") or {}
        return control.resolve(self.mode_header, asked, self.record.profile, lease.binary)

    def lease(self) -> Any:
        return self.services.pool.lease(self.wanted, self.keep_alive)


def prepare(
    services: Services, record: ModelRecord, body: dict[str, Any], mode_header: str | None
) -> Request:
    """Check what can be checked before a model is loaded."""
    header = planning.header_of(record)
    merged = options.merge(record.parameters, body.get("options"))
    return Request(
        services=services,
        record=record,
        header=header,
        body=body,
        mode_header=mode_header,
        options=merged,
        wanted=planning.plan(record, merged, body.get("shift"), services.config),
        keep_alive=keepalive.parse(body.get("keep_alive")),
        started=time.monotonic(),
    )


def thinking(request: Request, *, silently: bool = False) -> bool | str | None:
    """The `think` value that holds: True where the model can and the client said nothing.

    A truthy value for a model without the capability is a 400, or dropped if `silently`.
    """
    value = request.body.get("think")
    able = "thinking" in request.capabilities
    if value is None:
        return True if able else None
    if isinstance(value, str) and value not in _LEVELS:
        raise ApiError(
            400,
            f'invalid think value: "{value}" (must be {_THINK})',
        )
    if not isinstance(value, bool | str):
        raise ApiError(400, f"think must be a boolean or string ({_THINK})")
    if value and not able:
        if silently:
            return None
        raise ApiError(400, f'"{request.model}" does not support thinking')
    return value


def template_kwargs(think: bool | str | None) -> dict[str, Any]:
    """llama-server's `chat_template_kwargs` for a think value (contract 7.5)."""
    if think is None:
        return {}
    kwargs: dict[str, Any] = {"enable_thinking": bool(think)}
    if isinstance(think, str):
        kwargs["reasoning_effort"] = think
    return {"chat_template_kwargs": kwargs}


def check_logprobs(body: Mapping[str, Any]) -> None:
    top = body.get("top_logprobs", 0)
    if not 0 <= top <= 20:
        raise ApiError(400, "top_logprobs must be between 0 and 20")


def response_format(value: Any) -> dict[str, Any] | None:
    """`format` as llama-server's `response_format`; None when absent (contract 4.4)."""
    if value in (None, ""):
        return None
    if value == "json":
        return {"type": "json_object"}
    if isinstance(value, dict):
        return {"type": "json_schema", "json_schema": {"name": "schema", "schema": value}}
    shown = wire.dumps(wire.dumps(value).decode()).decode()
    raise ApiError(
        500, f'invalid format: {shown}; expected "json" or a valid JSON Schema object', late=True
    )


def metrics(request: Request, timings: Mapping[str, Any]) -> dict[str, int]:
    """The six counts and durations of the last chunk (contract 7.7); zeros are left out."""
    values = {
        "total_duration": int((time.monotonic() - request.started) * 1e9),
        "load_duration": int(request.load_seconds * 1e9),
        "prompt_eval_count": int(timings.get("cache_n", 0)) + int(timings.get("prompt_n", 0)),
        "prompt_eval_duration": int(float(timings.get("prompt_ms", 0)) * 1e6),
        "eval_count": int(timings.get("predicted_n", 0)),
        "eval_duration": int(float(timings.get("predicted_ms", 0)) * 1e6),
    }
    return {key: value for key, value in values.items() if value}


def finish(
    request: Request, loaded: Loaded, timings: Mapping[str, Any], mode: control.Mode
) -> dict[str, Any]:
    """Metrics and receipt of a complete answer; also tells the pool that the model works."""
    loaded.drafting.note(timings, mode)
    request.services.pool.answered(loaded)
    tokens, spent = int(timings.get("predicted_n", 0)), float(timings.get("predicted_ms", 0))
    request.services.rates.note(request.record.name, "here", tokens, spent / 1e3)
    loaded.child.log.limit()
    return {**metrics(request, timings), "spec": receipt(timings, mode, loaded.binary.build)}


def logprob_entries(content: list[Any] | None, top: int) -> list[dict[str, Any]]:
    """llama-server's token list in Ollama's form (contract 4.8)."""
    entries = []
    for item in content or []:
        entry = _logprob(item)
        if top > 0:
            entry["top_logprobs"] = [_logprob(part) for part in item.get("top_logprobs", [])[:top]]
        entries.append(entry)
    return entries


def _logprob(item: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "token": item.get("token", ""),
        "logprob": item.get("logprob") or item.get("prob") or 0,
    }
    if item.get("bytes"):
        entry["bytes"] = item["bytes"]
    return entry
