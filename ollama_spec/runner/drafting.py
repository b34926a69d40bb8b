"""Whether a model that should draft does: a drafter can be loaded and never be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ENOUGH = 24  # tokens in one answer; a shorter one may have had no room for a draft
_PATIENCE = 2  # answers without a draft before it is called off


class Drafting:
    def __init__(self, spec_type: str | None) -> None:
        self.spec_type = spec_type
        self.drafted = 0
        self.accepted = 0
        self.answers = 0
        self._without = 0

    def note(self, timings: Mapping[str, Any], mode: str) -> None:
        """Count one answer's timings."""
        self.answers += 1
        self.drafted += int(timings.get("draft_n") or 0)
        self.accepted += int(timings.get("draft_n_accepted") or 0)
        if timings.get("draft_n"):
            self._without = 0
        elif mode != "off" and int(timings.get("predicted_n") or 0) >= _ENOUGH:
            self._without += 1

    @property
    def problem(self) -> str | None:
        """Why there is no speculation although the profile asks for it; None if all is well."""
        if self.spec_type is None or self._without < _PATIENCE:
            return None
        return f"{self.spec_type} is loaded, but {self._without} answers had no drafted token"
