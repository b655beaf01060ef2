"""The report in a browser: text keeps its size on a phone, nothing is cut off, and it loads fast. Needs no Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from nngkit.spark.analytics.activity import EDGES, Activity
from nngkit.spark.analytics.charts import COLOURS, Bar
from nngkit.spark.analytics.figures import BARS, PARTS, POINTS, ClusterFigures, Figures
from nngkit.spark.analytics.graph import Edge
from nngkit.spark.analytics.report import page
from nngkit.spark.analytics.tables import ROWS, Table
from tests.web.browsers import chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_program("chromium"),
    pytest.mark.needs_program("chromedriver", package="chromium-driver"),
]

LOW = dt.datetime(2026, 11, 20, 9, tzinfo=dt.UTC).timestamp()
LOOK = """
const shown = [...document.querySelectorAll('svg text, .xs span, .ys span, .name, .share, .key span')]
    .filter(each => getComputedStyle(each).display !== 'none');
const boxes = shown.map(each => each.getBoundingClientRect());
const overlaps = [...document.querySelectorAll('.xs')].filter(axis => {
    const times = shown.filter(each => axis.contains(each)).map(each => each.getBoundingClientRect());
    return times.some((each, number) => number && each.left < times[number - 1].right);
});
return [shown.length, Math.min(...boxes.map(each => each.height)), Math.min(...boxes.map(each => each.left)),
    Math.max(...boxes.map(each => each.right)), overlaps.length, document.documentElement.scrollWidth,
    Math.min(...[...document.querySelectorAll('svg')].map(each => each.getBoundingClientRect().height))];
"""


def figures(days: int) -> Figures:
    times = [LOW + number * days * 800 for number in range(108)]
    named = {name: [(at, 3.0 + number) for number, at in enumerate(times)] for name in ("orders", "a.very.long." * 8)}
    bars = [
        Bar(f"answer tcp://warehouse-{number}.frankfurt.example.internal:9000", [(times[0], times[-1], True)], "99.0 %")
        for number in range(30)
    ]
    edges = [Edge(f"service-{n % 7}", f"a.long.topic.{n}", "publishes", 10**n) for n in range(10)]
    edges += [Edge(f"a.long.topic.{n}", "store", "calls", n) for n in range(10)]
    wide = Table(tuple(f"a column {number}" for number in range(9)), [tuple(range(9))], True)
    nothing = Table(("topic",), [])
    return Figures(
        messages=10**9,
        size=10**12,
        first=times[0],
        last=times[-1],
        step=900,
        by_topic=named,
        bytes_by_topic=named,
        latency_by_topic=named,
        topic_count=2,
        topics=wide,
        latency=wide,
        bars=bars,
        bars_cut=True,
        providers=wide,
        providers_more=True,
        replies=nothing,
        edges=nothing,
        silences=wide,
        duplicates=1,
        skipped=1000,
        lost=589,
        lost_ranges=wide,
        skew=wide,
        activity=Activity(wide, wide, edges, True, wide, wide),
    )


def fullest() -> Figures:
    """Return figures with as much of everything as `collect` fetches of a journal of any size, and long names."""
    name = "a long name & more " * 20
    series = {f"{number} {name}": [(LOW + at, at % 7.3) for at in range(POINTS + 1)] for number in range(COLOURS)}
    bars = [Bar(f"{n} {name}", [(LOW + at, LOW + at + 1, at % 2 == 0) for at in range(PARTS)]) for n in range(BARS)]
    table = Table(tuple(map(str, range(12))), [(name, *range(11))] * ROWS, True)
    edges = [Edge(f"{n % 20} {name}", f"{n % 30 + 10} {name}", "calls", n) for n in range(EDGES)]
    some = ClusterFigures(10**9, 1, series, table, table, bars, True, table)
    return figures(1000)._replace(
        by_topic=series,
        bytes_by_topic=series,
        latency_by_topic=series,
        bars=bars,
        cluster=some,
        activity=Activity(table, table, edges, True, table, table),
        topics=table,
        latency=table,
        providers=table,
        replies=table,
        edges=table,
        silences=table,
        lost_ranges=table,
        skew=table,
    )


@pytest.mark.alone
def test_page_of_a_journal_of_any_size_loads_in_two_seconds(tmp_path: Path) -> None:
    text = page(fullest(), dt.datetime.now(dt.UTC), "a-journal")
    (tmp_path / "report.html").write_text(text)
    assert len(text) < 2_500_000
    with chromium() as driver:
        driver.get(f"file://{tmp_path}/report.html")
        loaded = driver.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert 0 < loaded < 2000, f"{len(text) / 1e6:.1f} MB took {loaded:.0f} ms"


def test_text_keeps_its_size_at_every_width(tmp_path: Path) -> None:
    with chromium() as driver:
        for days in (1, 30, 1000):
            (tmp_path / "report.html").write_text(page(figures(days), dt.datetime.now(dt.UTC), "a-journal"))
            for width in (320, 390, 1100):
                metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
                driver.get(f"file://{tmp_path}/report.html")
                shown, least, left, right, overlaps, scroll, plots = driver.execute_script(LOOK)
                case = f"{days} days, {width} px"
                assert shown > 60, case
                assert least >= 14, f"{case}: a text is {least} px high"
                assert (left >= 0, right <= width, scroll <= width) == (True, True, True), case
                assert overlaps == 0, f"{case}: times overlap"
                assert plots >= 16, case
