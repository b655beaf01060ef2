"""Choice of a table format, by name or by what a folder holds; opening of tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from nngkit.errors import ConfigError
from nngkit.file_modes import checked_path
from nngkit.lakehouse.table import Table

VERSION: Final = "1"  # of what `export` writes beside the rows: names of files, properties
FORMAT_KEY: Final = "nngkit.version"  # properties of a table
JOURNAL_KEY: Final = "nngkit.journal"
FORMATS: Final = ("iceberg", "delta")
MARKS: Final = {"iceberg": "metadata", "delta": "_delta_log"}


def kind_of(folder: Path) -> str | None:
    """Return the format of the table in `folder`; None if there is none."""
    return next((kind for kind, mark in MARKS.items() if (folder / mark).is_dir()), None)


def backend(folder: Path, kind: str) -> Table:
    """Return the table of format `kind` in `folder`, which need not exist. Raises ConfigError without its library."""
    try:
        if kind == "iceberg":
            from nngkit.lakehouse.iceberg import IcebergTable

            return IcebergTable(folder)
        from nngkit.lakehouse.delta import DeltaLakeTable

        return DeltaLakeTable(folder)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("nngkit"):
            raise
        raise ConfigError(kind, f"{error.name} is not installed: pip install 'nngkit[{kind}]'", kind) from error


def check(table: Table) -> None:
    """Check that the table was written by `export`, in this version. Raises ConfigError."""
    version = table.properties.get(FORMAT_KEY)
    if version is None:
        raise ConfigError(
            "target",
            f"{table.folder}: an {table.format} table that nngkit has not made; choose a new folder",
            str(table.folder),
        )
    if version != VERSION:
        raise ConfigError(
            "target",
            f"{table.folder}: export version {version}; this nngkit writes version {VERSION}; use the nngkit that "
            "wrote it, or a newer one, or export to a new folder",
            version,
        )


def open_table(target: str | os.PathLike[str]) -> Table:
    """Open a table that `export` has written. Raises ConfigError if there is none, or its library is missing."""
    folder = checked_path("target", target).absolute()
    kind = kind_of(folder)
    if kind is None:
        raise ConfigError("target", f"{folder}: neither an Iceberg nor a Delta table", str(folder))
    table = backend(folder, kind)
    check(table)
    return table
