"""Plots as HTML and SVG: line charts over time, and timelines of availability. Pure: numbers in, text out.

::

    lines({"orders": [(0.0, 3.0), (60.0, 5.0)]}, "messages/s")     # seconds since 1970, value
    timeline([Bar("answer tcp://...", [(0.0, 60.0, True)], "99.1 %")])

A plot fills the page's width, also on a phone. The SVG holds only lines and boxes and is stretched; text is HTML beside
it, positioned in percent, so it keeps its size. On a phone, times of the class `wide` are hidden. Colours are classes
(c0 to c7), so the page's style decides, for light and for dark. This module escapes text.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

SIDE: Final = 1000  # units of an SVG in each direction: rounding errors are below a pixel
COLOURS: Final = 8  # distinguishable lines; callers aggregate the others
NARROW: Final = 3  # times below a plot on a phone: "2026-11-22" three times takes 200 of its 300 pixels
EDGE: Final = 8.0  # percent: labels closer to an edge are aligned to it, so that they are not cut off
LONGEST: Final = 160  # characters of a name: a topic may have 64 KiB, and the page must not
DAY: Final = 86400
STEPS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 14 * DAY)
MONTHS: Final = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000, 12000)
NOTHING: Final = '<p class="none">No data.</p>'

STYLE: Final = """
.plot{display:grid;grid-template-columns:56px 1fr}.plot svg{height:200px}.ys{position:relative}
.area svg,.bar svg{width:100%;display:block}.area svg{overflow:visible}
.ys span,.xs span{position:absolute;font-size:12px;line-height:16px;color:var(--soft);white-space:nowrap}
.ys span{right:8px;transform:translateY(-50%)}.xs{position:relative;height:22px;margin-top:4px}
.xs span{transform:translateX(-50%)}.xs .start{transform:none}.xs .end{transform:translateX(-100%)}
.grid,.line,.dot{vector-effect:non-scaling-stroke;fill:none}.grid{stroke:var(--rule)}
.line{stroke-width:2;stroke-linejoin:round}.dot{stroke-width:8;stroke-linecap:round}
.up{fill:var(--up)}.down{fill:var(--down)}
.key{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;padding:0 4px 12px;overflow-wrap:anywhere}
.swatch{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.unit{margin-left:auto;color:var(--soft)}
.bar,.under{display:grid;grid-template-columns:minmax(0,300px) 56px minmax(0,1fr);gap:0 8px;align-items:center}
.bar{font-size:12px;color:var(--soft);min-height:24px}.bar svg{height:16px}.bar .name{overflow-wrap:anywhere}
.bar .share{text-align:right;font-variant-numeric:tabular-nums}.under .xs{grid-column:3}
@media(max-width:640px){.xs .wide{display:none}.plot svg{height:170px}
.bar,.under{grid-template-columns:minmax(0,1fr) auto}.bar svg,.under .xs{grid-column:1/-1}.bar{padding:4px 0}}
""" + "".join(
    f".c{n}.line,.c{n}.dot{{stroke:var(--c{n})}}.c{n}.swatch{{background:var(--c{n})}}" for n in range(COLOURS)
)


class Bar(NamedTuple):
    """Row of a timeline: (start, end, up) in seconds since 1970; `share` is shown beside the name."""

    name: str
    parts: Sequence[tuple[float, float, bool]]
    share: str = ""


def shortened(text: str) -> str:
    """Return a name, cut off if it is very long."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, at most so many."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    step = 10.0 ** math.floor(math.log10(span / most))
    step = next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def times(low: float, high: float, most: int = 7) -> list[tuple[float, str]]:
    """Return round times for an axis, labelled with as much of the date as distinguishes them."""
    step = next((each for each in STEPS if (high - low) / each <= most), None)
    if step is None:
        return _months(low, high, most)
    begin, end = _utc(low), _utc(high)
    found = []
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        at = _utc(number * step)
        if step >= DAY or (begin.date() != end.date() and at.time() == dt.time()):
            form = "%b %d" if begin.year == end.year else "%Y-%m-%d"
        else:
            form = "%H:%M:%S" if step < 60 else "%H:%M"
        found.append((float(number * step), at.strftime(form)))
    return found


def _months(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Return the first days of months or years, with the year."""
    begin, end = _utc(low), _utc(high)
    first, last = begin.year * 12 + begin.month - 1, end.year * 12 + end.month - 1
    step = next((each for each in MONTHS if (last - first) / each <= most), MONTHS[-1])
    found = []
    for number in range(-(-first // step) * step, last + 1, step):
        if 12 <= number < 120_000:
            at = dt.datetime(number // 12, number % 12 + 1, 1, tzinfo=dt.UTC)
            if begin <= at <= end:
                found.append((at.timestamp(), at.strftime("%b %Y" if step < 12 else "%Y")))
    return found


def _utc(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


def _short(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g} {unit}"
    return f"{value:g}"


def lines(series: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> str:
    """Return a plot of values over time, a line for each of the first 8 names; a single point is a dot."""
    points = [point for each in series.values() for point in each]
    if not points:
        return NOTHING
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    bottom = min(0.0, *(y for _, y in points))  # negative only if a clock is ahead
    top = max(0.0, *(y for _, y in points)) * 1.05
    if top <= bottom:
        top = bottom + 1.0

    def x(at: float) -> float:
        return (at - low) / (high - low) * SIDE

    def y(value: float) -> float:
        return (top - value) / (top - bottom) * SIDE

    marks = ticks(bottom, top, 5)
    parts = [_svg(f"{unit} over time")]
    parts += [f'<path class="grid" d="M0 {y(value):.1f}H{SIDE}"/>' for value in marks]
    for number, (name, each) in enumerate(list(series.items())[:COLOURS]):
        ordered = sorted(each)
        title = f"<title>{escape(shortened(name))}</title>"
        if len(ordered) == 1:
            at = f"M{x(ordered[0][0]):.1f} {y(ordered[0][1]):.1f}h0"
            parts.append(f'<path class="c{number} dot" d="{at}">{title}</path>')
            continue
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in ordered)
        parts.append(f'<polyline class="c{number} line" points="{path}">{title}</polyline>')
    key = "".join(
        f'<span><i class="c{number} swatch"></i>{escape(shortened(name))}</span>'
        for number, name in enumerate(list(series)[:COLOURS])
    )
    left = "".join(f'<span style="top:{y(value) / SIDE:.2%}">{_short(value)}</span>' for value in marks)
    return (
        f'<div class="key">{key}<span class="unit">{escape(unit)}</span></div>'
        f'<div class="plot"><div class="ys">{left}</div><div class="area">{"".join(parts)}</svg></div>'
        f"<div></div>{_under(low, high, x)}</div>"
    )


def timeline(bars: Sequence[Bar]) -> str:
    """Return a row for each bar: green while up, red while down, empty without observations."""
    moments = [at for bar in bars for start, end, _ in bar.parts for at in (start, end)]
    if not moments:
        return NOTHING
    low, high = min(moments), max(moments)
    if high <= low:
        high = low + 1.0

    def x(at: float) -> float:
        return (at - low) / (high - low) * SIDE

    def width(start: float, end: float) -> float:
        return max(2.0, x(end) - x(start))

    rows = []
    for bar in bars:
        # Half of the parts are "up", whose durations are of no interest: one path for them keeps the page small.
        up = "".join(
            f"M{x(start):.1f} 0h{width(start, end):.1f}v{SIDE}H{x(start):.1f}z" for start, end, ok in bar.parts if ok
        )
        boxes = [f'<path class="up" d="{up}"/>'] if up else []
        boxes += [
            f'<rect class="down" x="{x(start):.1f}" y="0" width="{width(start, end):.1f}" height="{SIDE}">'
            f"<title>down for {end - start:.1f} s</title></rect>"
            for start, end, ok in bar.parts
            if not ok
        ]
        words = f'<span class="name">{escape(shortened(bar.name))}</span><span class="share">{escape(bar.share)}</span>'
        rows.append(f'<div class="bar">{words}{_svg(f"when {shortened(bar.name)} was up")}{"".join(boxes)}</svg></div>')
    return "".join(rows) + f'<div class="under">{_under(low, high, x)}</div>'


def _svg(label: str) -> str:
    return f'<svg viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'


def _under(low: float, high: float, x: Callable[[float], float]) -> str:
    """Return the time labels below a plot."""
    marks = times(low, high)
    every = max(1, math.ceil(len(marks) / NARROW))
    found = []
    for number, (at, text) in enumerate(marks):
        place = x(at) / SIDE * 100
        classes = ["wide"] if number % every else []
        classes += ["start"] if place < EDGE else ["end"] if place > 100 - EDGE else []
        kind = f' class="{" ".join(classes)}"' if classes else ""
        found.append(f'<span{kind} style="left:{place:.2f}%">{text}</span>')
    return f'<div class="xs">{"".join(found)}</div>'
