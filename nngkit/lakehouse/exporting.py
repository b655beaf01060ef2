"""Export a journal's sealed segments to a table: read the table's state, decide, place the files, commit.

::

    done = export("journal", "lake/events", "iceberg")
    done.snapshot, done.added, done.offsets

The order makes it exactly once: files are complete before the commit that names them, and the next export begins with
what the table says. There is no other state.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nngkit.errors import ConfigError, Damaged
from nngkit.file_modes import checked_path, make_folder
from nngkit.journal.files import folder_of
from nngkit.lakehouse.formats import FORMAT_KEY, FORMATS, JOURNAL_KEY, VERSION, backend, check, kind_of
from nngkit.lakehouse.placing import LOCK, locked, parse, place
from nngkit.lakehouse.plan import File, Listed, decide
from nngkit.lakehouse.table import PLACE_KEY, Conflict, Table

if TYPE_CHECKING:
    from nngkit.journal import Journal

log_ = logging.getLogger("nngkit.lakehouse")

ATTEMPTS: Final = 10  # to find segments that are merged or retired meanwhile, which takes the recorder seconds
ADVICE: Final = "restore it from a copy; nngkit journal verify lists all such files"
LINKED: Final = "linked"
IN_PLACE: Final = "in place"


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of an export. `snapshot`: id of the last commit; None if there was nothing to commit.

    `added`, `removed`: number of files. `kept`: files of the table that the journal no longer lists. `offsets`:
    by partition, one past the last offset in the table.
    """

    snapshot: int | None
    added: int
    removed: int
    kept: int
    offsets: dict[int, int]


def export(
    journal: str | os.PathLike[str] | Journal,
    target: str | os.PathLike[str],
    kind: str,
    *,
    in_place: bool = False,
    follow_retention: bool = False,
    keep_snapshots: int | None = None,
) -> Exported:
    """Bring the table at `target` to the state of the journal; create the table if needed.

    New segments are one commit, and removed or merged ones, if there are any, one before that.

    `kind`: "iceberg" or "delta". `target`: a local folder. `in_place`: refer to the journal's files instead of linking
    them (Iceberg only, decided when the table is created). `follow_retention`: remove what the journal has removed;
    always so in place. `keep_snapshots`: remove older snapshots, and the files that only they have (Iceberg only: for
    Delta, use deltalake's `DeltaTable.vacuum`); default: keep all.

    Blocks while it writes. A kill at any time leaves the table as it was, or with the whole commit.
    Raises ConfigError: options, a target that is not this journal's table or has another writer, a full disk; Damaged.
    """
    from nngkit.journal.reader import Journal, open_journal

    opened = journal if isinstance(journal, Journal) else open_journal(journal)
    folder = checked_path("target", target).absolute()
    _check_target(folder, kind, in_place=in_place)
    if keep_snapshots is not None and (kind == "delta" or keep_snapshots < 1):
        why = "is for Iceberg; for Delta, deltalake has DeltaTable.vacuum()" if kind == "delta" else "is less than 1"
        raise ConfigError("keep_snapshots", why, keep_snapshots)
    try:
        make_folder(folder)
        with locked(folder):
            done = _persistent(opened, folder, kind, in_place=in_place, follow=follow_retention)
            if keep_snapshots is not None:
                _forget(folder, keep_snapshots)
            return done
    except OSError as error:
        raise ConfigError("target", f"{error.filename or folder}: {error.strerror or error}", str(folder)) from error


def _persistent(journal: Journal, folder: Path, kind: str, *, in_place: bool, follow: bool) -> Exported:
    """Export; decide again if the journal or the table changes meanwhile."""
    for attempt in range(ATTEMPTS):
        try:
            return _exported(journal, folder, kind, in_place=in_place, follow=follow)
        except FileNotFoundError as error:  # merged or retired since it was listed
            if attempt == ATTEMPTS - 1:
                raise Damaged(str(error.filename or error), "the file is missing", advice=ADVICE) from error
        except Conflict as error:  # a writer without the lock
            if attempt == ATTEMPTS - 1:
                raise ConfigError("target", f"{folder}: another program keeps writing this table: {error}") from error
    raise AssertionError


def _forget(folder: Path, keep: int) -> None:
    from nngkit.lakehouse.iceberg import IcebergTable

    try:
        IcebergTable(folder).forget(keep)
    except Conflict:
        log_.warning("%s: another program has written the table; its old snapshots stay until the next export", folder)


def _check_target(folder: Path, kind: str, *, in_place: bool) -> None:
    if kind not in FORMATS:
        raise ConfigError("format", f"{kind!r} is not one of {', '.join(FORMATS)}", kind)
    if in_place and kind == "delta":
        raise ConfigError("in_place", "Delta tables have their files in their folder; leave it out, or use Iceberg")
    if kind == "delta" and "%" in str(folder):
        raise ConfigError("target", f"{folder}: deltalake decodes percent signs; choose another name", str(folder))
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        why = f"{str(folder)!a}: not UTF-8, as the paths in a table are; choose another name"
        raise ConfigError("target", why, str(folder)) from error
    there = kind_of(folder)
    if there is not None and there != kind:
        raise ConfigError("target", f"{folder}: has {_article(there)} table; choose another folder", str(folder))
    if folder.exists() and not folder.is_dir():
        raise ConfigError("target", f"{folder}: not a folder", str(folder))
    if there is None and folder.exists() and {*os.listdir(folder)} - {LOCK}:
        raise ConfigError("target", f"{folder}: neither empty nor a table; choose a new folder", str(folder))


def _article(kind: str) -> str:
    return "an Iceberg" if kind == "iceberg" else "a Delta"


def _exported(journal: Journal, folder: Path, kind: str, *, in_place: bool, follow: bool) -> Exported:
    table = backend(folder, kind)
    if not table.exists:
        place_value = IN_PLACE if in_place else LINKED
        table.create({FORMAT_KEY: VERSION, JOURNAL_KEY: _location(journal), PLACE_KEY: place_value})
    check(table)
    _check_source(table, journal, in_place=in_place)
    table.settle()
    before = table.reached()
    plan = decide(_files(table), _listed(journal), before, follow=follow or in_place)
    snapshot = None
    for each in plan.commits(before):
        for file in each.add:
            _check_segment(journal, file)
        if in_place:
            paths = [journal.storage.shown(file.path) for file in each.add]
        else:
            paths = place(journal.storage, each.add, folder)
        snapshot = table.commit(paths, each)
    return Exported(snapshot, len(plan.add), len(plan.remove), len(plan.kept), plan.offsets)


def _check_segment(journal: Journal, segment: File) -> None:
    size = journal.storage.size(segment.path)
    if size != segment.size:
        shown = journal.storage.shown(segment.path)
        raise Damaged(shown, f"it has {size} bytes, and the manifest says {segment.size}", advice=ADVICE)


def _location(journal: Journal) -> str:
    return journal.storage.shown("").rstrip("/")


def _check_source(table: Table, journal: Journal, *, in_place: bool) -> None:
    source = table.properties.get(JOURNAL_KEY)
    if source != _location(journal):
        raise ConfigError(
            "target",
            f"{table.folder}: a table of the journal {source}, and not of {_location(journal)}; export to another "
            f"folder (if that journal was moved here, set the table's property {JOURNAL_KEY})",
            str(table.folder),
        )
    if in_place != (table.properties.get(PLACE_KEY) == IN_PLACE):
        raise ConfigError(
            "in_place",
            f"{table.folder}: its files are {table.properties.get(PLACE_KEY)}, as decided at its first export; "
            f"{'leave --in-place out' if in_place else 'give --in-place'}, or export to another folder",
            str(table.folder),
        )


def _files(table: Table) -> list[File]:
    found = []
    for path, size in table.entries():
        file = parse(path, size)
        if file is None:
            raise ConfigError(
                "target",
                f"{path}: a file that nngkit has not exported: another program has rewritten {table.folder}; roll the "
                "table back to a snapshot of nngkit, or export to a new folder",
                path,
            )
        found.append(file)
    return found


def _listed(journal: Journal) -> dict[int, Listed]:
    found = {}
    for partition in journal.partitions():
        try:
            segments = journal.segments(partition)
        except ConfigError as error:
            if error.what == "partition":  # its recorder has not written a manifest yet
                continue
            raise
        bounds = journal.bounds(partition)
        files = (
            File(partition, each.first, each.end, each.bytes, f"{folder_of(partition)}/{each.file}")
            for each in segments
        )
        found[partition] = Listed(bounds.start, bounds.sealed, tuple(sorted(files)))
    return found
