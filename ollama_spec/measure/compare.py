"""Two result files of `bench` against each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import sample, stats


def load(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
        assert value["format"] == 1 and value["rows"]
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise OllamaSpecError(
            f"{path} is not a result of `ollama-spec bench --json`", hint=str(error) or None
        ) from error
    assert isinstance(value, dict)
    return value


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """One line per set and configuration that both results have: speed after over before, and the
    wait for the first token before over after; above 1 is better now.

    Answers are paired by prompt and repeat, but were taken at different times: the intervals do
    not know of a machine that was busier in one of them. `vs_baseline`, each result's own ratios,
    are free of that.

    To say that a repetition agrees, take these intervals: of medians measured twice, one lies
    outside the other's 95 % interval in 17 of 100 cases though nothing changed. Cumming and
    Maillardet, "Confidence Intervals and Replication" (2006).
    """
    lines = []
    earlier, later = _groups(before), _groups(after)
    for key in earlier:
        if key not in later:
            continue
        common = sorted(set(earlier[key]) & set(later[key]))
        if not common:
            continue
        rows = [[groups[key][unit] for unit in common] for groups in (earlier, later)]
        old, new = (sample.timed(part) for part in rows)
        ratio, waits = stats.speed_ratio(new, old), sample.wait_gain(*rows)
        lines.append(
            {
                "set": key[0],
                "config": key[1],
                "before": stats.speed(old).rounded(2),
                "after": stats.speed(new).rounded(2),
                "speed_ratio": ratio.rounded(),
                "verdict": stats.verdict(ratio),
                "ttft_ms": [sample.median_of(part, "ttft_ms") for part in rows],
                "ttft_gain": waits.rounded(),
                "ttft_verdict": stats.verdict(waits),
                "vs_baseline": [_own(result, "speed_ratio", *key) for result in (before, after)],
                "ttft_vs_baseline": [_own(result, "ttft_gain", *key) for result in (before, after)],
            }
        )
    return lines


def _own(result: dict[str, Any], ratio: str, name: str, config: str) -> dict[str, float] | None:
    """What the result says of this configuration against its own baseline."""
    lines = [line for line in result["summary"] if (line["set"], line["config"]) == (name, config)]
    return lines[0].get(ratio) if lines else None


def _groups(result: dict[str, Any]) -> dict[tuple[str, str], dict[tuple[int, int], sample.Row]]:
    found: dict[tuple[str, str], dict[tuple[int, int], sample.Row]] = {}
    for row in result["rows"]:
        group = found.setdefault((row["set"], row["config"]), {})
        group[(row["prompt"], row["repeat"])] = row
    return found
