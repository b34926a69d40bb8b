"""How far a transfer is: a bar on a terminal, else a plain line every ten seconds."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from tqdm import tqdm

from ollama_spec import output

_EVERY_SECONDS = 10.0


class Progress:
    """Counts bytes of one transfer; `already` is what an earlier run fetched."""

    def __init__(self, label: str, total: int, already: int = 0) -> None:
        self.label = label
        self.total = total
        self.done = already
        self._already = already
        self._began = self._told = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if output.is_tty():
            self._bar = tqdm(
                desc=self.label,
                total=self.total,
                initial=self._already,
                unit="B",
                unit_scale=True,
                dynamic_ncols=True,
            )
        else:
            share = f", {output.human_size(self._already)} are here" if self._already else ""
            output.note(f"{self.label}: {output.human_size(self.total)}{share}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif kind is None:
            output.note(f"{self.label}: done{self._rate_text()}")

    def add(self, count: int) -> None:
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
            return
        now = time.monotonic()
        if now - self._told >= _EVERY_SECONDS:
            self._told = now
            share = 100 * self.done // max(self.total, 1)
            output.note(f"{self.label}: {share} %{self._rate_text()}, {self._left_text()} left")

    def restart(self) -> None:
        self._already = 0
        if self._bar is not None:
            self._bar.update(-self.done)
        self.done = 0
        self._began = time.monotonic()

    def _rate(self) -> float:
        return (self.done - self._already) / max(time.monotonic() - self._began, 1e-3)

    def _rate_text(self) -> str:
        return f", {output.human_size(int(self._rate()))}/s" if self.done > self._already else ""

    def _left_text(self) -> str:
        rate = self._rate()
        if rate <= 0:
            return "unknown time"
        seconds = int((self.total - self.done) / rate)
        return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"
