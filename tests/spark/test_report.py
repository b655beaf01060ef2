"""The page: figures that can be counted by hand, plots that a browser draws, and nothing fetched from anywhere."""

from __future__ import annotations

import datetime as dt
import random
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest

from nngkit.spark.jobs.charts import Bar, lines, ticks, timeline
from nngkit.spark.jobs.report import collect, page, write
from tests.spark.rows import at, eight, frame, micros, seen

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def traffic(spark: SparkSession) -> DataFrame:
    """Ten minutes of two topics and three providers; three copies and two lost numbers."""
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


def test_the_figures_are_those_of_the_records(spark: SparkSession) -> None:
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
    assert figures.bars[0].name == "other tcp://c:1"


def test_totals_are_of_all_rows_and_not_of_those_that_a_table_shows(spark: SparkSession) -> None:
    records: list[dict[str, Any]] = []
    for sender in range(40):  # each loses 1 + its number, over and over: more ranges, topics and providers than rows
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


def test_a_provider_that_changes_all_the_time_does_not_fill_the_driver(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nngkit.spark.jobs.report.PARTS", 10)
    figures = collect(frame(spark, [seen("answer", "tcp://a:1", number, number % 2 == 0) for number in range(60)]))
    assert (figures.bars_cut, len(figures.bars[0].parts)) == (True, 10)
    assert figures.providers.rows[0][2:] == ("50.8 %", 30, 60)  # 30 of 59 s


@pytest.mark.every_java
def test_the_page_is_whole_in_itself_and_escapes_what_strangers_wrote(spark: SparkSession, tmp_path: Path) -> None:
    write(traffic(spark), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert "<shop>" not in text
    assert "&lt;shop&gt;" in text
    assert not re.search(r"https?://|src=|@import|url\(|<script", text)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)
    assert text.count("<svg") == 2


def test_an_empty_journal_is_a_page_too(spark: SparkSession) -> None:
    text = page(collect(frame(spark, [])), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert "The journal is empty." in text


def test_axes_have_round_numbers() -> None:
    assert ticks(0, 1.05, 5) == [0, 0.5, 1.0]
    assert ticks(0, 47, 5) == [0, 10, 20, 30, 40]
    assert ticks(3, 3) == [3]


def test_a_plot_has_a_line_for_each_name_and_a_dot_for_a_lonely_point() -> None:
    text = lines({"a": [(0, 1), (10, 3)], "b": [(5, 2)]}, "x/s")
    assert text.count("<polyline") == 1
    assert text.count("<circle") == 1
    assert 'points="64.0,' in text


def test_a_timeline_has_a_box_for_each_part() -> None:
    text = timeline([Bar("p", [(0, 10, True), (10, 12, False)])])
    assert text.count('class="up"') == 1
    assert text.count('class="down"') == 1
