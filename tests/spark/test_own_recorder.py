"""A stream's own recorder: it starts, is found again, survives its driver, and ends with its lease."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nngkit.errors import Broken, ConfigError
from nngkit.journal import open_journal, read
from nngkit.protocols import Push
from nngkit.spark.reading.one import StreamReader
from nngkit.spark.reading.options import ReadOptions, RecorderOptions
from nngkit.spark.reading.own_recorder import START_TIMEOUT, OwnRecorder
from nngkit.testing import eventually
from tests.spark.journals import append, opened
from tests.spark.test_source import error_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PULL = RecorderOptions("pull", None, None, "work", "")


def free_address(folder: Path) -> str:
    return f"ipc://{folder}/s"


def pid_of(recorder: OwnRecorder) -> int:
    return int(json.loads(recorder.lease.read_text())["pid"])


def is_running(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def ended_at_last(recorder: OwnRecorder) -> Iterator[None]:
    """End the recorder after the test."""
    try:
        yield
    finally:
        recorder.release()
        if recorder.lease.exists() and recorder.lease.read_text():  # otherwise it never started
            end(pid_of(recorder))
        if recorder._child is not None:
            recorder._child.wait(5)


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not is_running(pid))


def wait_for(journal: Path, count: int) -> list[bytes]:
    eventually(lambda: open_journal(journal).end(0) >= count)
    return [record.value for record in read(journal)]


def test_own_recorder_records_with_topic_and_protocol(tmp_path: Path) -> None:
    address = free_address(tmp_path)
    recorder = OwnRecorder(str(tmp_path / "j"), PULL._replace(listen=address))
    with ended_at_last(recorder):
        recorder.ensure()
        with Push(dial=address) as push:
            push.send_many([b"1", b"2"])
            assert wait_for(tmp_path / "j", 2) == [b"1", b"2"]
        assert {(record.topic, record.protocol) for record in read(tmp_path / "j")} == {("work", "pull")}
        pid = pid_of(recorder)
        recorder.ensure()
        assert pid_of(recorder) == pid


def test_killed_recorder_is_restarted(tmp_path: Path) -> None:
    recorder = OwnRecorder(str(tmp_path / "j"), PULL._replace(listen=free_address(tmp_path)))
    with ended_at_last(recorder):
        recorder.ensure()
        first = pid_of(recorder)
        os.kill(first, signal.SIGKILL)
        assert recorder._child is not None
        recorder._child.wait(10)
        recorder.ensure()
        assert pid_of(recorder) != first


def test_full_disk_stops_receiving_until_space_is_available(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    address, journal = free_address(tmp_path), tmp_path / "j"
    words = tmp_path / "j.recorder.log"
    sent = [b"%d" % number * 1000 for number in range(100)]
    recorder = OwnRecorder(str(journal), PULL._replace(listen=address))
    with ended_at_last(recorder):
        recorder.ensure()
        with Push(dial=address, send_buffer=len(sent)) as push:
            push.send(sent[0])
            assert wait_for(journal, 1) == sent[:1]
            pid = pid_of(recorder)
            # a file size limit, as only root can make a full file system; the error occurs at the same place
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
            push.send_many(sent[1:])
            eventually(lambda: "File too large" in words.read_text())
            recorder.ensure()
            assert pid_of(recorder) == pid
            assert [record.levelname for record in caplog.records if "cannot store records" in record.message]
            assert "listens at" not in caplog.text
            here = [record.value for record in read(journal)]
            assert here == sent[: len(here)]
            assert len(here) < 30
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert wait_for(journal, len(sent)) == sent


DRIVER = """
import sys, time
from nngkit.spark.reading.options import RecorderOptions, ReadOptions
from nngkit.spark.reading.own_recorder import OwnRecorder
from nngkit.spark.reading.one import StreamReader
recorder = OwnRecorder(sys.argv[1], RecorderOptions("pull", sys.argv[2], None, "work", ""))
recorder.ensure()
print("ready", flush=True)
time.sleep(100)
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_recorder_survives_a_killed_driver_and_ends_with_its_lease(tmp_path: Path) -> None:
    address = free_address(tmp_path)
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "j"), address]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    driver.kill()
    driver.wait(10)
    driver.stdout.close()
    recorder = OwnRecorder(str(tmp_path / "j"), PULL._replace(listen=address))
    pid = pid_of(recorder)
    with Push(dial=address) as push:
        push.send(b"without a driver")
        assert wait_for(tmp_path / "j", 1) == [b"without a driver"]
    recorder.ensure()
    assert pid_of(recorder) == pid, "the running recorder must be found"
    time.sleep(12)  # longer than a lease: it must be renewed
    assert is_running(pid)
    recorder.release()
    released = time.monotonic()
    eventually(lambda: not is_running(pid), 30.0)
    after = time.monotonic() - released

    assert 8 < after < 20, f"it ended {after:.1f} s after the release"


def test_resumed_query_starts_its_recorder_before_asking_for_offsets(tmp_path: Path) -> None:
    options = ReadOptions(path=str(tmp_path / "j"), listening=PULL._replace(listen=free_address(tmp_path)))
    reader = StreamReader(options, ("value",))
    try:
        # Spark calls this before it asks for an offset
        assert [each.value for each in reader.partitions({}, {})] == [None]
        assert reader._recorder is not None
        assert is_running(pid_of(reader._recorder))
    finally:
        if reader._recorder is not None:
            with ended_at_last(reader._recorder):
                reader.stop()


def test_invalid_recorder_options_are_reported(tmp_path: Path) -> None:
    recorder = OwnRecorder(str(tmp_path / "j"), PULL._replace(listen="nonsense://x"))
    with ended_at_last(recorder), pytest.raises((ConfigError, Broken), match="nonsense"):
        recorder.ensure()


def test_partition_locked_by_another_recorder_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = OwnRecorder(str(tmp_path / "j"), PULL._replace(listen=free_address(tmp_path)))
    with opened(tmp_path / "j") as partition, ended_at_last(recorder):
        with pytest.raises((ConfigError, Broken), match=rf"another recorder has this partition \(pid {os.getpid()} "):
            recorder.ensure()
        (told,) = caplog.records  # once, and long before the error
        assert f"another recorder has this partition (pid {os.getpid()} " in told.getMessage()
        assert time.time() - told.created > START_TIMEOUT / 2
        append(partition, [{}])
    assert [record.value for record in read(tmp_path / "j")] == [b"0"]


def test_own_recorder_of_shared_storage_keeps_its_logs_in_a_local_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spool.*name a local folder for the logs"):
        OwnRecorder("s3://bucket/j", PULL)
    (tmp_path / "share").mkdir()
    uri, address = f"file://{tmp_path}/share/j", free_address(tmp_path)
    recorder = OwnRecorder(uri, PULL._replace(listen=address), str(tmp_path / "spool"))
    with ended_at_last(recorder):
        recorder.ensure()
        with Push(dial=address) as push:
            push.send(b"shared")
            eventually(lambda: open_journal(uri, spool=tmp_path / "spool").end(0) == 1, 20)
    assert not (tmp_path / "share" / "j" / "partition-00000" / "head").exists()


@pytest.mark.every_java
@pytest.mark.slow
def test_stream_receives_through_its_own_recorder(spark: SparkSession, tmp_path: Path) -> None:
    address = free_address(tmp_path)
    found: list[bytes] = []

    def keep(rows: DataFrame, _number: int) -> None:
        found.extend(bytes(row.value) for row in rows.select("value").collect())

    stream = (
        spark.readStream.format("nng")
        .option("listen", address)
        .option("protocol", "pull")
        .option("checkpointLocation", str(tmp_path / "c"))
        .load()
    )
    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c")).start()
    recorder = OwnRecorder(str(tmp_path / "c" / "nng-journal"), PULL)
    try:
        with Push(dial=address) as push:
            sent = [f"{number}".encode() for number in range(500)]
            push.send_many(sent, timeout=60)
            deadline = time.monotonic() + 60
            while len(found) < 500 and time.monotonic() < deadline and query.exception() is None:
                time.sleep(0.05)
        assert sorted(found) == sorted(sent)
    finally:
        query.stop()
        with ended_at_last(recorder):
            pass


@pytest.mark.every_java
def test_recorder_that_cannot_start_fails_the_query_with_its_message(spark: SparkSession, tmp_path: Path) -> None:
    def run() -> None:
        stream = spark.readStream.format("nng").option("listen", "nonsense://x").option("protocol", "pull")
        query = (
            stream.load(str(tmp_path / "j"))
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "c"))
        )
        query.start().awaitTermination(60)

    assert "nonsense" in error_of(run)
