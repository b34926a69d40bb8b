"""Never slower: decoding rates of a model here and in Ollama, and who answers the next request.

With `compare_every: N`, every N-th request for a model that Ollama has too goes to the other side
than the rest. Once both sides have enough answers, the faster one gets the rest.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from ollama_spec import names

Side = Literal["here", "ollama"]
_WINDOW = 8  # answers that count
_ENOUGH = 3  # answers of a side before it is judged
_SHORTEST = 8  # tokens; a shorter answer says little about the rate
_MARGIN = 0.97  # of Ollama's rate: less is slower, and not noise


@dataclass
class _Model:
    asked: int = 0
    rates: dict[Side, deque[float]] = field(
        default_factory=lambda: {"here": deque(maxlen=_WINDOW), "ollama": deque(maxlen=_WINDOW)}
    )


class Rates:
    def __init__(self, compare_every: int) -> None:
        self._every = compare_every
        self._models: dict[tuple[str, str, str, str], _Model] = {}

    def _model(self, name: str) -> _Model:
        return self._models.setdefault(names.parse(name).key, _Model())

    def note(self, model: str, side: Side, tokens: int, seconds: float) -> None:
        """Count one answer; `model`: any spelling of its name."""
        if tokens >= _SHORTEST and seconds > 0:
            self._model(model).rates[side].append(tokens / seconds)

    def medians(self, model: str) -> dict[Side, float]:
        """Tokens per second of the sides that have answered often enough."""
        known = self._model(model).rates.items()
        return {side: statistics.median(r) for side, r in known if len(r) >= _ENOUGH}

    def problem(self, model: str) -> str | None:
        """Why the model's requests go to Ollama; None when they do not."""
        found = self.medians(model)
        if len(found) < 2 or found["here"] >= _MARGIN * found["ollama"]:
            return None
        return (
            f"slower than Ollama here ({found['here']:.1f} against {found['ollama']:.1f} tokens/s):"
            " its requests go to Ollama"
        )

    def next_side(self, model: str) -> Side:
        """Who answers the next request; counts it."""
        if not self._every:
            return "here"
        state = self._model(model)
        state.asked += 1
        usual: Side = "ollama" if self.problem(model) else "here"
        other: Side = "here" if usual == "ollama" else "ollama"
        return other if state.asked % self._every == 0 else usual
