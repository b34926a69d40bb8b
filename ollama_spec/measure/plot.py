"""Bar charts with intervals as inline SVG; colours come from the page, for light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

_WIDTH, _LABEL, _VALUE = 480, 100, 66  # user units; the page scales the whole
_ROW, _TOP, _BOTTOM = 30, 8, 26


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    low: float
    high: float
    accent: bool = False


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars from zero; the whisker is the interval. The title is read to those who
    cannot see it, with all values."""
    height = _TOP + _ROW * len(rows) + _BOTTOM
    space = _WIDTH - _LABEL - _VALUE
    top = max((row.high for row in rows), default=1.0) or 1.0
    spoken = f"{title}, {unit}: " + "; ".join(f"{row.label} {row.value:.1f}" for row in rows)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label={quoteattr(spoken)}>',
        f'<line class="axis" x1="{_LABEL}" y1="{_TOP}" x2="{_LABEL}" y2="{height - _BOTTOM}"/>',
    ]
    for index, row in enumerate(rows):
        parts += _bar(row, _TOP + index * _ROW, space / top)
    for share in (0.5, 1.0):
        x = _LABEL + space * share
        parts.append(
            f'<line class="grid" x1="{x:.0f}" y1="{_TOP}" x2="{x:.0f}" y2="{height - 22}"/>'
        )
        parts.append(
            f'<text x="{x:.0f}" y="{height - 8}" class="tick">{_number(top * share)}</text>'
        )
    return "".join([*parts, "</svg>"])


def _bar(row: Bar, y: int, scale: float) -> list[str]:
    middle = y + _ROW // 2
    end, low, high = (_LABEL + scale * value for value in (row.value, row.low, row.high))
    kind = "bar accent" if row.accent else "bar"
    return [
        f'<text x="{_LABEL - 8}" y="{middle + 5}" class="name">{escape(row.label)}</text>',
        f'<rect class="{kind}" x="{_LABEL}" y="{y + 5}" width="{end - _LABEL:.1f}" '
        f'height="{_ROW - 10}"/>',
        f'<path class="whisker" d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 5}v10'
        f'M{high:.1f} {middle - 5}v10"/>',
        f'<text x="{_WIDTH - 4}" y="{middle + 5}" class="value">{_number(row.value)}</text>',
    ]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
