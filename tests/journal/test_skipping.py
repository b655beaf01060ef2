"""Damage in a segment costs one row group and is counted, however a read is split."""

from __future__ import annotations

import logging
import random
import time
from itertools import pairwise
from pathlib import Path

import pytest
from pyarrow import parquet

from nngkit.errors import Damaged
from nngkit.journal import Journal, Skipped, open_journal, read
from nngkit.journal.record import LogHeader
from nngkit.journal.writing.partition import Partition
from tests.journal.partitions import entry, folder, stored

ROWS = 1000
GROUP = 100


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """One segment of ten row groups."""
    monkeypatch.setattr("nngkit.journal.writing.segmentfile.ROW_GROUP", GROUP)
    monkeypatch.setattr("nngkit.journal.writing.segmentfile.PIECE", GROUP)
    partition = Partition.open(tmp_path / "j")
    chance = random.Random(1)
    stored(partition, [entry(chance.randbytes(50), timestamp=each * 1000) for each in range(ROWS)])
    partition.close()
    return open_journal(tmp_path / "j")


def flip(journal: Journal, group: int, column: str = "value") -> None:
    """Flip one bit in the data of a row group."""
    path = folder(Path(journal.location)) / journal.segments(0)[0].file
    metadata = parquet.ParquetFile(path).metadata
    assert metadata.num_row_groups == ROWS // GROUP
    columns = [metadata.row_group(group).column(number) for number in range(metadata.num_columns)]
    chunk = next(each for each in columns if each.path_in_schema == column)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 16
    path.write_bytes(data)


@pytest.mark.parametrize("batch_rows", [7, 100, 65_536])
def test_flipped_bit_costs_one_row_group_for_any_split_of_the_read(journal: Journal, batch_rows: int) -> None:
    flip(journal, 3)
    flip(journal, 7)
    damaged = {*range(300, 400), *range(700, 800)}
    chance = random.Random(batch_rows)
    for pieces in (1, 2, 3, 10, 37):
        edges = [0, *sorted(chance.sample(range(1, ROWS), pieces - 1)), ROWS]
        told: list[Skipped] = []
        got: list[int] = []
        for start, end in pairwise(edges):
            for batch in journal.read_batches(
                0, start, end, missing="skip", skipped=told.append, batch_rows=batch_rows
            ):
                got += batch.column("offset").to_pylist()
        assert got == [each for each in range(ROWS) if each not in damaged], edges
        assert sum(each.rows for each in told) == len(damaged), edges
        assert {offset for each in told for offset in range(each.first, each.end)} == damaged


def test_without_skipping_damage_raises_with_its_first_offset(journal: Journal) -> None:
    flip(journal, 3)
    with pytest.raises(Damaged) as found:
        list(read(journal))
    assert found.value.offset == 300


def test_skipped_damage_is_logged_by_default(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    flip(journal, 9)
    with caplog.at_level(logging.WARNING):
        assert len(list(read(journal, missing="skip"))) == ROWS - GROUP
    assert "skipped 100 records, offsets 900 to 999" in caplog.text


def test_missing_or_truncated_segment_counts_as_skipped_whole(journal: Journal) -> None:
    path = folder(Path(journal.location)) / journal.segments(0)[0].file
    path.write_bytes(path.read_bytes()[:-20])
    for _ in range(2):
        told: list[Skipped] = []
        for start, end in ((0, 10), (10, 555), (555, ROWS)):
            assert list(journal.read_batches(0, start, end, missing="skip", skipped=told.append)) == []
        assert [each.rows for each in told] == [10, 545, 445]
        path.unlink(missing_ok=True)


def test_damage_in_a_log_costs_only_the_damaged_records(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"value %d" % each) for each in range(50)])
    log = next(folder(tmp_path / "j").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[data.index(b"value 20")] ^= 1
    log.write_bytes(data)
    for splits in ([0, 50], [0, 20, 21, 50], [0, 10, 30, 50]):
        told: list[Skipped] = []
        got: list[int] = []
        for start, end in pairwise(splits):
            for batch in open_journal(tmp_path / "j").read_batches(0, start, end, missing="skip", skipped=told.append):
                got += batch.column("offset").to_pylist()
        assert got == [each for each in range(50) if each != 20]
        assert [(each.first, each.rows) for each in told] == [(20, 1)]
    assert [each.offset for each in read(tmp_path / "j", start=21)] == list(range(21, 50)), "records behind the damage"
    partition.close()


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.slow
def test_offset_at_a_time_is_found_without_a_scan(tmp_path: Path, sealed: bool) -> None:
    partition = Partition.open(tmp_path / "j", buffer_bytes=1 << 30)
    chance = random.Random(5)
    times = [each * 10 + chance.randrange(-200, 200) for each in range(400_000)]
    for at in range(0, len(times), 50_000):
        stored(partition, [entry(b"value", timestamp=each) for each in times[at : at + 50_000]])
    if sealed:
        partition.close()
    journal = open_journal(tmp_path / "j")
    try:
        assert journal.bounds(0).sealed == (len(times) if sealed else 0)
        begun = time.process_time()
        assert sum(batch.num_rows for batch in journal.read_batches(0)) == len(times)
        scan = time.process_time() - begun
        for time_ in (0, 1_234_567, 2_000_005, 3_999_990, 3_999_000, 9_999_999_999):
            begun = time.process_time()
            found = journal.offset_at(0, time_)
            taken = time.process_time() - begun
            assert found == next((offset for offset, each in enumerate(times) if each >= time_), len(times))
            assert taken < scan / 2, f"{time_}: {taken:.3f} s of CPU, and {scan:.3f} s for a scan"
    finally:
        if not sealed:
            partition.close()


@pytest.mark.slow
def test_offset_at_a_time_is_that_of_an_intact_record_in_a_damaged_log(tmp_path: Path) -> None:
    chance = random.Random(9)
    times = [chance.randrange(1000) for _ in range(200)]
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"value", timestamp=each) for each in times])
    log = next(folder(tmp_path / "j").glob("*.log"))
    whole = log.read_bytes()
    journal = open_journal(tmp_path / "j")
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 20)):
            data[chance.randrange(LogHeader.size, len(data))] ^= 1 << chance.randrange(8)
        log.write_bytes(data)
        good = list(read(journal, missing="skip", skipped=lambda _: None))
        for wanted in (0, 500, 990, 999):
            expected = next((each.offset for each in good if each.timestamp >= wanted), len(times))
            assert journal.offset_at(0, wanted, damaged="behind") == expected
    log.write_bytes(whole)
    partition.close()


def test_a_time_in_a_missing_segment_is_no_later_offset(tmp_path: Path) -> None:
    for first in (0, 10, 20):
        partition = Partition.open(tmp_path / "j")
        stored(partition, [entry(b"value", timestamp=first + each) for each in range(10)])
        partition.close()
    journal = open_journal(tmp_path / "j")
    (folder(tmp_path / "j") / journal.segments(0)[1].file).unlink()
    with pytest.raises(Damaged, match="the file is missing"):
        journal.offset_at(0, 15)
    with pytest.raises(Damaged, match="the file is missing"):
        list(read(journal, start_time=15))
    assert journal.offset_at(0, 15, damaged="before") == 10
    assert journal.offset_at(0, 15, damaged="behind") == 20
    assert [journal.offset_at(0, time_) for time_ in (5, 20, 99)] == [5, 20, 30], "no time of the missing segment"


def test_a_time_behind_damage_in_a_log_is_an_error_or_before_it(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"value", timestamp=each) for each in range(30)])
    log = next(folder(tmp_path / "j").glob("*.log"))
    data = bytearray(log.read_bytes())
    size = (len(data) - LogHeader.size) // 30
    data[LogHeader.size + 15 * size + 20] ^= 1
    log.write_bytes(data)
    journal = open_journal(tmp_path / "j")
    assert journal.offset_at(0, 10) == 10
    for time_ in (15, 16):
        with pytest.raises(Damaged, match="offset 15"):
            journal.offset_at(0, time_)
    assert [journal.offset_at(0, 15, damaged=each) for each in ("before", "behind")] == [15, 16]
    assert journal.offset_at(0, 20, damaged="before") == 20, "the record before has an earlier time"
    partition.close()
