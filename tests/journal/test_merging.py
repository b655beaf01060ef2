"""Small segments are merged, by a recorder or by `compact`. What a kill or damage leaves is a valid journal."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from nngkit.errors import ConfigError, Damaged
from nngkit.journal import Retention, compact, open_journal, read, rebuild_manifest
from nngkit.journal.files import PENDING, LocalStorage, segment_name
from nngkit.journal.manifest import RETIRE, save_manifest
from nngkit.journal.segments import PACK, Segments
from nngkit.journal.verify import verify
from nngkit.journal.writing.merging import FAN, STAY, delete_retired, merged_into, plan_merge
from nngkit.journal.writing.partition import Partition
from nngkit.testing import eventually
from tests.journal.partitions import entry, folder, stored
from tests.journal.test_segments import Files, segment

TARGET = 1 << 16


def filled(where: Path, count: int, *, rows: int = 3) -> Path:
    """Make a journal with `count` segments, none merged."""
    partition = Partition.open(where, segment_bytes=1)  # each write is a log; nothing is small enough to be merged
    for number in range(count):
        stored(partition, [entry(b"%d" % (number * rows + each), timestamp=number * 1000) for each in range(rows)])
    partition.close()
    assert len(open_journal(where).segments(0)) == count
    return where


def shown(where: Path) -> list[int] | None:
    """Return the offsets in `*.parquet`; None if a read fails, as one of these files is no Parquet."""
    found: list[int] = []
    for path in where.glob("partition-*/*.parquet"):
        try:
            found += parquet.read_table(path, columns=["offset"], partitioning=None)["offset"].to_pylist()
        except pa.ArrowInvalid:
            assert path.name == "swapping.parquet"
            return None
    return sorted(found)


def values(where: Path) -> list[tuple[int, bytes]]:
    return [(each.offset, each.value) for each in read(where)]


@settings(max_examples=60)
@given(st.lists(st.integers(1, 2 * TARGET), max_size=300), st.integers(0, 3))
def test_merging_ends_with_no_run_of_small_segments_and_rewrites_little(sizes: list[int], gaps: int) -> None:
    files, at, listed = Files(), 0, []
    for number, size in enumerate(sizes):
        at += 7 * (number % 50 == 49 and gaps > 0)
        listed.append(segment(at, at + 10, size))
        at += 10
    segments = Segments(listed, load=files).packed(files.write)
    rewritten = 0
    while (run := plan_merge(segments, TARGET)) is not None:
        assert len(run) >= FAN
        assert all(before.end == after.first for before, after in pairwise(run))
        size = sum(each.bytes for each in run)
        assert size <= TARGET
        rewritten += size
        into = segment(run[0].first, run[-1].end, size)
        segments = segments.merged(run, into, files.write).packed(files.write)
    assert segments.bytes == sum(sizes)
    assert rewritten <= 8 * sum(sizes)  # each time it becomes eight times as large
    for part in (segments.recent, *(segments.entries(each) for each in segments.blocks)):
        small = 0
        for before, each in pairwise(part):
            small = small + 1 if each.bytes < TARGET / FAN and before.end == each.first else 0
            assert small < FAN or sum(one.bytes for one in part) > TARGET


def test_compact_merges_and_readers_notice_nothing(tmp_path: Path) -> None:
    where = filled(tmp_path / "j", 100)
    before = values(where)
    reading = iter(read(where))
    assert next(reading).offset == 0
    done = compact(where)
    assert shown(where) == [offset for offset, _ in before], "the parts stand for the merged segment"
    assert done.before == 100
    assert done.after < FAN
    assert len(open_journal(where).segments(0)) == done.after
    assert values(where) == before
    assert [each.offset for each in reading] == list(range(1, 300))  # its files stay for an hour
    assert not [each for each in verify(open_journal(where)) if each.bad]
    assert sum(open_journal(where).segments(0)[0].topics.values()) >= PACK
    again = compact(where)
    assert (again.before, again.after, again.rewritten) == (done.after, done.after, 0)


def test_reader_that_is_slower_than_that_goes_on_in_the_merged_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = filled(tmp_path / "j", 40)
    reading = iter(read(where))
    assert next(reading).offset == 0
    monkeypatch.setattr("nngkit.journal.writing.merging.STAY", 0.0)
    compact(where)
    listed = {each.file for each in open_journal(where).segments(0)}
    assert {path.name for path in folder(where).iterdir() if path.suffix == ".parquet"} == listed
    assert [each.offset for each in reading] == list(range(1, 120))


def test_recorder_merges_when_idle_and_does_not_exclude_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = filled(tmp_path / "j", 20)
    monkeypatch.setattr("nngkit.journal.writing.partition.RETRY", 0.01)
    partition = Partition.open(where)
    eventually(lambda: partition.stats.merged >= 20)
    with pytest.raises(ConfigError, match="another recorder has this partition"):
        compact(where)
    partition.close()
    assert len(open_journal(where).segments(0)) == 1
    assert values(where) == [(each, b"%d" % each) for each in range(60)]
    partition = Partition.open(where, retention=Retention(size=1))
    eventually(lambda: partition.stats.retired == 1)
    partition.close()
    assert open_journal(where).bounds(0).start == 60


def test_parts_that_were_merged_at_different_times_are_replaced_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = filled(tmp_path / "j", FAN + 3)
    storage, every = LocalStorage(where), list(range(3 * (FAN + 3)))
    manifest = open_journal(where).manifest(0)
    manifest = merged_into(storage, folder(where), manifest, manifest.segments[:FAN])
    merged = {each.file for each in manifest.retired}
    manifest = merged_into(storage, folder(where), manifest, list(manifest.segments))  # what was merged, and three more
    begun = manifest.retired[0].at + RETIRE
    later = (each if each.file in merged else replace(each, at=each.at + 600) for each in manifest.retired)
    manifest = replace(manifest, retired=tuple(later))
    assert shown(where) == every
    assert delete_retired(storage, manifest, begun + 1) == manifest, "three parts are not due yet"
    assert shown(where) == every
    with monkeypatch.context() as full:  # what makes room writes nothing
        full.setattr("builtins.open", None)
        full.setattr(Path, "open", None)
        manifest = delete_retired(storage, manifest, begun + 601)
    manifest = save_manifest(storage, manifest)
    assert shown(where) == every
    [listed] = [each.file for each in manifest.segments]
    pending = [each.file for each in manifest.retired]
    assert (listed, pending) == (segment_name(0, len(every)), [segment_name(0, len(every)) + PENDING])
    assert {path.name for path in folder(where).glob("*.parquet*")} == {listed, *pending}
    manifest = save_manifest(storage, delete_retired(storage, manifest, begun + 602 + STAY))
    assert [path.name for path in folder(where).glob("*.parquet*")] == [listed]
    assert [offset for offset, _ in values(where)] == every


def test_parts_stay_while_the_merged_file_is_missing(tmp_path: Path) -> None:
    where = filled(tmp_path / "j", FAN)
    compact(where)
    manifest = open_journal(where).manifest(0)
    (folder(where) / manifest.segments[0].file).rename(tmp_path / "away")
    assert delete_retired(LocalStorage(where), manifest, time.time() + 2 * STAY) == manifest
    assert shown(where) == list(range(3 * FAN))


@pytest.mark.slow
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = filled(tmp_path / "j", PACK + FAN)  # a block and recent segments
    before = values(where)
    lefts: list[Path] = []
    for name in ("publish", "replace", "remove", "link"):
        step = getattr(LocalStorage, name)

        def stop_before(*arguments: object, step: object = step) -> object:
            lefts.append(tmp_path / f"left-{len(lefts)}")
            shutil.copytree(where, lefts[-1])
            return step(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(LocalStorage, name, stop_before)
    monkeypatch.setattr("nngkit.journal.writing.merging.STAY", 0.0)
    compact(where)
    monkeypatch.undo()
    assert len(lefts) > 10
    assert {path.name for left in lefts for path in folder(left).glob("swap*")} == {"swapping.parquet"}
    every = [offset for offset, _ in before]
    for left in lefts:
        assert values(left) == before
        assert shown(left) in (every, None)
        Partition.open(left).close()
        assert values(left) == before
        assert shown(left) in (every, None)
        compact(left)
        assert values(left) == before
        assert shown(left) == every
        assert not [each for each in verify(open_journal(left)) if each.bad]
        manifest = open_journal(left).manifest(0)
        known = {each.file for each in (*manifest.segments, *manifest.retired)}
        known |= {each.file for each in manifest.segments.blocks}
        assert {path.name for path in folder(left).iterdir()} - known == {"lock", "head", "manifest.json"}


def test_damaged_segment_is_left_out_and_named(tmp_path: Path) -> None:
    where = filled(tmp_path / "j", 30)
    before = values(where)
    broken = open_journal(where).segments(0)[10]
    path = folder(where) / broken.file
    data = bytearray(path.read_bytes())
    data[60] ^= 255
    path.write_bytes(data)
    done = compact(where)
    assert [file for file, _ in done.damaged] == [broken.file]
    assert path.read_bytes() == data
    left = [each for each in before if not broken.first <= each[0] < broken.end]
    assert [(each.offset, each.value) for each in read(where, missing="skip", skipped=lambda _: None)] == left


@pytest.mark.slow
def test_lost_or_changed_block_is_reported_and_its_segments_are_found_again(tmp_path: Path) -> None:
    where = filled(tmp_path / "j", PACK + 3)
    before = values(where)
    (block,) = open_journal(where).manifest(0).segments.blocks
    path = folder(where) / block.file
    kept = path.read_bytes()
    for damage in ("lost", "changed"):
        path.unlink(missing_ok=True)
        if damage == "changed":
            path.write_bytes(kept.replace(b'"rows": 3', b'"rows": 4', 1))
        with pytest.raises(Damaged, match=rf"{block.file}: damaged.*nngkit journal rebuild-manifest"):
            values(where)
        with pytest.raises(Damaged, match=rf"{block.file}: damaged.*nngkit journal rebuild-manifest"):
            Partition.open(where)
        done = rebuild_manifest(where)
        assert (done.missing, done.lost) == ((), ())
        assert values(where) == before
        (block,) = open_journal(where).manifest(0).segments.blocks
        assert folder(where) / block.file == path  # the same segments make the same block


def test_older_manifest_whose_parts_were_merged_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = filled(tmp_path / "j", 20)
    before = values(where)
    old = (folder(where) / "manifest.json").read_bytes()
    monkeypatch.setattr("nngkit.journal.writing.merging.STAY", 0.0)
    compact(where)
    (folder(where) / "manifest.json").write_bytes(old)
    Partition.open(where).close()
    assert values(where) == before
