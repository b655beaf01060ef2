"""Rows from a journal into Spark, and a hundredth of them by time, beside Spark's own Parquet reader on the same files.

The contender and Parquet's reader take turns in one session, as both get faster while Java compiles.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _spark import clock, journal, made, messages, spark

from _child import report

TURNS = 5  # the first is cold; the later ones are warm
PARQUET = "Spark's own Parquet reader"
BEGUN = 1_700_000_000_000  # milliseconds, of the first record; they are one millisecond apart


def _rows(session: Any, folder: Path, way: str, **options: str) -> Any:
    if way == "scan":
        from nngkit.spark import scan

        return scan(session, str(folder), includeHeaders="true", **options)
    reader = session.read.format("nng").option("minPartitions", "2").options(**options)
    if way == "nng, two columns":
        reader = reader.schema("topic string, timestamp timestamp")
    elif way != "nng":
        reader = reader.option("includeHeaders", "true")
    return reader.load(str(folder))


def _drop(rows: Any) -> None:
    """Read all rows in all their columns."""
    rows.write.format("noop").mode("overwrite").save()


def _in_turns(*reads: Callable[[], Any]) -> list[list[float]]:
    """Return the seconds of each read, turn by turn; planning is a part of it."""
    took: list[list[float]] = [[] for _ in reads]
    for _ in range(TURNS):
        for read, times in zip(reads, took, strict=True):
            with clock() as seconds:
                _drop(read())
            times += seconds
    return took


def _folder(rows: int) -> Path:
    return made(f"read-{rows}", lambda draft: journal(draft, messages(rows)))


def read(task: dict[str, Any]) -> None:
    """Read all rows; report the median of the warm turns, and their rate by that of Parquet's reader."""
    folder, rows = _folder(task["rows"]), task["rows"]
    with spark(task) as session:

        def parquet() -> Any:
            found = session.read.parquet(f"{folder}/partition-00000/*.parquet")
            names = _rows(session, folder, task["way"]).drop("timestampType").columns
            return found.select(*names)

        ours, theirs = _in_turns(lambda: _rows(session, folder, task["way"]), parquet)
        assert _rows(session, folder, task["way"]).count() == rows  # all rows were read
    took = statistics.median(ours[1:])
    report(
        per_second=rows / took,
        seconds=took,
        cold_seconds=ours[0],
        base_seconds=statistics.median(theirs[1:]),
        base_part=statistics.median(theirs[1:]) / took,
    )


def a_hundredth(task: dict[str, Any]) -> None:
    """Read a hundredth of the rows, by time, and all of them, in turns; report the former by the latter."""
    folder, rows = _folder(task["rows"]), task["rows"]
    first = BEGUN + rows // 2
    times = {"startingTimestamp": str(first), "endingTimestamp": str(first + rows // 100)}
    with spark(task) as session:
        some, everything = _in_turns(
            lambda: _rows(session, folder, task["way"], **times), lambda: _rows(session, folder, task["way"])
        )
        assert _rows(session, folder, task["way"], **times).count() == rows // 100
    took, whole = statistics.median(some[1:]), statistics.median(everything[1:])
    report(seconds=took, cold_seconds=some[0], whole_seconds=whole, of_whole=took / whole)
