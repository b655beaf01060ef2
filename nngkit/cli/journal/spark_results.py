"""Results of Spark on standard output or in a file: a table, JSON lines, CSV, Parquet."""

from __future__ import annotations

import argparse
import csv
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from nngkit.cli.journal.spark_table import plain, table
from nngkit.cli.streams.output import json_line, out, wants_colour
from nngkit.cli.streams.stderr import say
from nngkit.errors import ConfigError

NAME: Final = "nngkit spark"
FORMATS: Final = ("table", "json", "csv", "parquet")
ENDINGS: Final = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


def format_of(arguments: argparse.Namespace) -> str:
    """Return the format: the one given, else that of the ending of --output. Raises ConfigError for what is no way."""
    given: str | None = arguments.format
    if arguments.json:
        if given not in (None, "json"):
            raise ConfigError("--json", f"conflicts with --format {given}")
        given = "json"
    if not arguments.output:
        if given == "parquet":
            raise ConfigError("--format", "parquet needs --output: it is written as a folder", given)
        return given or "table"
    if given == "table":
        raise ConfigError("--format", "table is for the terminal; --output takes json, csv or parquet", given)
    form = given or ENDINGS.get(Path(arguments.output).suffix.lower(), "parquet")
    if form != "parquet":
        if "://" in arguments.output:
            raise ConfigError("--output", f"{form} is written to a local file; use parquet for shared storage", form)
        if Path(arguments.output).exists():
            raise ConfigError("--output", f"{arguments.output} exists, and is not overwritten", arguments.output)
    return form


def print_rows(head: Sequence[str], rows: Sequence[Sequence[Any]], form: str, more: int | None) -> None:
    """Print rows, and how many more there are: None means that there are, uncounted."""
    if form == "table":
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        out(table(head, rows, width, wants_colour(sys.stdout)))
    else:
        buffer = io.StringIO()
        _writer(form, head, buffer)(rows)
        sys.stdout.write(buffer.getvalue())
    if more != 0:
        said = "more rows" if more is None else f"{more} more row{'' if more == 1 else 's'}"
        say(NAME, f"{said}: --rows prints more, --output writes all")


def write_file(head: Sequence[str], rows: Iterable[Sequence[Any]], form: str, path: str) -> int:
    """Write all rows to a new file, which appears when it is complete. Return their number."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    written = 0
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            write = _writer(form, head, file)
            for row in rows:
                write([row])
                written += 1
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return written


def _writer(form: str, head: Sequence[str], file: Any) -> Callable[[Sequence[Sequence[Any]]], None]:
    if form == "json":
        return lambda rows: file.writelines(
            json_line({key: plain(value) for key, value in zip(head, row, strict=True)}) + "\n" for row in rows
        )
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(head)
    return lambda rows: lines.writerows([[_text(value) for value in row] for row in rows])


def _text(value: Any) -> Any:
    """Return a value of a CSV: nothing for null, JSON for what has parts."""
    simple = plain(value)
    if isinstance(simple, dict):
        return json_line(simple)
    if isinstance(simple, list):
        return json_line({"": simple})[len('{"": ') : -1]
    return "true" if simple is True else "false" if simple is False else simple
