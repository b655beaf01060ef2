"""`partition-*/*.parquet` as other programs read it: each record once at any moment, or an error."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from nngkit.journal import compact, open_journal
from nngkit.journal.files import LocalStorage
from nngkit.journal.manifest import RETIRE, save_manifest
from nngkit.journal.writing.merging import FAN, LISTED, STAY, delete_retired, merged_into
from nngkit.journal.writing.partition import Partition
from tests.journal.partitions import entry, folder, stored

PAGE = Path(__file__).parents[2] / "docs" / "journal.md"
RECIPES = re.findall(r"```python\n(.*?)```", PAGE.read_text().partition("## The files in DuckDB")[2], re.DOTALL)[:2]
PATTERN = "partition-*/*.parquet"
ERRORS = (duckdb.Error, pl.exceptions.PolarsError, OSError)


def filled(where: Path, segments: int, rows: int) -> Path:
    partition = Partition.open(where, segment_bytes=1)  # each write is a log, which is never merged
    for number in range(segments):
        stored(partition, [entry(b"v", topic=f"t{each % 2}", timestamp=number) for each in range(rows)])
    partition.close()
    return where


def by_duckdb(where: Path) -> tuple[int, int]:
    with duckdb.connect() as connection:
        question = f"""select count(*), count(distinct "offset") from '{where}/{PATTERN}'"""
        [found] = connection.sql(question).fetchall()
    return found[0], found[1]


def by_polars(where: Path) -> tuple[int, int]:
    offsets = pl.scan_parquet(f"{where}/{PATTERN}").select("offset").collect()["offset"]
    return len(offsets), offsets.n_unique()


@pytest.mark.slow
def test_the_recipes_count_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "journal", 20, 30)
    compact(tmp_path / "journal")
    assert len(open_journal(tmp_path / "journal").segments(0)) < 20
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    for recipe in RECIPES:
        exec(recipe, found)
    assert [(topic, count) for topic, count, _ in found["rows"]] == [("t0", 300), ("t1", 300)]
    assert found["frame"].select("topic", "records").rows() == [("t0", 300), ("t1", 300)]
    assert found["frame"]["latest"].dt.epoch("us").to_list() == [19, 19]


@pytest.mark.slow
@pytest.mark.parametrize("count", [by_duckdb, by_polars])
def test_a_read_beside_merges_counts_each_record_once_or_fails(count: Any, tmp_path: Path) -> None:
    where, storage = filled(tmp_path / "j", 64, 10), LocalStorage(tmp_path / "j")
    done = threading.Event()

    def merge() -> None:
        manifest = open_journal(where).manifest(0)
        try:
            for step in range(8):  # as a recorder does in the course of hours
                manifest = merged_into(storage, folder(where), manifest, manifest.segments[step : step + FAN])
                manifest = save_manifest(storage, delete_retired(storage, manifest, time.time() + 2 * STAY))
        finally:
            done.set()

    thread = threading.Thread(target=merge)
    thread.start()
    seen = []
    while not done.is_set():
        try:
            seen.append(count(where))
        except ERRORS:  # a file has gone between its name and its content, or swapping.parquet was there
            continue
    thread.join(20)
    assert set(seen) == {(640, 640)}
    assert count(where) == (640, 640)
    assert len([*where.glob(PATTERN)]) == 8


def test_parts_stay_until_a_program_that_listed_them_has_looked_at_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB leaves out what has gone since, and counted 560 of 640 records."""
    where = filled(tmp_path / "j", FAN, 10)
    steps: dict[str, float] = {}
    for name in ("link", "remove"):
        step = getattr(LocalStorage, name)

        def noted(storage: LocalStorage, *names: str, step: Any = step) -> None:
            step(storage, *names)
            steps[f"{step.__name__} {Path(names[-1]).name}"] = time.monotonic()

        monkeypatch.setattr(LocalStorage, name, noted)
    before = open_journal(where).manifest(0)
    manifest = merged_into(LocalStorage(where), folder(where), before, before.segments[:FAN])
    parts = [each.file for each in before.segments]
    delete_retired(LocalStorage(where), manifest, time.time() + 2 * STAY)
    assert len(parts) == FAN
    assert min(steps[f"remove {part}"] for part in parts) - steps["link swapping.parquet"] >= LISTED


@pytest.mark.slow
def test_what_retention_took_leaves_the_pattern(tmp_path: Path) -> None:
    journal = open_journal(filled(tmp_path / "j", 4, 10))
    before = journal.manifest(0)
    manifest = before.retained(0.0, age=None, size=2 * before.segments[-1].bytes)
    delete_retired(journal.storage, manifest, time.time() + RETIRE)
    assert by_duckdb(tmp_path / "j") == (20, 20)
