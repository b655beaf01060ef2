"""Streams into tables, exactly once: repeated micro-batches, a driver killed between write and commit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nngkit.errors import ConfigError
from nngkit.spark import tables
from nngkit.spark.tables import to_delta
from tests.cli.commands import ROOT, environment
from tests.spark.journals import write
from tests.spark.rows import at, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

deltalake = pytest.importorskip("deltalake")

KILLED = """
import os, signal, sys
from nngkit.spark import session, tables
from nngkit.spark.session import SMALL
from tests.spark.test_tables import start
def commit(target, table, *rest):
    if table is not None:  # the second micro-batch: its files are written
        os.kill(os.getpid(), signal.SIGKILL)
    whole(target, table, *rest)
whole, tables._commit_to_delta = tables._commit_to_delta, commit
with session("local[2]", conf=SMALL | {"spark.driver.memory": "1g"}) as spark:
    start(spark, sys.argv[1])
"""


def start(spark: SparkSession, folder: str) -> None:
    """Stream the journal in `folder` into a table beside it, up to its end, 30 records a micro-batch."""
    rows = spark.readStream.format("nng").options(startingOffsets="earliest", maxOffsetsPerTrigger="30")
    query = (
        rows.load(f"{folder}/j")
        .writeStream.foreachBatch(to_delta(f"{folder}/table"))
        .option("checkpointLocation", f"{folder}/c")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)


def offsets(table: Path) -> list[int]:
    found: list[int] = deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    return sorted(found)


def test_a_driver_killed_before_the_commit_repeats_the_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 60)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, env=environment(), capture_output=True, timeout=200
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-3000:]
    assert offsets(tmp_path / "table") == list(range(30))
    listed = len(deltalake.DeltaTable(str(tmp_path / "table")).file_uris())
    assert len(list((tmp_path / "table").glob("*.parquet"))) > listed  # the killed driver's
    start(spark, str(tmp_path))
    assert offsets(tmp_path / "table") == list(range(60))


def test_a_repeated_batch_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = to_delta(str(tmp_path / "t"), "mine")
    rows = frame(spark, [{"offset": number, "headers": {"id": b"7"}} for number in range(5)])
    for number in (0, 0, 1, 0, 1):
        sink(rows, number)
    to_delta(str(tmp_path / "t"), "another")(rows, 0)
    assert offsets(tmp_path / "t") == sorted([*range(5)] * 3)
    (first, *_) = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by("offset").to_pylist()
    assert (first["timestamp"], first["value"], first["headers"]) == (at(0), b"x", [{"key": "id", "value": b"7"}])
    with pytest.raises(ConfigError, match=r"column offset is not there in the stream, and .*long.* in"):
        sink(rows.drop("offset"), 2)
    with pytest.raises(ConfigError, match="query: is required here"):
        to_delta(str(tmp_path / "t"))(rows, 2)


def test_of_two_drivers_with_one_query_one_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = to_delta(str(tmp_path / "t"), "mine")
    rows = frame(spark, [{}] * 2)
    whole = tables.write_files

    def overtaken(*arguments: Any) -> list[tables.Written]:
        monkeypatch.setattr(tables, "write_files", whole)
        sink(rows, number)  # the other driver
        return whole(*arguments)

    for number in (0, 1):  # the table's first transaction, and a later one
        monkeypatch.setattr(tables, "write_files", overtaken)
        with pytest.raises(deltalake.exceptions.DeltaError):
            sink(rows, number)
        sink(rows, number)  # Spark repeats the micro-batch
    assert offsets(tmp_path / "t") == [0, 0, 1, 1]
