"""A result of `bench` as Markdown, CSV or a page that opens from disk without a network."""

from __future__ import annotations

import csv
import io
from typing import Any

import jinja2

from ollama_spec.measure.plot import Bar, bars
from ollama_spec.resources import resource_dir

_COLUMNS = (
    ("config", "configuration"),
    ("speed", "tok/s"),
    ("ratio", "vs baseline"),
    ("verdict", "verdict"),
    ("ttft", "TTFT ms"),
    ("tpot_ms", "TPOT ms"),
    ("acceptance", "acceptance"),
    ("acceptance_length", "τ"),
    ("regret_nats_per_token", "regret/token"),
)


def markdown(result: dict[str, Any]) -> str:
    """One table per prompt set, with intervals in brackets."""
    parts = [_caption(result)]
    for name, lines in _by_set(result).items():
        header = " | ".join(title for _, title in _COLUMNS)
        rule = "|".join(["---"] * len(_COLUMNS))
        rows = [" | ".join(_cells(line)) for line in lines]
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
    sets = [
        {
            "name": name,
            "chart": bars(f"Speed on {name}", "tokens per second", _bars(lines)),
            "rows": [_cells(line) for line in lines],
        }
        for name, lines in _by_set(result).items()
    ]
    return environment.get_template("report.html.j2").render(
        caption=_caption(result),
        columns=[title for _, title in _COLUMNS],
        sets=sets,
        settings=result["settings"],
        machine=result["machine"],
    )


def _by_set(result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in result["summary"]:
        found.setdefault(line["set"], []).append(line)
    return found


def _bars(lines: list[dict[str, Any]]) -> list[Bar]:
    return [
        Bar(line["config"], **line["tokens_per_second"], accent=line.get("verdict") == "faster")
        for line in lines
    ]


def _cells(line: dict[str, Any]) -> list[str]:
    shown = {
        **line,
        "speed": _interval(line["tokens_per_second"], 1),
        "ratio": _interval(line.get("speed_ratio"), 2),
        "ttft": _interval(line["ttft_ms"], 0),
    }
    return [_text(shown.get(key)) for key, _ in _COLUMNS]


def _interval(value: dict[str, float] | None, digits: int) -> str | None:
    if value is None:
        return None
    middle, low, high = (f"{value[key]:.{digits}f}" for key in ("value", "low", "high"))
    return f"{middle} [{low}, {high}]"


def _text(value: Any) -> str:
    return "–" if value is None else str(value)


def _caption(result: dict[str, Any]) -> str:
    machine = result["machine"]
    model = result.get("model", "model")
    return (
        f"{model}, {machine['date']}, {machine['cores']} cores, load {machine['load_1min']}; "
        f"baseline: {result['baseline']}; 95 % bootstrap intervals in brackets"
    )
