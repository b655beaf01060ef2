"""Iceberg: a table in one folder, without a catalog service, as Iceberg's HadoopCatalog keeps it.

::

    TABLE/metadata/v1.metadata.json  v2.metadata.json ...    the table after each commit
    TABLE/metadata/version-hint.text                         the last number; a hint, as there may be later ones
    TABLE/metadata/*.avro                                    lists of files
    TABLE/data/partition-00000/*.parquet

A commit is the hard link that gives the next number to a complete metadata file: it fails if another writer was first.
What a killed export wrote before that belongs to no snapshot. pyiceberg writes the lists and metadata; this file has
the part of a catalog. Spark (a catalog of type `hadoop`), DuckDB and pyiceberg read such a folder.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import ValidationError, ValidationException
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse
from pyiceberg.table import Table as Loaded
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from nngkit.errors import ConfigError, Damaged, NotFound
from nngkit.file_modes import make_file, make_folder, take_from_others
from nngkit.journal.files import SCRATCH, sync_file, sync_folder
from nngkit.lakehouse.placing import DATA
from nngkit.lakehouse.plan import Commit
from nngkit.lakehouse.table import OFFSETS, PLACE_KEY, Conflict, Snapshot, Table, decoded, encoded

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

HINT: Final = "version-hint.text"
NAME_MAPPING: Final = "schema.name-mapping.default"
PROPERTIES: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",  # otherwise each export adds one list for ever
    "write.metadata.delete-after-commit.enabled": "true",  # each has all snapshots: keeping all grows quadratically
    "write.metadata.previous-versions-max": "20",
    # Segments have statistics of these columns, by which readers skip files.
    "write.metadata.metrics.default": "none",
    **{f"write.metadata.metrics.column.{name}": "full" for name in ("partition", "offset", "timestamp")},
    "write.metadata.metrics.column.topic": "truncate(64)",
}
UNTIMED: Final = {"write.metadata.metrics.column.timestamp": "none"}


class IcebergTable(Table):
    """Iceberg table in a local folder."""

    format = "iceberg"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._catalog = _Folder(folder)
        self._loaded = self._catalog.load() if self._catalog.version() else None

    @property
    def exists(self) -> bool:
        """True if the folder has a table."""
        return self._loaded is not None

    @property
    def _table(self) -> Loaded:
        if self._loaded is None:
            raise ConfigError(
                "target", f"{self.folder}: no Iceberg table (no metadata/v*.metadata.json)", str(self.folder)
            )
        return self._loaded

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of the table."""
        return self._table.properties

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots that `export` has committed, oldest first."""
        return [
            Snapshot(each.snapshot_id, each.timestamp_ms / 1000, decoded(each.summary.additional_properties[OFFSETS]))
            for each in self._table.snapshots()
            if each.summary is not None and OFFSETS in each.summary.additional_properties
        ]

    def entries(self, snapshot: int | None = None) -> list[tuple[str, int]]:
        """Return (path, size) of the files of a snapshot; default: of the last one."""
        return [(each.file_path, each.file_size_in_bytes) for each in self._data_files(snapshot)]

    def _data_files(self, snapshot: int | None = None) -> list[DataFile]:
        found: IcebergSnapshot | None
        if snapshot is None:
            found = self._table.current_snapshot()
            if found is None:
                return []
        elif (found := self._table.snapshot_by_id(snapshot)) is None:
            raise NotFound(f"{self.folder}: no snapshot {snapshot}")
        return [
            entry.data_file
            for manifest in found.manifests(self._table.io)
            for entry in manifest.fetch_manifest_entry(self._table.io)
        ]

    def create(self, properties: Mapping[str, str]) -> None:
        """Create the table, with the journal's columns. Raises Conflict, OSError."""
        self._loaded = self._catalog.create(properties)

    def commit(self, paths: Sequence[str], commit: Commit) -> int:
        """Commit one snapshot, whole or not at all; return its id. Adds missing columns. Raises Conflict, OSError."""
        paths = [path if "://" in path else os.path.join(self.folder, path) for path in paths]
        transaction = self._table.transaction()
        self._evolve(transaction, paths)
        update = transaction.update_snapshot(snapshot_properties={OFFSETS: encoded(commit.offsets)})
        with update.overwrite() if commit.remove else update.merge_append() as producer:
            for file in _described(self._table.io, transaction.table_metadata, paths):
                producer.append_data_file(file)
            if commit.remove:
                gone = {each.path for each in commit.remove}
                for file in self._data_files():
                    if file.file_path in gone:
                        producer.delete_data_file(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of metadata that it could not delete
            self._loaded = transaction.commit_transaction()
        return producer.snapshot_id

    def settle(self) -> None:
        """Let the hint name the last version: a kill may come between a commit and that. Raises OSError."""
        self._catalog.point(self._catalog.version())

    def forget(self, keep: int) -> None:
        """Remove all but the last `keep` snapshots, and files that then belong to none. Raises Conflict, OSError.

        A kill in between leaves files of no snapshot, which the next call removes.
        """
        snapshots = sorted(self._table.snapshots(), key=lambda each: each.sequence_number or 0)
        old = [each.snapshot_id for each in snapshots[:-keep]]
        if not old:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of metadata that it could not delete
            self._table.maintenance.expire_snapshots().by_ids(old).commit()
        self._loaded = self._catalog.load()
        used: set[str] = set()
        manifests: dict[str, ManifestFile] = {}
        for each in self._table.snapshots():
            used.add(each.manifest_list)
            manifests |= {manifest.manifest_path: manifest for manifest in each.manifests(self._table.io)}
        for path, manifest in manifests.items():
            used.add(path)
            used |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(self._table.io)}
        for there in (*self.folder.glob("metadata/*.avro"), *self.folder.glob(f"{DATA}/partition-*/*.parquet")):
            if str(there) not in used:
                there.unlink()

    def _evolve(self, transaction: Any, paths: Sequence[str]) -> None:
        """Add the columns that the new files have and the table has not. Raises ConfigError."""
        from pyarrow import parquet

        known = {field.name for field in self._table.schema().fields}
        for path in paths:
            with self._table.io.new_input(path).open() as stream:
                schema = parquet.read_schema(stream)
            if set(schema.names) <= known:
                continue
            try:
                with transaction.update_schema() as update:
                    update.union_by_name(schema)
            except (ValueError, ValidationException) as error:
                raise _unlike(path, error) from error
            known |= set(schema.names)


def _described(io: Any, metadata: TableMetadata, paths: Sequence[str]) -> list[DataFile]:
    found: list[DataFile] = []
    for path in paths:
        try:
            try:
                found += parquet_files_to_data_files(io, metadata, iter([path]))
            except OverflowError:  # a time beyond the year 9999: pyiceberg reads statistics as datetimes
                untimed = metadata.model_copy(update={"properties": {**metadata.properties, **UNTIMED}})
                found += parquet_files_to_data_files(io, untimed, iter([path]))
        except ValueError as error:
            raise _unlike(path, error) from error
    return found


def _unlike(path: str, error: Exception) -> ConfigError:
    return ConfigError(
        "target",
        f"{path}: its columns do not fit those of the table: {str(error).splitlines()[0]}; export to a new folder",
        path,
    )


class _Folder(NoopCatalog):
    """The part of a catalog: which metadata file is the table's, and replacing it."""

    def __init__(self, folder: Path) -> None:
        super().__init__("nngkit")
        self._folder = folder
        self._metadata = folder / "metadata"

    def _path(self, version: int) -> Path:
        return self._metadata / f"v{version}.metadata.json"

    def version(self) -> int:
        """Return the last version; 0 if there is none."""
        try:
            names = os.listdir(self._metadata)
        except FileNotFoundError:
            return 0
        stems = (name.removeprefix("v").removesuffix(".metadata.json") for name in names if name.startswith("v"))
        return max((int(stem) for stem in stems if stem.isdigit()), default=0)

    def load(self) -> Loaded:
        """Load the last version. Raises Damaged."""
        path = self._path(self.version())
        io = load_file_io(location=str(path))
        try:
            metadata = FromInputFile.table_metadata(io.new_input(str(path)))
        except (ValueError, ValidationError) as error:
            why = f"not Iceberg metadata: {str(error).splitlines()[0]}"
            raise Damaged(str(path), why, advice="restore it from a copy, or export to a new folder") from error
        return Loaded(("nngkit", self._folder.name), metadata, str(path), io, self)

    def create(self, properties: Mapping[str, str]) -> Loaded:
        """Create a table without rows. Raises Conflict, OSError."""
        from nngkit.journal.schema import SCHEMA

        given = PROPERTIES | dict(properties)
        if properties[PLACE_KEY] == "in place":
            given["gc.enabled"] = "false"  # the files are the journal's: no engine may delete them
        schema = self._convert_schema_if_needed(SCHEMA)
        metadata = new_table_metadata(
            schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(self._folder), given
        )
        # Segments have no field ids, so readers find columns by name.
        mapping = metadata.schema().name_mapping.model_dump_json()
        metadata = metadata.model_copy(update={"properties": {**metadata.properties, NAME_MAPPING: mapping}})
        make_folder(self._metadata)
        self._publish(1, metadata)
        sync_folder(self._folder)
        return self.load()

    def commit_table(
        self, table: Loaded, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next version of the table. Raises Conflict, and not pyiceberg's error, which would try it again."""
        version = int(Path(table.metadata_location).name.removeprefix("v").partition(".")[0])
        if version != self.version():
            raise Conflict(f"version {version + 1} is there")
        for each in requirements:
            each.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        self._sync_lists(metadata, table)
        self._publish(version + 1, metadata)
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": str(self._path(version + 1))}
        )

    def _sync_lists(self, metadata: TableMetadata, table: Loaded) -> None:
        snapshot = metadata.current_snapshot()
        if snapshot is None:
            return
        take_from_others(snapshot.manifest_list)
        sync_file(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                take_from_others(manifest.manifest_path)
                sync_file(manifest.manifest_path)

    def _publish(self, version: int, metadata: TableMetadata) -> None:
        path = self._path(version)
        scratch = path.with_name(path.name + SCRATCH)
        make_file(scratch)
        scratch.write_text(metadata.model_dump_json())
        sync_file(scratch)
        try:
            os.link(scratch, path)  # unlike a rename, it fails if there is one
        except FileExistsError as error:
            raise Conflict(f"version {version} is there") from error
        finally:
            scratch.unlink()
        sync_folder(self._metadata)
        self.point(version)

    def point(self, version: int) -> None:
        """Make the hint name `version`."""
        hint = self._metadata / HINT
        if hint.exists() and hint.read_text() == str(version):
            return
        scratch = hint.with_name(HINT + SCRATCH)
        make_file(scratch)
        scratch.write_text(str(version))
        scratch.replace(hint)
