"""Whatever happens to a journal's folder, no sealed segment is deleted and no offset is assigned twice.

A journal is written and its folder copied before every step of sealing: each copy is what a killed recorder leaves.
Then files are lost, duplicated, renamed, truncated or replaced by an older state, and a recorder is started in one of
three ways.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nngkit.errors import ConfigError, Damaged
from nngkit.journal import open_journal, read
from nngkit.journal.writing import partition as sealing
from nngkit.journal.writing.partition import Partition
from nngkit.journal.writing.rebuild import rebuild_manifest
from nngkit.testing import eventually
from tests.journal.partitions import entry, folder, stored

SEGMENTS = 5
ROWS = 30
WAYS = ("plain", "salvage", "rebuild")
Files = dict[str, bytes]


@dataclass(frozen=True)
class Left:
    """Files of a partition at one moment, and the offset behind the last acknowledged record."""

    files: Files
    end: int


@dataclass(frozen=True)
class Made:
    """The recorded journal, and its folder before each step of sealing."""

    journal: bytes
    lefts: list[Left]
    manifests: list[bytes]
    held: dict[bytes, range]


def value_at(offset: int) -> bytes:
    return b"record %d " % offset * (1 + offset % 5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    where = tmp_path_factory.mktemp("made") / "j"
    lefts: list[Left] = []
    end = 0

    def files() -> Files:
        found = {}
        for path in folder(where).iterdir():
            if path.name != "lock" and path.is_file():
                found[path.name] = path.read_bytes()
        return found

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread().name.startswith("journal seal"):
                lefts.append(Left(files(), end))
            return call(*arguments, **options)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for name in ("sync_file", "write_segment", "save_manifest", "sync_folder"):
            patch.setattr(sealing, name, before(getattr(sealing, name)))
        for name in ("replace", "unlink", "rename"):
            patch.setattr(Path, name, before(getattr(Path, name)))
        partition = Partition.open(where)

        def sealed(count: int) -> bool:
            return partition.stats.segments == count and not partition._logs

        for number in range(SEGMENTS):
            entries = [entry(value_at(offset), timestamp=offset) for offset in range(end, end + ROWS)]
            stored(partition, entries)
            end += ROWS
            partition.log.rotate()
            eventually(partial(sealed, number + 1))
        partition.close()
    lefts.append(Left(files(), end))
    held = {}
    for segment in open_journal(where).segments(0):
        held[(folder(where) / segment.file).read_bytes()] = range(segment.first, segment.end)
    manifests = list(dict.fromkeys(left.files["manifest.json"] for left in lefts))
    assert len(held) == SEGMENTS
    assert len(lefts) > 8 * SEGMENTS
    return Made((where / "journal.json").read_bytes(), lefts, manifests, held)


def manipulated(made: Made, chance: random.Random) -> tuple[Left, list[str]]:
    """Return one of the folders after one to three manipulations, and their names."""
    left = chance.choice(made.lefts)
    files = dict(left.files)
    segments = sorted(name for name in files if name.endswith(".parquet"))
    logs = [name for name in files if name.endswith(".log")]
    kinds = ["lost manifest", "older manifest", "cut manifest", "other version", "lost head"]
    kinds += ["lost segment", "doubled segment", "renamed segment"] * bool(segments) + ["cut log"] * bool(logs)
    chosen = chance.sample(kinds, chance.randint(1, 3))
    for kind in chosen:
        segment = chance.choice(segments) if segments else ""
        match kind:
            case "lost manifest":
                files.pop("manifest.json", None)
            case "older manifest":
                files["manifest.json"] = chance.choice(made.manifests)
                if left.end < SEGMENTS * ROWS and json.loads(files["manifest.json"])["end"] > left.end:
                    files["manifest.json"] = left.files["manifest.json"]  # a newer manifest cannot occur
            case "cut manifest":
                files["manifest.json"] = (files.get("manifest.json") or b"{}")[: chance.randrange(40)]
            case "other version":
                data = left.files["manifest.json"]
                files["manifest.json"] = json.dumps({**json.loads(data), "version": 9}).encode()
            case "lost head":
                files.pop("head", None)
            case "lost segment":
                files.pop(segment, None)
            case "doubled segment":
                if segment in files:
                    first = chance.randrange(400)
                    name = chance.choice((f"copy of {segment}", f"{first:020}-{first + ROWS:020}.parquet"))
                    files.setdefault(name, files[segment])
            case "renamed segment":
                if segment in files:
                    first = chance.randrange(400)
                    name = chance.choice((f"old-{segment}", f"{first:020}-{first + 9:020}.parquet", f"{segment}.tmp"))
                    if name not in files:
                        files[name] = files.pop(segment)
            case "cut log":
                name = chance.choice(logs)
                files[name] = files[name][: chance.randrange(len(files[name]))]
    return Left(files, left.end), chosen


def contents(where: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder(where).iterdir() if path.name != "lock"}


def lay_out(made: Made, files: Files, where: Path) -> None:
    """Make the folder of a journal with these files in its partition."""
    folder(where).mkdir(parents=True)
    (where / "journal.json").write_bytes(made.journal)
    for name, data in files.items():
        (folder(where) / name).write_bytes(data)


def survives(made: Made, where: Path, seed: int, way: str) -> None:
    left, kinds = manipulated(made, random.Random(seed))
    shutil.rmtree(where, ignore_errors=True)
    lay_out(made, left.files, where)
    case = f"seed {seed}, {way}: {', '.join(kinds)}"
    intact = [data for data in left.files.values() if data in made.held]
    partition: Partition | None = None
    if way != "rebuild":
        try:
            partition = Partition.open(where, salvage=way == "salvage")
        except (Damaged, ConfigError):
            assert contents(where) == left.files, f"{case}: rejected, but changed"
            assert way == "plain" or {"cut manifest", "other version"} & set(kinds), case
    if partition is None:
        rebuild_manifest(where)
        partition = Partition.open(where, salvage=True)
    try:
        after = stored(partition, [entry(b"after")] * 5)[0]
    finally:
        partition.close()
    assert after >= left.end or not left.files, f"{case}: offset {after} is assigned twice"
    now = list(contents(where).values())
    assert all(now.count(data) >= intact.count(data) for data in intact), f"{case}: a segment is deleted"
    got: dict[int, bytes] = {}
    for record in read(where, missing="skip", skipped=lambda _: None):
        assert record.offset not in got, f"{case}: offset {record.offset} is read twice"
        got[record.offset] = record.value
    for offset in itertools.chain.from_iterable(made.held[data] for data in intact):
        assert got.get(offset) == value_at(offset), f"{case}: offset {offset} cannot be read"


@pytest.mark.slow
def test_no_manipulation_of_the_folder_deletes_a_segment_or_reuses_an_offset(made: Made, tmp_path: Path) -> None:
    for seed in range(20):
        for way in WAYS:
            survives(made, tmp_path / "j", seed, way)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_many_manipulations_delete_no_segment_and_reuse_no_offset(made: Made, tmp_path: Path, way: str) -> None:
    for seed in range(int(os.environ.get("NNGKIT_DAMAGES", "250"))):
        survives(made, tmp_path / "j", seed, way)


def test_recorder_without_its_manifest_keeps_all_records_and_logs_it(
    made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = tmp_path / "j"
    lay_out(made, {name: data for name, data in made.lefts[-1].files.items() if name != "manifest.json"}, where)
    with pytest.raises(Damaged, match=r"manifest\.json.*missing.*rebuild-manifest"):
        list(read(where))
    with caplog.at_level(logging.WARNING):
        Partition.open(where).close()
    assert [record.value for record in read(where)] == [value_at(offset) for offset in range(SEGMENTS * ROWS)]
    assert caplog.text.count("adopted as") == SEGMENTS


def test_damaged_unlisted_segment_is_renamed_and_kept(
    made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = tmp_path / "j"
    lay_out(made, made.lefts[-1].files, where)
    damaged = min(made.held)[:-9]
    (folder(where) / f"{900:020}-{930:020}.parquet").write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        Partition.open(where).close()
    assert contents(where)[f"{900:020}-{930:020}.parquet.orphan"] == damaged
    assert "renamed to" in caplog.text
    assert [record.value for record in read(where)] == [value_at(offset) for offset in range(SEGMENTS * ROWS)]
