"""Views of a journal: what statements see, when views are made, and how errors read."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

import pytest

from nngkit.cli.journal.spark_sql import Sql, candidates
from nngkit.errors import Broken, ConfigError, NotFound
from nngkit.spark.run import JobOptions
from nngkit.spark.views import VIEWS, Views
from tests.spark.journals import append, opened
from tests.spark.rows import at, eight

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def views(spark: SparkSession, tmp_path: Path) -> Views:
    """Provide the views of two topics; the records of one are not text."""
    records = [
        {"topic": topic, "value": value, "key": b"k", "headers": {"id": eight(number), "from": b"shop"}}
        | {"timestamp": at(60 * number)}
        for number, (topic, value) in enumerate([("a", b"one"), ("b", b"\xff\xfe"), ("a", "zw\u00f6lf".encode())])
    ]
    with opened(tmp_path / "j") as partition:
        append(partition, records)
    return Views(spark, JobOptions(str(tmp_path / "j"), ("a", "b"), at(0).isoformat(), window="1 day", gap="1 hour"))


def test_statements_see_the_journal_and_the_jobs(spark: SparkSession, views: Views) -> None:
    for name in VIEWS:
        spark.catalog.dropTempView(name)  # of other tests
    text = views.sql("SELECT value, sender, id FROM records ORDER BY offset -- not edges").collect()
    assert [tuple(row) for row in text] == [
        ("one", "shop", "00" * 8),
        (None, "shop", f"{1:016X}"),
        ("zw\u00f6lf", "shop", f"{2:016X}"),
    ]
    assert [table.name for table in spark.catalog.listTables() if table.name in VIEWS] == ["records"]
    joined = "SELECT r.topic, r.messages, s.messages FROM rates r JOIN sessions s USING (peer) ORDER BY r.topic"
    assert [tuple(row) for row in views.sql(joined).collect()] == [("a", 2, 3), ("b", 1, 3)]


def test_every_view_has_columns(views: Views) -> None:
    for name in VIEWS:
        assert views.columns(name), name
    with pytest.raises(NotFound, match="no view 'rats'; there are journal, records, "):
        views.columns("rats")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("SELECT * FROM rats", "^no view `rats`; there are journal, records, "),
        ("SELECT topik FROM edges", "^no column `topik`; there are edges: source, target, protocol, "),
        ("SELECT frm_cbor(value) FROM journal", "^no function `frm_cbor`$"),
        ("SELEC 1", "^syntax error at or near 'SELEC'"),
    ],
)
def test_an_error_is_a_line_that_says_what_there_is(views: Views, statement: str, says: str) -> None:
    with pytest.raises(Broken, match=says) as caught:
        views.sql(statement)
    assert "\n" not in str(caught.value)


def test_completion_knows_views_keywords_and_the_columns_of_named_views(views: Views) -> None:
    assert candidates("SELECT * FROM se", "se", views) == ["select", "sessions"]
    assert "sender" not in candidates("SELECT sen", "sen", views)
    assert candidates("SELECT a FROM records WHERE sen", "sen", views) == ["sender"]
    assert candidates("SEL", "SEL", views) == ["SELECT"]
    assert candidates("\\d ra", "ra", views) == ["rates"]


def test_results_are_printed_or_written_as_a_file_or_a_folder(
    spark: SparkSession, views: Views, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statement = "SELECT topic, size FROM records ORDER BY offset"

    def run(**more: Any) -> None:
        given = {"output": None, "format": None, "json": False, "rows": 2, "watch": False}
        Sql(spark, views, Namespace(**(given | more))).run(statement)

    run()
    shown = capsys.readouterr()
    assert shown.out == "topic  size\na         3\nb         2\n"
    assert shown.err == "nngkit spark: more rows: --rows prints more, --output writes all\n"
    run(json=True, rows=3)
    assert capsys.readouterr().out.splitlines()[2] == '{"topic": "a", "size": 6}'
    run(output=str(tmp_path / "all.csv"))
    assert (tmp_path / "all.csv").read_text() == "topic,size\na,3\nb,2\na,6\n"
    run(output=str(tmp_path / "folder"))
    assert sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "folder")).collect())[0] == ("a", 3)
    with pytest.raises(ConfigError, match=r"all\.csv exists, and is not overwritten"):
        run(output=str(tmp_path / "all.csv"))
