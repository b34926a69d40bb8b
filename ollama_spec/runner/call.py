"""What a route handler gets: one request for a model of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ollama_spec.runner import control
from ollama_spec.runner.request import Services
from ollama_spec.store import ModelRecord


@dataclass(frozen=True)
class Call:
    http: web.Request
    services: Services
    record: ModelRecord
    raw: dict[str, Any]  # the body as it came

    @property
    def mode(self) -> str | None:
        return self.http.headers.get(control.HEADER)
