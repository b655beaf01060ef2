"""A recorder killed while it creates a journal leaves nothing that the next one reports as damage."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nngkit.errors import Damaged
from nngkit.journal import read
from nngkit.journal.writing.partition import Partition
from tests.journal.partitions import entry, folder, stored

STEPS: tuple[tuple[Any, str], ...] = (
    (os, "fsync"),
    (os, "open"),
    (os, "pwrite"),
    (Path, "open"),
    (Path, "replace"),
)


def test_recorder_killed_at_any_step_of_its_first_start_needs_no_salvage(tmp_path: Path) -> None:
    where = tmp_path / "j"
    lefts: list[Path] = []
    copying = False

    def left() -> None:
        nonlocal copying
        if not copying and where.exists():
            copying = True
            lefts.append(Path(shutil.copytree(where, tmp_path / f"left {len(lefts)}")))
            copying = False

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            left()
            result = call(*arguments, **options)
            left()
            return result

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, watched(getattr(owner, name)))
        partition = Partition.open(where)
    partition.close()
    assert len(lefts) > 20
    heads = {(folder(each) / "head").exists() for each in lefts}
    assert heads == {True, False}
    for each in lefts:
        partition = Partition.open(each)
        assert stored(partition, [entry(b"first")]) == (0, 1)
        partition.close()
        assert [record.value for record in read(each)] == [b"first"]


def test_empty_head_in_an_empty_partition_is_not_damage(tmp_path: Path) -> None:
    """A full disk could leave one at the first start, before heads were written atomically."""
    where = tmp_path / "j"
    Partition.open(where).close()
    (folder(where) / "manifest.json").unlink()
    (folder(where) / "head").write_bytes(b"")
    Partition.open(where).close()


def test_unreadable_head_of_a_partition_with_records_is_reported_until_salvaged(tmp_path: Path) -> None:
    where = tmp_path / "j"
    partition = Partition.open(where)
    stored(partition, [entry(b"before")])
    partition.close()
    (folder(where) / "head").write_bytes(b"?")
    with pytest.raises(Damaged, match="missing or unreadable"):
        Partition.open(where)
    Partition.open(where, salvage=True).close()
    partition = Partition.open(where)
    first, _ = stored(partition, [entry(b"after")])
    partition.close()
    assert first > 1
    assert [record.value for record in read(where)] == [b"before", b"after"]
