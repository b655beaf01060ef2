"""The report page: figures with known values, plots that browsers draw, no external resources."""

from __future__ import annotations

import datetime as dt
import random
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from nngkit.spark.analytics.charts import Bar, lines, ticks, timeline, times
from nngkit.spark.analytics.figures import collect
from nngkit.spark.analytics.report import page, write
from tests.spark.rows import at, eight, frame, micros, seen

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def traffic(spark: SparkSession) -> DataFrame:
    """Return ten minutes of two topics and three providers, with three duplicates and two missing numbers."""
    rng = random.Random(3)
    records: list[dict[str, Any]] = []
    for number in range(600):
        headers = {
            "id": eight(number),
            "seq": eight(number + (2 if number >= 300 else 0)),
            "sent": eight(micros(at(number)) - 900),
            "from": b"<shop>",
        }
        records.append({"topic": "orders", "timestamp": at(number), "headers": headers, "value": bytes(100)})
        if number % 200 == 0:
            records.append(records[-1])
        if rng.random() < 0.5:
            records.append({"topic": "weather", "timestamp": at(number + 0.2), "peer": "tcp://w:1"})
    for number in range(60):
        records += [
            seen("answer", "tcp://a:1", 10 * number, not 20 <= number < 25, 0.004),
            seen("answer", "tcp://b:1", 10 * number, True, 0.002),
            seen("other", "tcp://c:1", 10 * number, number % 10 > 0, 0.009),
        ]
    return frame(spark, records)


def test_figures_match_the_records(spark: SparkSession) -> None:
    figures = collect(traffic(spark))
    assert figures.duplicates == 3
    assert (figures.lost, figures.lost_ranges.rows) == (2, [("orders", "<shop>", 300, 301, 2)])
    assert figures.step == 5
    assert sum(value * 5 for _, value in figures.by_topic["orders"]) == 603
    assert {row[0]: row[2] for row in figures.topics.rows}["orders"] == 603
    providers = {row[1]: row[2:] for row in figures.providers.rows}
    assert providers["tcp://a:1"] == ("91.5 %", 1, 60)  # 50 of 590 s
    assert providers["tcp://b:1"][:2] == ("100.0 %", 0)
    assert providers["tcp://c:1"][1] == 5
    assert [bar.name for bar in figures.bars] == ["other tcp://c:1", "answer tcp://a:1", "answer tcp://b:1"]
    assert [row[1] for row in figures.providers.rows] == ["tcp://c:1", "tcp://a:1", "tcp://b:1"]
    assert sum(value * 5 for _, value in figures.bytes_by_topic["orders"]) == 60_300
    assert figures.latency.rows == [("orders", 603, 0.9, 0.9, 0.9, 0.9)]
    assert {round(value, 3) for _, value in figures.latency_by_topic["orders"]} == {0.9}
    assert {row[0]: row[5:] for row in figures.topics.rows}["orders"] == (1.01, 101.0)  # of 599.2 s
    assert figures.skipped == 0
    activity = figures.activity
    assert [(row[0], row[1], row[3], row[5]) for row in activity.hours.rows] == [
        ("2026-11-01 12:00", figures.messages, 0.9, "6.1 %")  # 5 and 6 of 180 observations are down
    ]
    assert {row[0]: row[1:3] for row in activity.sessions.rows}["<shop>"] == (1, 603)
    assert {(edge.source, edge.target, edge.weight) for edge in activity.edges} == {
        ("<shop>", "orders", 603),
        ("tcp://w", "weather", figures.messages - 603 - 180),
    }
    assert (activity.requests, activity.documents) == (None, None)


@pytest.mark.slow
def test_providers_are_sorted_by_uptime_not_by_flaps(spark: SparkSession) -> None:
    records = [seen("s", "flapping", n, n % 10 > 0) for n in range(100)]
    records += [seen("s", "gone", n, n < 20) for n in range(100)]
    records += [seen("s", "once", 50, True)]
    figures = collect(frame(spark, records))
    assert [row[1:4] for row in figures.providers.rows] == [
        ("gone", "20.2 %", 1),
        ("flapping", "89.8 %", 9),
        ("once", "-", 0),
    ]


@pytest.mark.slow
def test_wrong_clock_does_not_blow_up_the_plots(spark: SparkSession) -> None:
    figures = collect(frame(spark, [{"timestamp": at(0)}, {"timestamp": dt.datetime(1970, 1, 2, tzinfo=dt.UTC)}]))
    assert [len(points) <= 122 for points in figures.by_topic.values()] == [True]


@pytest.mark.slow
def test_page_shows_skipped_records(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, [{}, {}])
    lost = rows.withColumn("skipped", F.lit(None).cast("bigint"))
    lost = lost.union(rows.limit(1).withColumn("skipped", F.lit(41).cast("bigint")))
    assert write(lost, tmp_path / "report.html", "orders & more") == 41
    text = (tmp_path / "report.html").read_text()
    assert "<b>41</b><span>records skipped: damaged</span>" in text
    assert "<b>2</b><span>records</span>" in text
    assert "<title>orders &amp; more: journal report</title>" in text
    assert "<h1>orders &amp; more: journal report</h1>" in text


@pytest.mark.slow
def test_totals_cover_all_rows_not_only_those_shown(spark: SparkSession) -> None:
    records: list[dict[str, Any]] = []
    for sender in range(40):  # with ever larger gaps; more ranges, topics and providers than a table shows
        for number in range(3):
            headers = {"seq": eight(number * (2 + sender)), "from": b"<%d>" % sender}
            records.append({"topic": f"topic {sender}", "timestamp": at(number), "headers": headers})
        records += [seen("answer", f"tcp://{sender}:1", number, number % 2 == 0) for number in range(6)]
    figures = collect(frame(spark, records))
    assert figures.lost == sum(2 * (1 + sender) for sender in range(40))
    assert (len(figures.lost_ranges.rows), figures.lost_ranges.more) == (20, True)
    assert sum(row[4] for row in figures.lost_ranges.rows) < figures.lost
    assert figures.topic_count == 41
    assert figures.messages == len(records)
    assert sum(value * figures.step for points in figures.by_topic.values() for _, value in points) == len(records)
    assert (len(figures.bars), figures.providers_more, len(figures.providers.rows)) == (30, True, 20)
    assert {(row[3], row[4]) for row in figures.providers.rows} == {(3, 6)}
    assert not figures.bars_cut


@pytest.mark.slow
def test_flapping_provider_does_not_fill_the_drivers_memory(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nngkit.spark.analytics.figures.PARTS", 10)
    figures = collect(frame(spark, [seen("answer", "tcp://a:1", number, number % 2 == 0) for number in range(60)]))
    assert (figures.bars_cut, len(figures.bars[0].parts)) == (True, 10)
    assert figures.providers.rows[0][2:] == ("50.8 %", 30, 60)  # 30 of 59 s


@pytest.mark.slow
@pytest.mark.every_java
def test_page_is_self_contained_and_escapes_recorded_text(spark: SparkSession, tmp_path: Path) -> None:
    write(traffic(spark), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert "<shop>" not in text
    assert "&lt;shop&gt;" in text
    assert not re.search(r"https?://|src=|@import|url\(|<script", text)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)
    assert text.count("<svg") == 4 + 3  # messages, bytes, latency, dependencies; and one for each provider


def test_empty_journal_gives_a_page(spark: SparkSession) -> None:
    text = page(collect(frame(spark, [])), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert "The journal is empty." in text


def test_axes_have_round_numbers() -> None:
    assert ticks(0, 1.05, 5) == [0, 0.5, 1.0]
    assert ticks(0, 47, 5) == [0, 10, 20, 30, 40]
    assert ticks(3, 3) == [3]


def test_plot_has_a_line_for_each_name_and_a_dot_for_a_single_point() -> None:
    text = lines({"a": [(0, 1), (10, 3)], "b": [(5, 2)]}, "x/s")
    assert text.count("<polyline") == 1
    assert text.count('class="c1 dot"') == 1
    assert 'points="0.0,' in text


def test_negative_latency_is_drawn_below_zero() -> None:
    text = lines({"a": [(0, -2), (10, 2)]}, "ms")
    (place,) = re.findall(r'points="0.0,([0-9.]+) ', text)
    assert float(place) == 1000
    assert ">-2</span>" in text


@pytest.mark.parametrize(
    ("seconds", "texts"),
    [
        (7200, ["12:00", "12:30", "13:00", "13:30", "14:00"]),
        (86400, ["12:00", "18:00", "Nov 02", "06:00", "12:00"]),
        (40 * 86400, ["Nov 05", "Nov 12", "Nov 19", "Nov 26", "Dec 03", "Dec 10"]),
        (
            90 * 86400,
            ["2026-11-05", "2026-11-19", "2026-12-03", "2026-12-17", "2026-12-31", "2027-01-14", "2027-01-28"],
        ),
        (370 * 86400, ["Jan 2027", "Mar 2027", "May 2027", "Jul 2027", "Sep 2027", "Nov 2027"]),
        (400 * 86400, ["Jan 2027", "Mar 2027", "May 2027", "Jul 2027", "Sep 2027", "Nov 2027"]),
        (20 * 365 * 86400, ["2030", "2035", "2040", "2045"]),
    ],
)
def test_axis_times_include_date_or_year_if_needed(seconds: int, texts: list[str]) -> None:
    low = at(0).timestamp()
    assert [text for _, text in times(low, low + seconds)] == texts


def test_axis_shows_at_most_three_times_on_a_phone() -> None:
    text = lines({"a": [(0, 1), (7 * 3600, 2)]}, "x")
    assert (text.count("<span style=") - 1 > 2, text.count('class="wide"') > 0) == (True, True)
    shown = re.findall(r'<span(?: class="(?:start|end)")? style="left', text)
    assert len(shown) <= 3


def test_timeline_has_a_box_for_each_part() -> None:
    text = timeline([Bar("p", [(0, 10, True), (10, 12, False)])])
    assert text.count('class="up"') == 1
    assert text.count('class="down"') == 1
    later = timeline([Bar("p", [(100, 110, True), (110, 112, False)])])
    assert re.findall("<rect[^>]*>", later) == re.findall("<rect[^>]*>", text) != []
