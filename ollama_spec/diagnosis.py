"""One finding of `doctor`: a check's verdict, what was seen, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ollama_spec.errors import OllamaSpecError
from ollama_spec.profiles import Strict

Verdict = Literal["ok", "warn", "fail"]


class Finding(Strict):
    check: str
    verdict: Verdict
    text: str
    hint: str | None = None


def attempt(check: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of `look`; an error of ours becomes a failed one, so later checks still run."""
    try:
        return look()
    except OllamaSpecError as error:
        return [Finding(check=check, verdict="fail", text=error.message, hint=error.hint)]


def healthy(findings: list[Finding]) -> bool:
    """Warnings do not make a machine unhealthy; failures do."""
    return all(finding.verdict != "fail" for finding in findings)


def as_text(findings: list[Finding]) -> str:
    """A line each, and its hint below it when there is something to do."""
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.verdict:4}  {finding.check:{width}}  {finding.text}")
        if finding.hint and finding.verdict != "ok":
            lines.append(f"      {'':{width}}  → {finding.hint}")
    return "\n".join(lines)
