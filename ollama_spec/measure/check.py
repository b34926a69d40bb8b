"""The outcome of one check of `verify`, and the material all checks share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ollama_spec.measure import trace
from ollama_spec.measure.client import Answer, Client
from ollama_spec.measure.trace import Round

STRICT: dict[str, Any] = {"speculative.relaxed_top_n": 0}
# Without a budget and with few guards, so that a check sees many relaxed tokens.
RELAXED: dict[str, Any] = {
    "speculative.relaxed_top_n": 5,
    "speculative.relaxed_ratio": 0.25,
    "speculative.relaxed_budget": 0,
}
STRESS: dict[str, Any] = {
    "speculative.relaxed_top_n": 1_000_000,
    "speculative.relaxed_ratio": 0,
    "speculative.relaxed_budget": 0,
    "speculative.relaxed_digits": False,
}


@dataclass
class Check:
    """`failures` are sentences; none means it passed. `samples` are for a reader's eye."""

    name: str
    proves: str
    failures: list[str] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.failures

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.failures.append(otherwise)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "passed": self.passed,
            "proves": self.proves,
            "failures": self.failures,
            "figures": self.figures,
            "samples": self.samples,
        }


@dataclass(frozen=True)
class Bench:
    """Clients of the plain target and of the pair, whose rounds go to `trace_path`."""

    plain: Client
    pair: Client
    trace_path: Path
    prompts: list[str]
    n_predict: int
    context: int

    def traced(self, prompt: str, options: dict[str, Any]) -> tuple[Answer, list[Round]]:
        """An answer of the pair and the rounds it took."""
        start = self.trace_path.stat().st_size if self.trace_path.exists() else 0
        answer = self.pair.ask(prompt, self.n_predict, **options)
        return answer, trace.read(self.trace_path, start)
