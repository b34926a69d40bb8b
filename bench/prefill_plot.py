"""The plot of bench/prefill.py: gain in waiting time and needles kept, by length and keep."""

from __future__ import annotations

from typing import Any

from ollama_spec.measure.plot import Bar, bars

_STYLE = (
    "text{font:13px sans-serif;fill:#222}.title{font-weight:bold}.name,.value{text-anchor:end}"
    ".tick{text-anchor:middle}.bar{fill:#3b6fb6}.axis,.grid,.whisker{stroke:#777;fill:none}.grid{stroke:#ddd}"
)


def plot(result: dict[str, Any]) -> str:
    """One SVG, light background."""
    waits = [row for row in result["waiting"]["rows"] if row["keep"] != "dense"]
    gain = [
        Bar(f"{row['n_prompt']}, {float(row['keep']):.0%}", row["gain"], row["low"], row["high"])
        for row in waits
    ]
    charts = [("Wait for the first token, dense / sparse, by tokens and keep", gain)]
    found = [row for row in result["recall"]["rows"] if row["depth"] == 0]
    for length, needles in sorted({(row["length"], row["needles"]) for row in found}):
        shares = [
            Bar(f"keep {row['keep']:.0%}", *[100 * row["recall"]] * 3)
            for row in found
            if (row["length"], row["needles"]) == (length, needles)
        ]
        what = "1 needle" if needles == 1 else f"{needles} needles"
        charts.append((f"Needle tokens kept, %, {length} tokens, {what}", shares))
    parts, y = [], 10
    for title, rows in charts:
        height = 34 + 30 * len(rows)
        parts.append(f'<text class="title" x="10" y="{y + 14}">{title}</text>')
        size = f'<svg x="10" y="{y + 20}" width="480" height="{height}" '
        parts.append(bars(title, "", rows).replace("<svg ", size, 1))
        y += height + 40
    page = f'<svg xmlns="http://www.w3.org/2000/svg" width="500" height="{y}">'
    page += f'<style>{_STYLE}</style><rect width="500" height="{y}" fill="#fff"/>'
    return f"{page}{''.join(parts)}</svg>\n"
