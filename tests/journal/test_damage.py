"""Truncation, bit flips, missing files: the intact prefix is kept, damage is reported, nothing is overwritten."""

import json
import random
from pathlib import Path

import pytest

from nngkit.errors import ConfigError, Damaged
from nngkit.journal import open_journal, read
from nngkit.journal.files import HEAD, log_name
from nngkit.journal.logfile import open_log
from nngkit.journal.record import Head, LogHeader
from nngkit.journal.writing.partition import Partition
from nngkit.journal.writing.recovery import recover
from nngkit.journal.writing.segmentfile import crc_of
from nngkit.testing import eventually
from tests.journal.partitions import SALT, entry, folder, log_bytes, stored

VALUES = [b"value %d " % number * (1 + number % 7) for number in range(300)]
WHOLE = log_bytes(VALUES)


def laid_out(where: Path, data: bytes, *, synced: bool) -> Path:
    """Create a partition folder with one log whose head claims that all of it was synced, or nothing."""
    where.mkdir(exist_ok=True)
    (where / log_name(0)).write_bytes(data)
    head = Head(SALT, 0, len(VALUES), len(WHOLE)) if synced else Head(SALT, 0, 0, LogHeader.size)
    (where / HEAD).write_bytes(head.encode())
    return where


def damage(chance: random.Random) -> tuple[str, bytes]:
    """Damage a log: truncate it, flip bits, or zero a sector."""
    data = bytearray(WHOLE)
    kind = chance.choice(("cut", "flip", "flips", "zeros"))
    at = chance.randrange(len(data))
    match kind:
        case "cut":
            del data[at:]
        case "flip":
            data[at] ^= 1 << chance.randrange(8)
        case "flips":
            for _ in range(20):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "zeros":
            data[at : at + 512] = bytes(len(data[at : at + 512]))
    return kind, bytes(data)


@pytest.mark.slow
def test_1000_cuts_and_flips_are_all_detected_and_earlier_records_kept(tmp_path: Path) -> None:
    chance = random.Random(6)
    kinds = set()
    for number in range(1000):
        kind, data = damage(chance)
        if data == WHOLE:  # the sector was zero already
            continue
        kinds.add(kind)
        where = laid_out(tmp_path / "p", data, synced=True)
        with pytest.raises(Damaged) as found:
            recover(where, 0, 0)
        assert found.value.path == str(where / log_name(0))
        assert (where / log_name(0)).read_bytes() == data, "the log was overwritten"
        first_change = next(
            (at for at, (one, two) in enumerate(zip(WHOLE, data, strict=False)) if one != two), len(data)
        )
        assert found.value.position is not None
        assert found.value.position <= first_change
        # salvage keeps exactly the records that were written and counts the lost ones
        rescued = recover(where, 0, 0, salvage=True)
        missing = sum(lost.end - lost.first for lost in rescued.lost)
        assert missing > 0
        assert rescued.end == len(VALUES)
        kept = 0
        for log in rescued.logs:
            with open_log(log.path) as opened:
                for rows in opened.chunks(log.first, log.end, skip=True):
                    kept += len(rows)
                    assert [row[5] for row in rows] == VALUES[rows[0][0] : rows[-1][0] + 1]
        assert kept + missing == len(VALUES), number
    assert kinds == {"cut", "flip", "flips", "zeros"}


def test_torn_unsynced_end_is_not_damage(tmp_path: Path) -> None:
    for cut in (LogHeader.size, LogHeader.size + 1, len(WHOLE) // 2, len(WHOLE) - 1):
        found = recover(laid_out(tmp_path / "p", WHOLE[:cut], synced=False), 0, 0)
        whole = found.end
        assert WHOLE[:cut].startswith(log_bytes(VALUES[:whole]))
        assert found.torn == cut - len(log_bytes(VALUES[:whole]))
        assert not found.lost


def test_log_cut_within_its_header_holds_no_record(tmp_path: Path) -> None:
    for cut in (0, 20, LogHeader.size):
        found = recover(laid_out(tmp_path / "p", WHOLE[:cut], synced=False), 0, 0)
        assert (found.end, found.logs, len(found.blank), found.useless) == (0, (), 1, ())


@pytest.mark.parametrize("cut", [0, 20, LogHeader.size])
def test_a_log_in_which_nothing_was_written_yet_leaves_no_trace(tmp_path: Path, cut: int) -> None:
    journal = tmp_path / "j"
    Partition.open(journal).close()
    laid_out(folder(journal), WHOLE[:cut], synced=False)
    partition = Partition.open(journal)
    try:
        stored(partition, [entry(b"one")])
    finally:
        partition.close()
    assert [path.name for path in folder(journal).iterdir() if "damaged" in path.name] == []
    assert [record.value for record in read(journal)] == [b"one"]


def test_recording_continues_after_a_torn_end(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    Partition.open(journal).close()
    torn = b"half a record"
    laid_out(folder(journal), log_bytes([b"one", b"two"]) + torn, synced=False)
    partition = Partition.open(journal)
    assert partition.recovered.torn == len(torn)
    assert stored(partition, [entry(b"three")]) == (2, 3)
    assert [record.value for record in read(journal)] == [b"one", b"two", b"three"]
    partition.close()
    assert [record.value for record in read(journal)] == [b"one", b"two", b"three"]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Three segments of 100 records."""
    for number in range(3):
        partition = Partition.open(tmp_path / "j")
        stored(partition, [entry(b"%d" % (number * 100 + each), timestamp=each) for each in range(100)])
        partition.close()
    return tmp_path / "j"


def test_missing_segment_is_reported_with_its_offset_and_can_be_skipped(journal: Path) -> None:
    second = open_journal(journal).segments(0)[1]
    (folder(journal) / second.file).unlink()
    got = []
    with pytest.raises(Damaged, match=f"{second.file}.*offset 100: the file is missing; restore") as error:
        got += [record.offset for record in read(journal, start=50)]
    assert error.value.offset == 100
    rest = [record.offset for record in read(journal, start=50, missing="skip")]
    assert rest == [*range(50, 100), *range(200, 300)]


def test_bit_flip_in_a_segment_is_detected(journal: Path) -> None:
    segment = open_journal(journal).segments(0)[0]
    path = folder(journal) / segment.file
    whole = path.read_bytes()
    chance = random.Random(3)
    assert crc_of(path) == segment.crc32c
    for _ in range(100):
        changed = bytearray(whole)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        assert crc_of(path) != segment.crc32c
    # pages have checksums of their own
    changed = bytearray(whole)
    changed[60] ^= 1
    path.write_bytes(changed)
    with pytest.raises(Damaged, match=segment.file):
        list(read(journal, end=100))


def test_other_format_version_is_reported_and_left_unchanged(journal: Path) -> None:
    for path in (journal / "journal.json", folder(journal) / "manifest.json"):
        before = path.read_bytes()
        path.write_text(json.dumps({**json.loads(before), "version": 9}))
        with pytest.raises(ConfigError, match=rf"{path.name}: format version 9; this nngkit reads versions? 1"):
            list(read(journal))
        with pytest.raises(ConfigError, match="version 9"):
            Partition.open(journal)
        assert json.loads(path.read_text())["version"] == 9
        path.write_bytes(before)


def test_truncated_manifest_is_damage_and_left_unchanged(journal: Path) -> None:
    path = folder(journal) / "manifest.json"
    cut = path.read_bytes()[:100]
    path.write_bytes(cut)
    for use in (lambda: list(read(journal)), lambda: Partition.open(journal)):
        with pytest.raises(Damaged, match=r"manifest\.json"):
            use()
    assert path.read_bytes() == cut


def test_folder_with_foreign_files_does_not_become_a_journal(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ConfigError, match=r"neither empty nor a journal"):
        Partition.open(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_log_of_another_partition_is_rejected(tmp_path: Path) -> None:
    where = laid_out(tmp_path / "p", log_bytes(VALUES, partition=4), synced=True)
    with pytest.raises(Damaged, match="it belongs to partition 4"):
        recover(where, 0, 0)


def test_log_missing_between_two_others_is_reported(tmp_path: Path) -> None:
    where = tmp_path / "p"
    where.mkdir()
    for first in (0, 200):
        (where / log_name(first)).write_bytes(log_bytes(VALUES[first : first + 100], first=first))
    with pytest.raises(Damaged, match="offset 100"):
        recover(where, 0, 0)
    rescued = recover(where, 0, 0, salvage=True)
    assert [(lost.first, lost.end) for lost in rescued.lost] == [(100, 200)]
    assert rescued.end == 300


def test_salvage_seals_records_counts_the_lost_and_keeps_the_damaged_log(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    Partition.open(journal).close()
    data = bytearray(WHOLE)
    data[len(data) // 2] ^= 4
    laid_out(folder(journal), bytes(data), synced=True)
    with pytest.raises(Damaged, match="--salvage"):
        Partition.open(journal)
    partition = Partition.open(journal, salvage=True)
    eventually(lambda: partition.stats.segments)
    partition.close()
    manifest = open_journal(journal).manifest(0)
    assert len(manifest.lost) == 1
    lost = manifest.lost[0]
    assert lost.end - lost.first == 1
    assert manifest.segments[0].rows == 299
    assert [record.offset for record in read(journal)] == [each for each in range(300) if each != lost.first]
    assert (folder(journal) / f"{log_name(0)}.damaged").read_bytes() == bytes(data)
