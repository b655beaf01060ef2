"""Plots as SVG, made by hand: lines over time, and bars of who was up when. Pure: numbers in, text out.

::

    lines({"orders": [(0.0, 3.0), (60.0, 5.0)]}, "messages/s")     # seconds since 1970, value
    timeline([Bar("answer at tcp://...", [(0.0, 60.0, True)])])

Colours are classes (c0 to c7), so that the page's style decides, for light and for dark. Text is escaped here.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

__all__ = ["COLOURS", "Bar", "lines", "ticks", "timeline"]

WIDTH: Final = 860
LEFT: Final = 64  # for the numbers of the axis
RIGHT: Final = 12
HEIGHT: Final = 220
TOP: Final = 12
BOTTOM: Final = 28
ROW: Final = 24  # of a timeline
NAMES: Final = 300
COLOURS: Final = 8  # lines that can be told apart; what is beyond them is summed up by whoever calls


class Bar(NamedTuple):
    """A row of a timeline: from, to (seconds since 1970), and whether it was up."""

    name: str
    parts: Sequence[tuple[float, float, bool]]


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, at most so many."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    step = 10.0 ** math.floor(math.log10(span / most))
    step = next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _clock(low: float, high: float) -> list[tuple[float, str]]:
    """Times of day for an axis: round ones, with as much of the date as is needed."""
    for step in (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200):
        if (high - low) / step <= 7:
            break
    else:
        step = 86400 * max(1, math.ceil((high - low) / 86400 / 7))
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%b %d"
    first = math.ceil(low / step)
    return [
        (number * step, dt.datetime.fromtimestamp(number * step, dt.UTC).strftime(form))
        for number in range(first, math.floor(high / step) + 1)
    ]


def _short(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g} {unit}"
    return f"{value:g}"


def lines(series: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> str:
    """A plot of values over time, a line for each of the first 8 names; a point stands alone as a dot."""
    points = [point for each in series.values() for point in each]
    if not points:
        return _nothing()
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    top = max(y for _, y in points) * 1.05 or 1.0

    def x(at: float) -> float:
        return LEFT + (at - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(unit)} over time">']
    for value in ticks(0, top, 5):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    for at, text in _clock(low, high):
        parts.append(_under(x(at), HEIGHT - 8, text))
    for number, (name, each) in enumerate(list(series.items())[:COLOURS]):
        ordered = sorted(each)
        title = f"<title>{escape(name)}</title>"
        if len(ordered) == 1:
            parts.append(
                f'<circle class="c{number} dot" cx="{x(ordered[0][0]):.1f}" cy="{y(ordered[0][1]):.1f}" r="4">'
            )
            parts.append(f"{title}</circle>")
            continue
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in ordered)
        parts.append(f'<polyline class="c{number} line" points="{path}">{title}</polyline>')
    parts.append("</svg>")
    key = "".join(
        f'<span><i class="c{number} swatch"></i>{escape(name)}</span>'
        for number, name in enumerate(list(series)[:COLOURS])
    )
    return f'<div class="key">{key}<span class="unit">{escape(unit)}</span></div>' + "".join(parts)


def timeline(bars: Sequence[Bar]) -> str:
    """A row for each name: green while it was up, red while it was down, nothing where nobody looked."""
    times = [at for bar in bars for start, end, _ in bar.parts for at in (start, end)]
    if not times:
        return _nothing()
    low, high = min(times), max(times)
    if high <= low:
        high = low + 1.0
    height = ROW * len(bars) + BOTTOM

    def x(at: float) -> float:
        return NAMES + (at - low) / (high - low) * (WIDTH - NAMES - RIGHT)

    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="who was up when">']
    for number, bar in enumerate(bars):
        y = number * ROW
        name = bar.name if len(bar.name) <= 46 else f"{bar.name[:22]}…{bar.name[-22:]}"
        parts.append(f'<text x="{NAMES - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>')
        for start, end, up in bar.parts:
            width = max(1.5, x(end) - x(start))
            parts.append(
                f'<rect class="{"up" if up else "down"}" x="{x(start):.1f}" y="{y + 4}" width="{width:.1f}" '
                f'height="{ROW - 8}"><title>{escape(bar.name)}: {"up" if up else "down"} for {end - start:.1f} s'
                "</title></rect>"
            )
    for at, text in _clock(low, high):
        parts.append(_under(x(at), height - 8, text))
    return "".join(parts) + "</svg>"


def _under(x: float, y: float, text: str) -> str:
    """A time under its place; at the right edge, to the left of it."""
    edge = x > WIDTH - RIGHT - 4 * len(text)
    place = f'x="{WIDTH if edge else x:.1f}" text-anchor="{"end" if edge else "middle"}"'
    return f'<text {place} y="{y}">{text}</text>'


def _nothing() -> str:
    return '<p class="none">Nothing of this kind was recorded.</p>'
