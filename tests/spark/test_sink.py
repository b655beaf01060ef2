"""Writing to PULL, SUB and an acknowledging recorder; duplicates of retries are recognizable."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from nngkit.errors import ConfigError
from nngkit.journal import Recorder, read
from nngkit.protocols import Pull, Rep, Sub
from nngkit.spark.reading.ids import split
from nngkit.spark.reading.options import WriteOptions
from nngkit.spark.reading.sink import BatchSink, OutputRow, _grouped
from nngkit.testing import eventually
from tests.spark.journals import write
from tests.spark.test_source import error_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def receiving(socket: Any) -> Iterator[list[bytes]]:
    """Collect received messages in a thread."""
    found: list[bytes] = []
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            try:
                found.append(socket.recv(timeout=0.1))
            except TimeoutError:
                continue

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stopping.set()
        thread.join(10)


@contextmanager
def recorder(journal: Path, address: str) -> Iterator[None]:
    """Run an acknowledging recorder in a thread."""
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with Recorder(journal) as recording, Rep(listen=address) as socket, trio.open_nursery() as nursery:
            nursery.start_soon(recording.record, socket, "spark")
            ready.set()
            while not stop.is_set():  # noqa: ASYNC110 - set by another thread
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert ready.wait(20)
    try:
        yield
    finally:
        stop.set()
        thread.join(20)


@pytest.mark.every_java
@pytest.mark.slow
def test_pushed_rows_carry_unique_ids(spark: SparkSession) -> None:
    rows = spark.range(1000).selectExpr("cast(id as string) as value").repartition(3)
    with Pull(listen="tcp://127.0.0.1:0") as pull, receiving(pull) as found:
        out = rows.write.format("nng").option("protocol", "push").option("dial", pull.address)
        out.option("withIds", "true").option("query", "test").mode("append").save()
        eventually(lambda: len(found) == 1000)
    origins, values = zip(*map(split, found), strict=True)
    assert sorted(map(int, values)) == list(range(1000))
    assert len(set(origins)) == 1000
    assert {origin.partition for origin in origins} == {0, 1, 2}


def test_rows_are_published(spark: SparkSession) -> None:
    with Sub(listen="tcp://127.0.0.1:0", topics=b"") as sub, receiving(sub) as found:
        rows = spark.range(50).selectExpr("cast(concat('a.', id) as binary) as value")
        rows.write.format("nng").option("protocol", "pub").option("dial", sub.address).mode("append").save()
        eventually(lambda: len(found) == 50)
    assert sorted(found) == sorted(f"a.{number}".encode() for number in range(50))


@pytest.mark.every_java
def test_acknowledged_rows_are_on_disk_and_a_repeated_write_is_deduplicated(
    spark: SparkSession, tmp_path: Path
) -> None:
    address = f"ipc://{tmp_path}/s"
    rows = spark.range(3000).selectExpr(
        "cast(id as string) as value",
        "case when id < 10 then 'k' end as key",
        "'eu' as topic",
        "array(struct('h' as key, binary('v') as value), struct('h' as key, binary('w') as value)) as headers",
    )
    with recorder(tmp_path / "j", address):
        for _ in range(2):  # as Spark does with a task that it considers lost
            out = rows.write.format("nng").option("protocol", "req").option("dial", address).option("query", "q")
            out.option("recordsPerRequest", "100").mode("append").save()
    found = list(read(tmp_path / "j"))
    assert len(found) == 6000
    once = list(read(tmp_path / "j", distinct=True))
    assert sorted(int(each.value) for each in once) == list(range(3000))
    assert {each.topic for each in once} == {"spark/eu"}
    assert {each.key for each in once if int(each.value) < 10} == {b"k"}
    assert {each.headers[1:] for each in once} == {(("h", b"v"), ("h", b"w"))}  # behind the id; a name may repeat


@pytest.mark.slow
@pytest.mark.every_java
def test_stream_is_written_once_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/s"
    with recorder(tmp_path / "out", address):
        for round_ in range(3):
            write(tmp_path / "in", 40, first=40 * round_)
            stream = spark.readStream.format("nng").option("startingOffsets", "earliest").load(str(tmp_path / "in"))
            out = stream.select("value").writeStream.format("nng").option("protocol", "req").option("dial", address)
            query = out.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
            assert query.awaitTermination(60)
            if round_ == 0:  # remove the last commit, as if the driver was killed before it: the batch is repeated
                for name in (tmp_path / "c" / "commits").glob("*0*"):
                    name.unlink()
    values = [int(each.value) for each in read(tmp_path / "out", distinct=True)]
    assert sorted(values) == list(range(120))
    assert len(list(read(tmp_path / "out"))) == 160


@pytest.mark.slow
def test_missing_peer_raises_timed_out(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(1).selectExpr("'x' as value")
    for protocol in ("push", "pub", "req"):
        out = rows.write.format("nng").option("protocol", protocol).option("dial", f"ipc://{tmp_path}/absent")
        text = error_of(lambda out=out: out.option("timeout", "0.5").mode("append").save())  # type: ignore[misc]
        assert "TimedOut" in text, protocol


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("1 as value", "value is a int, not a string or a binary"),
        ("'x' as val", "no column value among val"),
        ("'x' as value, 1 as extra", "unknown column extra"),
        ("'x' as value, 'k' as key", "key is for req only: push sends values"),
        ("cast(null as string) as value", "row 0 has a null value"),
    ],
)
def test_invalid_columns_are_rejected(spark: SparkSession, tmp_path: Path, columns: str, words: str) -> None:
    with Pull(listen=f"ipc://{tmp_path}/s") as pull:
        out = spark.range(1).selectExpr(*columns.split(", ")).write.format("nng").option("protocol", "push")
        assert words in error_of(lambda: out.option("dial", pull.address).mode("append").save())


def test_overwrite_mode_is_rejected() -> None:
    from pyspark.sql.types import StringType, StructType

    options = WriteOptions.of({"dial": "tcp://h:1", "protocol": "push"})
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        BatchSink.of(options, StructType().add("value", StringType()), overwrite=True)


def row(number: int, key: bytes | None = None, id_: bytes | None = None) -> OutputRow:
    return OutputRow(number, b"v", key, None, (), id_)


def test_request_boundaries_do_not_depend_on_batches() -> None:
    rows = [row(number, b"a" if number < 5 else b"b") for number in range(12)]
    groups = [[each.number for each in group] for group in _grouped(iter(rows), 4)]
    assert groups == [[0, 1, 2, 3], [4], [5, 6, 7, 8], [9, 10, 11]]
    assert [len(group) for group in _grouped(iter([row(n, id_=b"%d" % n) for n in range(3)]), 4)] == [1, 1, 1]
