"""A result of `bench` as Markdown, CSV or a page that opens from disk without a network."""

from __future__ import annotations

import csv
import io
from typing import Any

import jinja2

from ollama_spec.measure.plot import Bar, bars
from ollama_spec.resources import resource_dir

# Key of a shown value, its title; a column without any value in a table is left out.
_COLUMNS = (
    ("config", "configuration"),
    ("speed", "tok/s"),
    ("ratio", "vs baseline"),
    ("verdict", "verdict"),
    ("ttft", "TTFT ms"),
    ("wait", "TTFT gain"),
    ("tpot_ms", "TPOT ms"),
    ("prompt_tokens", "prompt tokens"),
    ("prefill_tokens_per_second", "prefill tok/s"),
    ("status", "sparse prefill"),
    ("acceptance", "acceptance"),
    ("acceptance_length", "τ"),
    ("positions", "accepted at 1, 2, ..."),
    ("draft_ms_per_round", "draft ms/round"),
    ("regret", "regret/token"),
    ("joules_per_token", "J/token"),
)
_LONG = 1000  # prompt tokens; from here on the wait for the first token has a chart of its own


def markdown(result: dict[str, Any]) -> str:
    """One table per prompt set, with intervals in brackets."""
    parts = [_caption(result)]
    for name, lines in _by_set(result).items():
        columns, cells = _table(lines)
        header, rule = " | ".join(columns), "|".join(["---"] * len(columns))
        rows = [" | ".join(row) for row in cells]
        parts.append("\n".join([f"### {name}", "", f"| {header} |", f"|{rule}|"]))
        parts[-1] += "".join(f"\n| {row} |" for row in rows)
    return "\n\n".join(parts)


def as_csv(result: dict[str, Any]) -> str:
    """Every answer as a line, without its text."""
    fields = [key for key in result["rows"][0] if key not in ("text", "prefill")]
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(result["rows"])
    return out.getvalue()


def html(result: dict[str, Any]) -> str:
    folder = resource_dir("templates")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, undefined=jinja2.StrictUndefined
    )
    sets = []
    for name, lines in _by_set(result).items():
        columns, rows = _table(lines)
        sets.append(
            {"name": name, "charts": _charts(name, lines), "columns": columns, "rows": rows}
        )
    return environment.get_template("report.html.j2").render(
        caption=_caption(result),
        sets=sets,
        settings=result["settings"],
        machine=result["machine"],
    )


def _by_set(result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in result["summary"]:
        found.setdefault(line["set"], []).append(line)
    return found


def _charts(name: str, lines: list[dict[str, Any]]) -> list[dict[str, str]]:
    wanted = [("Speed", "tokens per second", "tokens_per_second", 1.0)]
    if any((line.get("prompt_tokens") or 0) >= _LONG for line in lines):
        wanted.append(("Wait for the first token", "seconds", "ttft_ms", 0.001))
    return [
        {
            "title": f"{title}, {unit}",
            "svg": bars(f"{title} on {name}", unit, [_bar(line, key, scale) for line in lines]),
        }
        for title, unit, key, scale in wanted
    ]


def _bar(line: dict[str, Any], key: str, scale: float) -> Bar:
    value, low, high = (line[key][part] * scale for part in ("value", "low", "high"))
    if key == "ttft_ms":
        better = line.get("ttft_gain", {"low": 0})["low"] > 1
    else:
        better = line.get("verdict") == "faster"
    return Bar(line["config"], value, low, high, accent=better)


def _table(lines: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows, without the columns that no line has a value for."""
    shown = [_shown(line) for line in lines]
    columns = [(key, title) for key, title in _COLUMNS if any(row.get(key) for row in shown)]
    return [title for _, title in columns], [
        [_text(r.get(key)) for key, _ in columns] for r in shown
    ]


def _shown(line: dict[str, Any]) -> dict[str, Any]:
    statuses = line.get("prefill_status") or {}
    used = [f"{name} {count}" for name, count in statuses.items() if name not in (None, "null")]
    # Said by a baseline too, "skipped_request" is no news; without drafts there is no regret.
    quiet = set(statuses) <= {None, "null", "skipped_request"}
    drafted = line.get("acceptance") is not None
    return {
        **line,
        "speed": _interval(line["tokens_per_second"], 1),
        "ratio": _interval(line.get("speed_ratio"), 2),
        "ttft": _interval(line["ttft_ms"], 0),
        "wait": _interval(line.get("ttft_gain"), 2),
        "status": None if quiet else ", ".join(used),
        "positions": ", ".join(f"{rate:.2f}" for rate in line.get("accepted_per_position") or []),
        "regret": line.get("regret_nats_per_token") if drafted else None,
        **{key: _whole(line.get(key)) for key in ("prompt_tokens", "prefill_tokens_per_second")},
    }


def _whole(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


def _interval(value: dict[str, float] | None, digits: int) -> str | None:
    if value is None:
        return None
    middle, low, high = (f"{value[key]:.{digits}f}" for key in ("value", "low", "high"))
    return f"{middle} [{low}, {high}]"


def _text(value: Any) -> str:
    return "–" if value in (None, "") else str(value)


def _caption(result: dict[str, Any]) -> str:
    machine = result["machine"]
    model = result.get("model", "model")
    return (
        f"{model}, {machine['date']}, {machine['cores']} cores, load {machine['load_1min']}; "
        f"baseline: {result['baseline']}; 95 % bootstrap intervals in brackets"
    )
