"""Series over the number of micro-batches as small charts in one SVG: samples, medians of blocks, and the slope."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from tests.bench.report import three_digits
from tests.bench.slopes import Point, Slope

_COLUMNS, _WIDTH, _HEIGHT, _GAP = 3, 330, 150, 24
_LEFT, _TOP = 16, 46
_AXIS = 52
"""Width of the numbers beside a chart."""
_HEAD = 34
"""Height of the title above a chart."""
_INK, _GREY, _CALM, _ALARM = "#1f2430", "#8a8f98", "#1f77b4", "#c0392b"
_HEADROOM = 1.1
_MOST = 600
"""Samples that a chart shows; of more, each second, third and so on."""


class Chart(NamedTuple):
    """One series, with the unit in its name, and its slope."""

    name: str
    points: Sequence[Point]
    slope: Slope


def svg(title: str, charts: Sequence[Chart]) -> str:
    """All charts under one title. Each begins at zero, so that a picture of a flat series is flat."""
    rows = -(-len(charts) // _COLUMNS)
    width = 2 * _LEFT + _COLUMNS * (_WIDTH + _GAP) - _GAP
    height = _TOP + rows * (_HEIGHT + _HEAD + _GAP)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(_LEFT, 24, title, size=15),
    ]
    for index, chart in enumerate(charts):
        row, column = divmod(index, _COLUMNS)
        left, top = _LEFT + column * (_WIDTH + _GAP), _TOP + row * (_HEIGHT + _HEAD + _GAP)
        parts.append(f'<g transform="translate({left} {top})">{_drawn(chart)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _drawn(chart: Chart) -> str:
    first, last = chart.points[0][0], chart.points[-1][0]
    # Single peaks may leave the chart: the largest one would press all others to the axis.
    ordered = sorted(value for _, value in chart.points)
    highest = (
        max(ordered[int(len(ordered) * 0.98) - 1], *(value for _, value in chart.slope.blocks)) * _HEADROOM
        or 1
    )

    def at(point: Point) -> str:
        x = _AXIS + (point[0] - first) / (last - first) * (_WIDTH - _AXIS)
        y = _HEAD + _HEIGHT * (1 - min(max(point[1] / highest, 0), 1))
        return f"{x:.1f},{y:.1f}"

    colour = _ALARM if chart.slope.grows else _CALM
    middle, slope = chart.slope.blocks[len(chart.slope.blocks) // 2][0], chart.slope.slope / 1_000
    ends = [(x, chart.slope.level + (x - middle) * slope) for x in (chart.slope.blocks[0][0], last)]
    samples = "".join(f"M{at(point)}h0" for point in chart.points[:: -(-len(chart.points) // _MOST)])
    word = "grows" if chart.slope.grows else "flat"
    per = f"{word}: {three_digits(chart.slope.slope)} per 1,000"
    bottom = _HEAD + _HEIGHT
    return "".join(
        [
            _text(0, 12, chart.name),
            _text(0, 26, per, colour=colour),
            f'<path d="M{_AXIS},{_HEAD}V{bottom}H{_WIDTH}" stroke="{_GREY}" fill="none"/>',
            *(
                _text(
                    _AXIS - 4,
                    _HEAD + _HEIGHT * (1 - part) + 4,
                    three_digits(highest * part),
                    colour=_GREY,
                    end=True,
                )
                for part in (0, 0.5, 1)
            ),
            _text(_AXIS, bottom + 13, three_digits(first), colour=_GREY),
            _text(_WIDTH, bottom + 13, f"{last:,.0f}", colour=_GREY, end=True),
            f'<path d="{samples}" stroke="{_GREY}" stroke-width="1.6" stroke-linecap="round" opacity="0.7"/>',
            _line([at(point) for point in chart.slope.blocks], f'stroke="{colour}" stroke-width="1.5"'),
            _line([at(point) for point in ends], f'stroke="{_INK}" stroke-dasharray="4 3"'),
        ]
    )


def _line(points: Sequence[str], style: str) -> str:
    return f'<polyline points="{" ".join(points)}" {style} fill="none"/>'


def _text(x: float, y: float, text: str, *, size: int = 11, colour: str = _INK, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x}" y="{y:.1f}" font-size="{size}" fill="{colour}"{anchor}>{escape(text)}</text>'
