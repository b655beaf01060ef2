"""Output of `nngkit spark`, without Spark: tables that fit, files, progress, the text of statements."""

from __future__ import annotations

import csv
import datetime as dt
import json
from pathlib import Path
from typing import Any
from unicodedata import combining, east_asian_width

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.cli.journal.spark_progress import Stage, StageClock, line
from nngkit.cli.journal.spark_results import print_rows, write_file
from nngkit.cli.journal.spark_table import cell, table
from nngkit.errors import ConfigError
from nngkit.spark.reading.durations import seconds_of, spark_text
from nngkit.spark.sql_text import split, words

TEXTS = st.text(st.sampled_from("abz _\x1b\n\u0301\u4e16\u00e9"), max_size=30)  # an accent, a wide character
CELLS = st.one_of(st.none(), st.integers(-(10**9), 10**9), st.floats(), TEXTS, st.binary(max_size=50))


def columns(text: str) -> int:
    """Return the columns of a terminal that the text takes: none for accents, two for wide characters."""
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.tuples(*[CELLS] * n), max_size=5)), st.integers(20, 90))
def test_table_is_never_wider_than_the_terminal(rows: list[tuple[Any, ...]], width: int) -> None:
    head = [f"column {number}" for number in range(len(rows[0]) if rows else 3)]
    text = table(head, rows, width)
    assert all(each.isprintable() and columns(each) <= width for each in text.split("\n"))
    assert len(text.split("\n")) - len(rows) in (1, 2)


def test_numbers_are_on_the_right_and_texts_are_cut_first() -> None:
    rows = [["orders with a long name", 5, 1234567.0], ["\x1b[2Jx", 12345, None]]
    assert table(["topic", "messages", "bytes"], rows).split("\n") == [
        "topic                    messages        bytes",
        "orders with a long name         5  1.23457e+06",
        "\\x1b[2Jx                    12345            -",
    ]
    assert (
        table(["topic", "messages", "bytes"], rows, 35).split("\n")[1]
        == "orders with\N{HORIZONTAL ELLIPSIS}         5  1.23457e+06"
    )
    assert table(["topic", "messages", "bytes"], rows, 24).split("\n")[-1] == "columns left out: bytes"


def test_times_are_as_exact_as_they_have_to_be() -> None:
    noon = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC).replace(tzinfo=None)  # as Spark returns times
    for more, shown in ((0, "12:00"), (1, "12:00:01"), (0.25, "12:00:00.250")):
        text = table(["at"], [[noon], [noon + dt.timedelta(seconds=more)]])
        assert text.split("\n")[-1] == f"2026-01-31 {shown}"


def test_cells_are_formatted() -> None:
    values = (None, 0.25, b"\x01", bytes(50), "x", True, ["a", {"b": 1}])
    assert [cell(value) for value in values] == [
        "-",
        "0.25",
        "01",
        f"{'00' * 20}... (50 bytes)",
        "x",
        "true",
        '["a", {"b": 1}]',
    ]


ROWS = [("a,b", 1, None, [1, "x"], b"\x00\xff"), ("\u2603", 2, True, [], b"")]
HEAD = ("name", "n", "ok", "list", "data")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_file_has_all_rows_and_appears_whole(tmp_path: Path, form: str) -> None:
    path = tmp_path / "out"
    assert write_file(HEAD, ROWS, form, str(path)) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    if form == "json":
        first, second = map(json.loads, path.read_text().splitlines())
        assert first == {"name": "a,b", "n": 1, "ok": None, "list": [1, "x"], "data": "00ff"}
        assert second["name"] == "\u2603"
    else:
        with path.open(newline="") as file:
            assert list(csv.reader(file)) == [
                list(HEAD),
                ["a,b", "1", "", '[1, "x"]', "00ff"],
                ["\u2603", "2", "true", "[]", ""],
            ]

    def failing() -> Any:
        yield ROWS[0]
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        write_file(HEAD, failing(), form, str(tmp_path / "other"))
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(("more", "says"), [(0, ""), (1, "1 more row: "), (7, "7 more rows: "), (None, "more rows: ")])
def test_a_table_says_how_many_rows_it_leaves_out(
    capsys: pytest.CaptureFixture[str], more: int | None, says: str
) -> None:
    print_rows(["n"], [[1]], "table", more)
    shown = capsys.readouterr()
    assert shown.out == "n\n1\n"
    assert shown.err == (f"nngkit spark: {says}--rows prints more, --output writes all\n" if says else "")


def test_progress_has_the_rate_and_the_time_left() -> None:
    clock = StageClock()
    assert line([], clock, 0) == "Spark is planning"
    assert line([Stage(3, 10, 40, 2)], clock, 100) == f"[{'#' * 5}{' ' * 15}] stage 3: 10/40 tasks"
    assert line([Stage(4, 0, 9, 0), Stage(3, 20, 40, 2)], clock, 105) == (
        f"[{'#' * 10}{' ' * 10}] stage 3: 20/40 tasks, 2/s, 10s left (+1 more)"
    )


PARTS = st.sampled_from(["SELECT 1", "'a;b'", "'it\\'s;'", '"x;"', "`a;b`", "-- c;\n", "/* ; */", " ", "\n", "peer"])


@given(st.lists(st.lists(PARTS, min_size=1, max_size=4).map(" ".join), max_size=4), PARTS)
def test_statements_end_at_semicolons_outside_of_quotes(statements: list[str], rest: str) -> None:
    text = "".join(f"{each};" for each in statements) + rest
    assert split(text) == ([each.strip() for each in statements if each.strip()], rest)


@pytest.mark.parametrize("rest", ["'a; b", '"a; b', "`a; b", "/* a; b"])
def test_a_statement_with_an_open_quote_continues(rest: str) -> None:
    assert split(f"SELECT 1; {rest}") == (["SELECT 1"], f" {rest}")


def test_names_in_strings_and_comments_are_none() -> None:
    text = "SELECT 'edges', `Lost` FROM Rates -- hosts\n/* work */ JOIN skew"
    assert words(text) == {"select", "lost", "from", "rates", "join", "skew"}


@pytest.mark.parametrize(
    ("text", "spark", "seconds"),
    [
        ("5m", "5 minutes", 300),
        ("1 hour", "1 hour", 3600),
        ("1h 30min", "1 hour 30 minutes", 5400),
        ("2 DAYS", "2 days", 172_800),
    ],
)
def test_lengths_of_time_are_read_as_people_write_them(text: str, spark: str, seconds: float) -> None:
    assert (spark_text(text), seconds_of(text)) == (spark, seconds)


@pytest.mark.parametrize("text", ["", "5", "often", "0 minutes", "5 m m", "-5m", "1 fortnight"])
def test_other_text_is_no_length_of_time(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--gap: .* is not a length of time"):
        spark_text(text, "--gap")
