"""Delta Lake: a table in one folder, written through the `deltalake` package.

::

    TABLE/_delta_log/00000000000000000000.json ...    commits, and checkpoints of them
    TABLE/data/partition-00000/*.parquet              links to segments, or copies

Readers of Delta look for files below the table's folder, so segments cannot stay in the journal's. A commit names files
that are there already (add actions), and the statistics by which readers skip files come from the Parquet footers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet

from nngkit.errors import ConfigError, Damaged, NotFound
from nngkit.journal.files import sync_file, sync_folder
from nngkit.journal.record import EARLIEST, LATEST
from nngkit.lakehouse.plan import Commit
from nngkit.lakehouse.table import OFFSETS, Conflict, Snapshot, Table, decoded, encoded

RECENT: Final = 10  # commits: the last is of another program only if that has maintained the table
APPLICATION: Final = "nngkit"  # its version in the log is the number of the export: two at once conflict


class DeltaLakeTable(Table):
    """Delta table in a local folder."""

    format = "delta"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        try:
            self._loaded = DeltaTable(str(folder)) if folder.is_dir() else None
        except TableNotFoundError:
            self._loaded = None
        except DeltaError as error:
            why = f"not a Delta log: {str(error).splitlines()[0]}"
            raise Damaged(f"{folder}/_delta_log", why, advice="restore it, or export to a new folder") from error

    @property
    def exists(self) -> bool:
        """True if the folder has a table."""
        return self._loaded is not None

    @property
    def _table(self) -> DeltaTable:
        if self._loaded is None:
            raise ConfigError("target", f"{self.folder}: no Delta table (no commit in _delta_log)", str(self.folder))
        return self._loaded

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of the table."""
        return {name: value for name, value in self._table.metadata().configuration.items() if value is not None}

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots that `export` has committed, oldest first."""
        return [
            Snapshot(int(each["version"]), each["timestamp"] / 1000, decoded(each[OFFSETS]))
            for each in reversed(self._table.history())
            if OFFSETS in each
        ]

    def reached(self) -> dict[int, int]:
        """Return the offsets of the last of these snapshots; none if there is none."""
        for each in self._table.history(RECENT):  # one file is read for each commit
            if OFFSETS in each:
                return decoded(each[OFFSETS])
        return super().reached()

    def entries(self, snapshot: int | None = None) -> list[tuple[str, int]]:
        """Return (path, size) of the files of a snapshot; default: of the last one."""
        table = self._table
        if snapshot is not None:
            try:
                table = DeltaTable(str(self.folder), version=snapshot)
            except DeltaError as error:
                raise NotFound(f"{self.folder}: no snapshot {snapshot}") from error
        rows = table.get_add_actions(flatten=True)
        return list(zip(rows["path"].to_pylist(), rows["size_bytes"].to_pylist(), strict=True))

    def create(self, properties: Mapping[str, str]) -> None:
        """Create the table, with the journal's columns. Raises Conflict, OSError."""
        from nngkit.journal.schema import SCHEMA

        # Deltalake refuses keys that do not start with "delta." unless they are in the commit that creates the table.
        self._loaded = DeltaTable.create(
            str(self.folder),
            Schema.from_arrow(SCHEMA),
            mode="error",
            configuration=dict(properties),
            raise_if_key_not_exists=False,
        )
        self._sync(0)

    def commit(self, paths: Sequence[str], commit: Commit) -> int:
        """Commit one snapshot, whole or not at all; return its id. Adds missing columns. Raises Conflict, OSError."""
        footers = {name: parquet.read_metadata(self.folder / name) for name in paths}
        self._evolve(footers)
        now = int(time.time() * 1000)
        change = commit.changes_rows
        actions: list[Any] = [
            AddAction(name, file.size, {}, now, change, _statistics(footers[name]))
            for name, file in zip(paths, commit.add, strict=True)
        ]
        actions += [RemoveAction(each.path, change, now, each.size, {}) for each in commit.remove]
        number = self._table.transaction_version(APPLICATION)
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                commit_properties=CommitProperties(
                    {OFFSETS: encoded(commit.offsets)},
                    max_commit_retries=0,  # a retry would append again what another export has appended
                    app_transactions=[Transaction(APPLICATION, 1 if number is None else number + 1)],
                ),
            )
        except CommitFailedError as error:
            raise Conflict(str(error).splitlines()[0]) from error
        self._loaded = DeltaTable(str(self.folder))
        version = self._loaded.version()
        self._sync(version)
        return version

    def settle(self) -> None:
        """Nothing: a commit is one file."""

    def _sync(self, version: int) -> None:
        log = self.folder / "_delta_log"
        sync_file(log / f"{version:020}.json")
        sync_folder(log)

    def _evolve(self, footers: Mapping[str, Any]) -> None:
        """Add the columns that the new files have and the table has not. Raises ConfigError."""
        known = {field.name: field for field in self._table.schema().fields}
        for name, footer in footers.items():
            columns = Schema.from_arrow(footer.schema.to_arrow_schema().remove_metadata()).fields
            for column in columns:
                if column.name in known and column.type != known[column.name].type:
                    raise ConfigError(
                        "target",
                        f"{self.folder / name}: its columns do not fit those of the table: {column.name} is "
                        f"{column.type}, and the table's {known[column.name].type}; export to a new folder",
                        name,
                    )
            missing = [column for column in columns if column.name not in known]
            if missing:
                self._table.alter.add_columns(missing)
                self._loaded = DeltaTable(str(self.folder))
                known |= {column.name: column for column in missing}


def _statistics(footer: Any) -> str:
    """Return the statistics of a Parquet footer as those of Delta, JSON."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            column = footer.row_group(group).column(number)
            if column.path_in_schema in ("partition", "offset", "timestamp") and column.is_stats_set:
                # Raw: 32 and 64-bit integers, and microseconds. As Python objects, times would load pandas.
                least, most = column.statistics.min_raw, column.statistics.max_raw
                low[column.path_in_schema] = min(low.get(column.path_in_schema, least), least)
                high[column.path_in_schema] = max(high.get(column.path_in_schema, most), most)
    if "timestamp" in low:
        least, most = low.pop("timestamp"), high.pop("timestamp") + 999  # rounded up
        # Other times have no ISO 8601: without statistics, no reader skips the file.
        if least >= EARLIEST and most <= LATEST:
            low["timestamp"], high["timestamp"] = _millis(least), _millis(most)
    return json.dumps({"numRecords": footer.num_rows, "minValues": low, "maxValues": high})


def _millis(micros: int) -> str:
    """Return a time in microseconds since 1970 as ISO 8601, rounded down to milliseconds: Delta's statistics."""
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=micros // 1000)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
