"""Tables of `export` as their readers see them: snapshots, the files of each, and rows as of an offset.

::

    table = open_table("lake/events")
    for snapshot in table.snapshots(): print(snapshot.id, snapshot.offsets)
    table.arrow({0: 5000})                     # pyarrow dataset: records of partition 0 below 5,000

Also the interface that a table format implements for `export`.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nngkit.errors import NotFound
from nngkit.lakehouse.plan import Commit

OFFSETS: Final = "nngkit.offsets"  # of a snapshot: JSON, partition -> one past its last exported offset
PLACE_KEY: Final = "nngkit.files"  # property of a table


class Conflict(Exception):
    """Another writer has committed first."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit. `offsets`: by partition, one past the last offset. `time`: seconds since 1970."""

    id: int
    time: float
    offsets: dict[int, int]


class Table(ABC):
    """Table written by `export`, as of the time at which it was opened."""

    format: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    @abstractmethod
    def exists(self) -> bool:
        """True if the folder has a table."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """Properties of the table."""

    @abstractmethod
    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots that `export` has committed, oldest first."""

    def reached(self) -> dict[int, int]:
        """Return the offsets of the last of these snapshots; none if there is none."""
        snapshots = self.snapshots()
        return snapshots[-1].offsets if snapshots else {}

    @abstractmethod
    def entries(self, snapshot: int | None = None) -> list[tuple[str, int]]:
        """Return (path, size) of the files of a snapshot; default: of the last one."""

    @abstractmethod
    def create(self, properties: Mapping[str, str]) -> None:
        """Create the table, with the journal's columns. Raises Conflict, OSError."""

    @abstractmethod
    def commit(self, paths: Sequence[str], commit: Commit) -> int:
        """Commit one snapshot, whole or not at all; return its id. Adds missing columns. Raises Conflict, OSError.

        `paths`: of the files to add, relative to the table's folder, or full ones.
        """

    @abstractmethod
    def settle(self) -> None:
        """Complete what a killed export has left behind a commit. Raises OSError."""

    def __repr__(self) -> str:
        return f"<{self.format} table {self.folder}>"

    def snapshot_at(self, offsets: Mapping[int, int]) -> Snapshot:
        """Return the oldest snapshot with all records below `offsets`, by partition. Raises NotFound."""
        for each in self.snapshots():
            if all(each.offsets.get(partition, 0) >= end for partition, end in offsets.items()):
                return each
        raise NotFound(f"{self.folder}: no snapshot goes up to {dict(offsets)}; export the journal, then open it again")

    def paths(self, snapshot: int | None = None) -> list[str]:
        """Return the full paths of the Parquet files of a snapshot; default: of the last one. Raises NotFound."""
        return [path if "://" in path else os.path.join(self.folder, path) for path, _ in self.entries(snapshot)]

    def arrow(self, offsets: Mapping[int, int] | None = None, *, snapshot: int | None = None) -> Any:
        """Return a pyarrow dataset of a snapshot's rows; default: of the last one.

        `offsets`: only records below these offsets, by partition, of the oldest snapshot that has them all. Records
        that retention removed from that snapshot are missing. Raises NotFound.
        """
        from pyarrow import dataset

        from nngkit.journal.schema import SCHEMA

        if offsets is not None and snapshot is None:
            snapshot = self.snapshot_at(offsets).id
        found = dataset.dataset(self.paths(snapshot), schema=SCHEMA, format="parquet")
        if offsets is None:
            return found
        field = dataset.field
        wanted = [(field("partition") == partition) & (field("offset") < end) for partition, end in offsets.items()]
        condition = wanted[0] if wanted else dataset.scalar(False)
        for each in wanted[1:]:
            condition = condition | each
        return found.filter(condition)


def encoded(offsets: Mapping[int, int]) -> str:
    """Return offsets by partition as a snapshot's JSON."""
    return json.dumps({str(partition): end for partition, end in offsets.items()})


def decoded(text: str) -> dict[int, int]:
    """Return offsets by partition from a snapshot's JSON."""
    return {int(partition): int(end) for partition, end in json.loads(text).items()}
