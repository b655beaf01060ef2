"""A partition is written, sealed, read meanwhile and retired; and its disk fails."""

from __future__ import annotations

import errno
import os
import pickle
import threading
import time
from pathlib import Path

import pytest

from nngkit.errors import ConfigError, Full, NotStored, OffsetGone
from nngkit.journal import Retention, open_journal, read
from nngkit.journal import manifest as manifests
from nngkit.journal.files import SharedStorage
from nngkit.journal.writing.partition import Partition
from nngkit.testing import eventually
from tests.journal.partitions import entry, folder, stored


def test_stored_records_are_read_before_and_after_sealing(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j")
    assert stored(partition, [entry(b"a", key=b"k"), entry(b"b", topic="other")]) == (0, 2)
    before = list(read(tmp_path / "j"))
    assert [(each.key, each.value, each.topic, each.offset) for each in before] == [
        (b"k", b"a", "topic", 0),
        (None, b"b", "other", 1),
    ]
    assert open_journal(tmp_path / "j").bounds(0).sealed == 0
    partition.close()
    journal = open_journal(tmp_path / "j")
    assert journal.bounds(0).sealed == 2
    assert list(read(journal)) == before
    assert list(read(journal, topics="other")) == before[1:]
    assert [path.suffix for path in folder(tmp_path / "j").iterdir() if path.suffix in (".log", ".index")] == []


def test_read_selects_by_offset_and_time(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j", segment_bytes=3000)
    for number in range(20):  # three to a log: six segments, and a log with the last two
        stored(partition, [entry(b"v" * 50, timestamp=number * 100 + each) for each in range(10)])
    eventually(lambda: partition.stats.segments == 6)
    journal = pickle.loads(pickle.dumps(open_journal(tmp_path / "j")))
    assert journal.bounds(0).sealed == 180
    assert [each.offset for each in read(journal, start=37, end=143)] == list(range(37, 143))
    assert [each.offset for each in read(journal, start_time=305, end_time=503)] == list(range(35, 53))
    assert len(list(read(journal, start_time=-(1 << 70), end_time=1 << 70))) == 200
    assert list(read(journal, start_time=1 << 63)) == list(read(journal, end_time=-(1 << 70))) == []
    (tmp_path / "j" / "partition-1").mkdir()  # a folder of another name is no partition
    assert journal.partitions() == [0]
    assert journal.offset_at(0, 305) == 35
    assert journal.offset_at(0, 309_999) == 200
    assert journal.end(0) == 200
    columns = [batch.schema.names for batch in journal.read_batches(0, columns=["value"], start_time=100)]
    assert set(map(tuple, columns)) == {("value",)}
    assert sum(each.num_rows for each in journal.read_batches(0, batch_rows=7)) == 200
    partition.close()


@pytest.mark.slow
def test_readers_see_every_record_once_during_writing_and_sealing(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j", segment_bytes=20_000)
    failures: list[str] = []
    ended = threading.Event()

    def follow() -> None:
        journal, at = open_journal(tmp_path / "j"), 0
        while at < 6000:
            end = journal.end(0)
            got = [record.offset for record in read(journal, start=at, end=end)]
            if got != list(range(at, end)):
                failures.append(f"{at} to {end}: {len(got)} records")
                break
            at = end
        ended.set()

    readers = [threading.Thread(target=follow) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(600):
        stored(partition, [entry(b"%d" % (number * 10 + each)) for each in range(10)])
    for reader in readers:
        reader.join(40)
        assert not reader.is_alive()
    partition.close()
    assert failures == []
    assert partition.stats.segments > 10


def test_partition_is_locked_against_a_second_recorder(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j")
    with pytest.raises(
        ConfigError, match=rf"partition-00000/lock: another recorder.*pid {os.getpid()} on.*--partition"
    ):
        Partition.open(tmp_path / "j")
    other = Partition.open(tmp_path / "j", 1)
    stored(other, [entry(b"there")])
    stored(partition, [entry(b"here")])
    partition.close()
    other.close()
    assert [(each.partition, each.value) for each in read(tmp_path / "j")] == [(0, b"here"), (1, b"there")]
    Partition.open(tmp_path / "j").close()


def test_retention_retires_segments_and_reading_them_names_the_earliest_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nngkit.journal.writing.merging.RETIRE", 0.0)
    now = int(time.time() * 1e6)
    for number, age in enumerate((5000, 4000, 0)):
        partition = Partition.open(tmp_path / "j")
        stored(partition, [entry(b"%d" % number, timestamp=now - age * 1_000_000)])
        partition.close()
    partition = Partition.open(tmp_path / "j", retention=Retention(age=4500))
    stored(partition, [entry(b"3", timestamp=now)])
    partition.close()
    journal = open_journal(tmp_path / "j")
    assert journal.bounds(0).start == 1
    with pytest.raises(OffsetGone, match=r"manifest\.json: offset 0 is gone.*the earliest kept is 1") as gone:
        list(read(journal, start=0))
    assert (gone.value.offset, gone.value.earliest) == (0, 1)
    assert [each.offset for each in read(journal)] == [1, 2, 3]
    assert [each.offset for each in read(journal, start=0, missing="skip")] == [1, 2, 3]
    partition = Partition.open(tmp_path / "j", retention=Retention(size=1))
    stored(partition, [entry(b"4")])
    partition.close()
    assert list(read(journal)) == []
    assert journal.bounds(0).start == 5
    eventually(lambda: not list(folder(tmp_path / "j").glob("*.parquet")) or _sweep(tmp_path))


def _sweep(tmp_path: Path) -> bool:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"next")])
    partition.close()
    listed = {segment.file for segment in open_journal(tmp_path / "j").segments(0)}
    return {path.name for path in folder(tmp_path / "j").glob("*.parquet")} == listed


def test_retired_segment_stays_for_a_running_reader(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"x", timestamp=1)] * 10)
    partition.close()
    batches = open_journal(tmp_path / "j").read_batches(0, batch_rows=2)
    next(batches)
    partition = Partition.open(tmp_path / "j", retention=Retention(age=1.0))
    stored(partition, [entry(b"y")])
    partition.close()
    manifest = open_journal(tmp_path / "j").manifest(0)
    assert manifest.start > 0
    assert manifests.RETIRE == 60.0
    assert sum(batch.num_rows for batch in batches) == 8


def test_reading_beyond_the_end_is_an_error(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"x")])
    with pytest.raises(ConfigError, match="offset 4 does not exist yet, the next one is 1"):
        list(read(tmp_path / "j", start=0, end=5))
    partition.close()
    with pytest.raises(ConfigError, match="no partition 7; there are: 0"):
        list(read(tmp_path / "j", partition=7))


def test_shared_storage_serves_several_recorders_and_holds_no_logs(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    uri = f"file://{tmp_path}/share/j"
    for number in range(2):
        with pytest.raises(ConfigError, match="its logs need a local folder"):
            Partition.open(uri, number)
        partition = Partition.open(uri, number, spool=tmp_path / f"spool{number}")
        stored(partition, [entry(b"%d" % number)])
        here = open_journal(uri, spool=tmp_path / f"spool{number}")
        assert [each.value for each in read(here, partition=number)] == [b"%d" % number]
        partition.close()
    journal = open_journal(uri)
    assert isinstance(journal.storage, SharedStorage)
    assert [(each.partition, each.value) for each in read(journal)] == [(0, b"0"), (1, b"1")]
    assert [each.value for each in read(pickle.loads(pickle.dumps(journal)))] == [b"0", b"1"]
    suffixes = {path.suffix for path in (tmp_path / "share").rglob("*") if path.is_file()}
    assert suffixes == {".json", ".parquet"}
    with pytest.raises(ConfigError, match=r"partition 0 belongs to .*, and this spool is"):
        Partition.open(uri, 0, spool=tmp_path / "another")


class Disk:
    """Makes syncs or writes of logs fail on request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sync_fails = 0
        self.write_fails = 0
        self.refused = threading.Event()
        sync, write = os.fdatasync, os.write

        def fdatasync(file: int) -> None:
            if self.sync_fails:
                self.sync_fails -= 1
                self.refused.set()
                raise OSError(errno.EIO, "Input/output error")
            sync(file)

        def writes(file: int, data: bytes) -> int:
            if self.write_fails and threading.current_thread().name.startswith("journal log"):
                self.write_fails -= 1
                self.refused.set()
                if len(data) > 2000:
                    return write(file, data[:1000])  # a full disk writes a part first, then nothing
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(file, data)

        monkeypatch.setattr(os, "fdatasync", fdatasync)
        monkeypatch.setattr(os, "write", writes)


def test_after_a_failed_sync_no_record_of_that_log_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"before")])
    disk = Disk(monkeypatch)
    disk.sync_fails = 1
    first_log = (folder(tmp_path / "j") / f"{0:020}.log").stat().st_ino
    assert stored(partition, [entry(b"at once in the next log")]) == (1, 2)
    # the first log is not looked at again: it may just be deleted, as sealed
    assert (folder(tmp_path / "j") / f"{1:020}.log").stat().st_ino != first_log
    assert partition.log.stats.sync_failures == 1
    disk.sync_fails = 1000
    with pytest.raises(NotStored, match=r"Input/output error; the next free offset in .* is 2"):
        stored(partition, [entry(b"refused")])
    assert open_journal(tmp_path / "j").bounds(0).end == 2
    disk.sync_fails = 0
    assert stored(partition, [entry(b"after")]) == (2, 3)
    partition.close()
    values = [b"before", b"at once in the next log", b"after"]
    assert [each.value for each in read(tmp_path / "j")] == values
    assert partition.log.stats.refused == 1


def test_full_disk_refuses_waiters_and_keeps_other_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition.open(tmp_path / "j", buffer_bytes=100_000)
    stored(partition, [entry(b"before")])
    disk = Disk(monkeypatch)
    disk.write_fails = 1 << 30
    partition.log.append([entry(b"kept")])
    assert disk.refused.wait(10)
    with pytest.raises(NotStored, match="No space left on device"):
        stored(partition, [entry(b"refused" * 1000)])
    with pytest.raises(Full, match="bytes are waiting for the disk"):
        _fill(partition)
    assert partition.log.failure is not None
    disk.write_fails = 0
    stored(partition, [entry(b"after")])
    assert partition.log.failure is None
    partition.close()
    values = [each.value for each in read(tmp_path / "j")]
    assert (values[0], values[1], values[-1]) == (b"before", b"kept", b"after")
    assert values.count(b"x" * 1000) == len(values) - 3
    assert b"refused" * 1000 not in values
    assert partition.log.stats.write_failures > 0


def test_an_outage_of_the_disk_is_logged_once_however_many_records_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partition = Partition.open(tmp_path / "j")
    disk = Disk(monkeypatch)
    for outage in (1, 2):
        disk.write_fails = 1 << 30
        for _ in range(20):
            with pytest.raises(NotStored):
                stored(partition, [entry(b"refused")])
        assert sum("cannot store records" in each.message for each in caplog.records) == outage
        disk.write_fails = 0
        stored(partition, [entry(b"stored")])
    partition.close()


def _fill(partition: Partition) -> None:
    for _ in range(1000):
        partition.log.append([entry(b"x" * 1000)])


def test_log_closed_on_a_failing_disk_counts_unstored_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"before")])
    disk = Disk(monkeypatch)
    disk.write_fails = disk.sync_fails = 1 << 30
    partition.log.append([entry(b"lost")] * 3)
    partition.close()
    assert partition.log.stats.unstored == 3
    assert [each.value for each in read(tmp_path / "j")] == [b"before"]


def test_leftovers_of_a_recorder_killed_while_sealing_are_cleaned_up(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"x")] * 5)
    partition.close()
    where = folder(tmp_path / "j")
    (where / f"{5:020}-{9:020}.parquet").write_bytes(b"written, not in the manifest yet")
    (where / f"{5:020}-{9:020}.parquet.tmp").write_bytes(b"incomplete")
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"y")])
    partition.close()
    assert [each.offset for each in read(tmp_path / "j")] == list(range(6))
    assert len(list(where.glob("*.parquet"))) == 2
    assert (where / f"{5:020}-{9:020}.parquet.orphan").read_bytes() == b"written, not in the manifest yet"


def test_retention_goes_on_while_a_log_cannot_be_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.journal.writing.partition.RETRY", 0.02)
    partition = Partition.open(tmp_path / "j", retention=Retention(age=0.3), segment_bytes=1, segment_least=1)
    stored(partition, [entry(b"old", timestamp=time.time_ns() // 1000 + 1_000_000)])  # expires after the failure
    eventually(lambda: partition.manifest.end == 1)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nngkit.journal.writing.partition.write_segment", full)
    stored(partition, [entry(b"new", timestamp=time.time_ns() // 1000)])
    eventually(lambda: partition.manifest.start == 1)
    assert "No space" in str(partition.failure)
    partition.close()
