"""A journal's segments as an Iceberg and a Delta table, read back by the libraries of both and by DuckDB."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import compute, parquet

from nngkit.errors import ConfigError, Damaged, NotFound
from nngkit.journal import Journal, Retention, compact, open_journal
from nngkit.journal.files import PENDING, LocalStorage, segment_name
from nngkit.journal.manifest import save_manifest
from nngkit.journal.writing.merging import FAN, STAY, delete_retired
from nngkit.journal.writing.partition import Partition
from nngkit.lakehouse import export, formats, open_table
from tests.journal.partitions import entry, stored
from tests.lakehouse.journals import Changed, merged, path_of, seal, written

ICEBERG = pytest.param("iceberg", marks=pytest.mark.slow)  # importing pyiceberg takes a second
BOTH = pytest.mark.parametrize("kind", [ICEBERG, "delta"])


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Provide a journal of 25 records in two segments."""
    seal(tmp_path / "j", 10)
    seal(tmp_path / "j", 15, 10)
    return tmp_path / "j"


def scanned(target: Path) -> Any:
    """Return all rows as the format's own library reads them, by offset."""
    if (target / "metadata").is_dir():
        from pyiceberg.table import StaticTable

        rows = StaticTable.from_metadata(str(target)).scan().to_arrow()
    else:
        from deltalake import DeltaTable

        rows = DeltaTable(str(target)).to_pyarrow_dataset().to_table()
    return rows.sort_by([("partition", "ascending"), ("offset", "ascending")])


def offsets(rows: Any) -> list[int]:
    found: list[int] = rows["offset"].to_pylist()
    return found


@BOTH
def test_the_table_has_the_records_of_the_journal_in_its_own_files(kind: str, journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "lake" / "events"
    done = export(journal, target, kind)
    assert (done.added, done.removed, done.kept, done.offsets) == (2, 0, 0, {0: 25})
    rows = scanned(target)
    wanted = pa.Table.from_batches(open_journal(journal).read_batches(0))
    for name in ("key", "value", "topic", "partition", "offset", "timestamp", "protocol", "peer"):
        assert rows[name].to_pylist() == wanted[name].to_pylist(), name
    # pyiceberg 0.12 returns an empty list for a null one
    assert [each or None for each in rows["headers"].to_pylist()] == wanted["headers"].to_pylist()
    segment = path_of(journal, open_journal(journal).segments(0)[0])
    assert any(os.path.samefile(segment, path) for path in open_table(target).paths()), "it was copied"
    shown = duckdb.sql("select count(*), max(\"offset\"), count(*) filter (topic = 't1') from rows").fetchall()
    assert shown == [(25, 24, 12)]


@BOTH
def test_each_export_is_one_snapshot_with_its_offsets_and_readable_later(
    kind: str, journal: Path, tmp_path: Path
) -> None:
    target = tmp_path / "t"
    first = export(journal, target, kind)
    assert export(journal, target, kind).snapshot is None, "nothing new, and no snapshot"
    seal(journal, 5, 25)
    seal(journal, 7, 0, partition=3)
    second = export(journal, target, kind)
    assert second.offsets == {0: 30, 3: 7}
    table = open_table(target)
    assert [(each.id, each.offsets) for each in table.snapshots()] == [
        (first.snapshot, {0: 25}),
        (second.snapshot, {0: 30, 3: 7}),
    ]
    assert table.snapshot_at({0: 25}).id == first.snapshot
    assert table.snapshot_at({0: 26}).id == second.snapshot
    assert table.arrow(snapshot=first.snapshot).count_rows() == 25
    assert sorted(offsets(table.arrow({0: 12}).to_table())) == list(range(12))
    assert table.arrow({0: 12, 3: 2}).to_table().num_rows == 14
    with pytest.raises(NotFound, match="no snapshot goes up to"):
        table.snapshot_at({0: 31})


@BOTH
def test_readers_skip_files_by_the_statistics_of_their_offsets(kind: str, journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    export(journal, target, kind)
    if kind == "iceberg":
        from pyiceberg.table import StaticTable

        scan = StaticTable.from_metadata(str(target)).scan(
            row_filter="offset < 10 and timestamp > '2020-01-01T00:00:00+00:00'"
        )
        assert [each.file.record_count for each in scan.plan_files()] == [10]
    else:
        from deltalake import DeltaTable

        found = DeltaTable(str(target)).to_pyarrow_dataset().get_fragments(compute.field("offset") < 10)
        assert [each.path.endswith("-00000000000000000010.parquet") for each in found] == [True]


@BOTH
def test_retired_segments_stay_in_the_table_until_retention_is_followed(
    kind: str, journal: Path, tmp_path: Path
) -> None:
    target = tmp_path / "t"
    first = export(journal, target, kind)
    gone = path_of(journal, open_journal(journal).segments(0)[0])
    seal(
        journal, 5, 25, retention=Retention(size=path_of(journal, open_journal(journal).segments(0)[1]).stat().st_size)
    )
    assert open_journal(journal).bounds(0).start > 0
    gone.unlink()  # as a recorder does after a minute
    done = export(journal, target, kind)
    assert (done.added, done.removed) == (1, 0)
    assert done.kept > 0
    assert offsets(scanned(target)) == list(range(30))
    followed = export(journal, target, kind, follow_retention=True)
    assert (followed.removed, followed.kept, followed.offsets) == (done.kept, 0, {0: 30})
    assert offsets(scanned(target)) == list(range(open_journal(journal).bounds(0).start, 30))
    assert open_table(target).arrow(snapshot=first.snapshot).count_rows() == 25, "an older snapshot has lost files"


@BOTH
def test_merged_segments_replace_their_parts_in_a_snapshot_of_their_own(
    kind: str, journal: Path, tmp_path: Path
) -> None:
    target = tmp_path / "t"
    for first in range(25, 60, 5):
        seal(journal, 5, first)
    export(journal, target, kind)
    compact(journal, 0)
    assert len(open_journal(journal).segments(0)) == 1
    seal(journal, 5, 60)
    done = export(journal, target, kind)
    assert (done.added, done.removed) == (2, 9)
    table = open_table(target)
    assert [each.offsets for each in table.snapshots()] == [{0: 60}, {0: 60}, {0: 65}]
    assert [len(table.paths(each.id)) for each in table.snapshots()] == [9, 1, 2]
    assert [table.arrow(snapshot=each.id).count_rows() for each in table.snapshots()] == [60, 60, 65]
    assert offsets(scanned(target)) == list(range(65))


@BOTH
def test_a_column_that_a_newer_journal_adds_is_added_to_the_table(kind: str, journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    export(journal, target, kind)
    segments = open_journal(journal).segments(0)
    newer = parquet.read_table(path_of(journal, segments[0])).append_column("zone", pa.array(["eu"] * 10))
    newer = newer.set_column(newer.schema.get_field_index("offset"), "offset", pa.array(range(25, 35), pa.int64()))
    added = written(journal, newer, 25, 35)
    assert export(Grown(journal, [*segments, added]), target, kind).added == 1
    assert scanned(target)["zone"].to_pylist() == [None] * 25 + ["eu"] * 10
    assert export(Grown(journal, [*segments, added]), target, kind).snapshot is None


@BOTH
def test_a_column_of_another_type_is_refused(kind: str, journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    export(journal, target, kind)
    segments = open_journal(journal).segments(0)
    strange = parquet.read_table(path_of(journal, segments[0]))
    strange = strange.set_column(strange.schema.get_field_index("topic"), "topic", pa.array([1.5] * 10))
    added = written(journal, strange, 25, 35)
    with pytest.raises(ConfigError, match=rf"{added.file}: its columns do not fit"):
        export(Grown(journal, [*segments, added]), target, kind)
    assert offsets(scanned(target)) == list(range(25))


class Grown(Changed):
    """Journal whose manifest does not list its last segment yet."""

    def bounds(self, partition: int, manifest: Any = None) -> Any:
        from dataclasses import replace

        return replace(super().bounds(partition, manifest), sealed=self.segments(partition)[-1].end)


@pytest.mark.slow
def test_in_place_the_table_refers_to_the_journals_files(journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    export(journal, target, "iceberg", in_place=True)
    paths = open_table(target).paths()
    assert sorted(paths) == [str(path_of(journal, each)) for each in open_journal(journal).segments(0)]
    assert offsets(scanned(target)) == list(range(25))
    assert open_table(target).properties["gc.enabled"] == "false", "an engine could delete the journal's files"
    seal(
        journal, 5, 25, retention=Retention(size=path_of(journal, open_journal(journal).segments(0)[1]).stat().st_size)
    )
    start = open_journal(journal).bounds(0).start
    done = export(journal, target, "iceberg", in_place=True)
    assert done.removed > 0
    assert offsets(scanned(target)) == list(range(start, 30))


@BOTH
def test_a_target_that_is_not_this_journals_table_is_refused_and_kept(kind: str, journal: Path, tmp_path: Path) -> None:
    target, other = tmp_path / "t", tmp_path / "other"
    export(journal, target, kind)
    seal(other, 3)
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=rf"a table of the journal {journal}, and not of {other}"):
        export(other, target, kind)
    with pytest.raises(ConfigError, match="choose another folder"):
        export(journal, target, "delta" if kind == "iceberg" else "iceberg")
    after = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert {path.name for path in before if before[path] != after[path]} <= {".nngkit-lock"}
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"neither empty nor a table"):
        export(journal, full, kind)
    assert os.listdir(full) == ["notes.txt"]


@pytest.mark.slow
def test_old_snapshots_of_iceberg_go_with_the_files_that_only_they_have(journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    first = export(journal, target, "iceberg")
    seal(journal, 5, 25)
    second = export(journal, target, "iceberg")
    stray = target / "data" / "partition-00000" / "00000000000000000900-00000000000000000901.parquet"
    stray.write_bytes(b"of a killed export")
    one = merged(journal, open_journal(journal).segments(0))
    third = export(Changed(journal, [one]), target, "iceberg", keep_snapshots=2)
    table = open_table(target)
    assert [each.id for each in table.snapshots()] == [second.snapshot, third.snapshot]
    assert [table.arrow(snapshot=each.id).count_rows() for each in table.snapshots()] == [30, 30]
    with pytest.raises(NotFound, match=f"no snapshot {first.snapshot}"):
        table.paths(first.snapshot)
    assert not stray.exists()
    export(Changed(journal, [one]), target, "iceberg", keep_snapshots=1)
    assert [path.name for path in target.glob("data/*/*")] == [one.file]
    assert len(list(target.glob("metadata/snap-*.avro"))) == 1
    assert offsets(scanned(target)) == list(range(30))
    assert all(path_of(journal, each).exists() for each in open_journal(journal).segments(0))


def test_old_files_of_delta_go_by_its_own_vacuum(journal: Path, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    target = tmp_path / "t"
    export(journal, target, "delta")
    one = merged(journal, open_journal(journal).segments(0))
    export(Changed(journal, [one]), target, "delta")
    DeltaTable(str(target)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert [path.name for path in target.glob("data/*/*")] == [one.file]
    assert export(Changed(journal, [one]), target, "delta").snapshot is None
    assert offsets(scanned(target)) == list(range(25))
    with pytest.raises(ConfigError, match="vacuum"):
        export(journal, target, "delta", keep_snapshots=1)


def test_a_foreign_table_and_one_of_another_version_are_refused(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "foreign"), pa.table({"a": [1]}))
    with pytest.raises(ConfigError, match="that nngkit has not made"):
        export(journal, tmp_path / "foreign", "delta")
    with pytest.raises(ConfigError, match="that nngkit has not made"):
        open_table(tmp_path / "foreign")
    with monkeypatch.context() as patch:
        patch.setattr("nngkit.lakehouse.exporting.VERSION", "2")
        patch.setattr(formats, "VERSION", "2")
        export(journal, tmp_path / "newer", "delta")
    with pytest.raises(ConfigError, match="export version 2; this nngkit writes version 1"):
        export(journal, tmp_path / "newer", "delta")


def test_a_table_that_another_program_has_rewritten_is_refused(journal: Path, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    export(journal, tmp_path / "t", "delta")
    DeltaTable(str(tmp_path / "t")).optimize.compact()
    with pytest.raises(ConfigError, match="another program has rewritten"):
        export(journal, tmp_path / "t", "delta")


def test_one_export_at_a_time_writes_a_table(journal: Path, tmp_path: Path) -> None:
    from nngkit.lakehouse.placing import locked

    export(journal, tmp_path / "t", "delta")
    with (
        locked(tmp_path / "t"),
        pytest.raises(ConfigError, match=rf"another export writes this table \(pid {os.getpid()}"),
    ):
        export(journal, tmp_path / "t", "delta")


@BOTH
def test_the_loser_of_two_commits_decides_again(
    kind: str, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock, as on a file system that has none, the second commit finds the first and adds nothing twice."""
    from contextlib import nullcontext

    from nngkit.lakehouse import exporting, placing

    target = tmp_path / "t"
    export(journal, target, kind)
    seal(journal, 5, 25)
    monkeypatch.setattr(exporting, "locked", lambda folder: nullcontext())
    raced: list[int] = []

    def slow(*arguments: Any) -> list[str]:
        if not raced:
            raced.append(1)
            export(journal, target, kind)
        return placing.place(*arguments)

    monkeypatch.setattr(exporting, "place", slow)
    assert export(journal, target, kind).snapshot is None
    assert offsets(scanned(target)) == list(range(30))


class Stopped(BaseException):
    """Stands for a kill: nothing in the code handles it."""


@BOTH
def test_an_export_that_stops_at_any_step_is_completed_by_the_next(
    kind: str, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stops at the first call to the disk, then at the second, until one run has none left."""
    left = [0]

    def counted(call: Any) -> Any:
        def stopping(*arguments: Any, **named: Any) -> Any:
            if not left[0]:
                raise Stopped
            left[0] -= 1
            return call(*arguments, **named)

        return stopping

    for name in ("link", "replace", "fsync"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    steps = 0
    while True:
        target, left[0] = tmp_path / f"t{steps}", steps
        try:
            export(journal, target, kind)
        except Stopped:
            left[0] = 1 << 20
            export(journal, target, kind)
            assert offsets(scanned(target)) == list(range(25))
            assert len(open_table(target).snapshots()) == 1
            steps += 1
        else:
            break
    assert steps > 5


def test_a_copy_replaces_the_link_on_another_file_system_and_of_shared_storage(journal: Path, tmp_path: Path) -> None:
    uri = f"file://{journal}"
    export(Journal(uri, None), tmp_path / "t", "delta")
    table = open_table(tmp_path / "t")
    assert table.arrow().count_rows() == 25
    assert not any(
        os.path.samefile(path, journal / "partition-00000" / os.path.basename(path)) for path in table.paths()
    )
    assert json.loads(json.dumps(dict(table.properties)))["nngkit.journal"] == uri


@BOTH
def test_a_target_may_have_any_name_but_a_percent_sign_for_delta(kind: str, journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "ein Tisch [1] {ü}#?"
    export(journal, target, kind)
    assert offsets(scanned(target)) == offsets(open_table(target).arrow().to_table()) == list(range(25))
    percent = tmp_path / "a%20b"
    if kind == "delta":
        with pytest.raises(ConfigError, match="percent"):
            export(journal, percent, kind)
    else:
        export(journal, percent, kind)
        assert offsets(scanned(percent)) == list(range(25))
    with pytest.raises(ConfigError, match="not UTF-8"):
        export(journal, tmp_path / os.fsdecode(b"\xff"), kind)


@BOTH
def test_a_table_that_was_cut_off_is_damaged_until_it_is_restored(kind: str, journal: Path, tmp_path: Path) -> None:
    export(journal, tmp_path / "t", kind)
    last = max((tmp_path / "t").glob("metadata/v*.json" if kind == "iceberg" else "_delta_log/*.json"))
    whole = last.read_text()
    last.write_text(whole[:40])
    with pytest.raises(Damaged, match="restore it"):
        open_table(tmp_path / "t")
    with pytest.raises(Damaged, match="restore it"):
        export(journal, tmp_path / "t", kind)
    last.write_text(whole)
    assert export(journal, tmp_path / "t", kind).added == 0


@BOTH
def test_a_damaged_segment_is_reported_and_the_table_stays(kind: str, journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    export(journal, target, kind)
    seal(journal, 5, 25)
    last = path_of(journal, open_journal(journal).segments(0)[-1])
    whole = last.read_bytes()
    last.write_bytes(whole[:-10])
    with pytest.raises(Damaged, match=rf"{last}: damaged: it has {len(whole) - 10} bytes"):
        export(journal, target, kind)
    last.unlink()
    with pytest.raises(Damaged, match=rf"{last}.*missing; restore it"):
        export(journal, target, kind)
    assert offsets(scanned(target)) == list(range(25))
    last.write_bytes(whole)
    assert export(journal, target, kind).offsets == {0: 30}


def test_an_empty_journal_and_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not found"):
        export(tmp_path / "none", tmp_path / "t", "delta")
    assert not (tmp_path / "t").exists()
    seal(tmp_path / "j", 0)
    assert export(tmp_path / "j", tmp_path / "t", "delta").snapshot is None
    assert open_table(tmp_path / "t").snapshots() == []


@BOTH
@pytest.mark.parametrize("stamp", [1_795_713_922_049_132_954, 253_402_300_799_999_999])
def test_a_time_beyond_the_calendar_is_exported_as_it_is(kind: str, stamp: int, tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"good"), entry(b"late", timestamp=stamp)])
    partition.close()
    export(tmp_path / "j", tmp_path / "t", kind)
    [path] = open_table(tmp_path / "t").paths()
    assert parquet.read_table(path).column("timestamp").cast(pa.int64()).to_pylist() == [1_000_000, stamp]


@pytest.mark.slow
def test_in_place_a_merged_segment_is_followed_to_its_final_name(tmp_path: Path) -> None:
    for number in range(FAN):
        seal(tmp_path / "j", 3, 3 * number)
    compact(tmp_path / "j")
    storage, names = LocalStorage(tmp_path / "j"), []
    for hours in (0, 1, 2):
        manifest = open_journal(tmp_path / "j").manifest(0)
        save_manifest(storage, delete_retired(storage, manifest, time.time() + hours * (STAY + 1)))
        export(tmp_path / "j", tmp_path / "t", "iceberg", in_place=True)
        names += [path.rpartition("/")[2] for path in open_table(tmp_path / "t").paths()]
        assert offsets(scanned(tmp_path / "t")) == list(range(3 * FAN))
    whole = segment_name(0, 3 * FAN)
    assert names == [whole + PENDING, whole, whole]
    done = export(tmp_path / "j", tmp_path / "linked", "delta")
    assert (done.added, [path.rpartition("/")[2] for path in open_table(tmp_path / "linked").paths()]) == (1, [whole])
