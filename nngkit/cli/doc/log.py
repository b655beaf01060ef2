"""`nngkit doc log`: edits and saved versions of a document in a store, by author and time.

Edits are grouped into sittings: those of one stream (a peer from one start to the next) with at most five minutes
between two of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from nngkit.cli.doc.opening import stored
from nngkit.cli.streams.output import json_line, out, utc
from nngkit.cli.streams.stderr import escaped
from nngkit.documents.records import Entry, Saved
from nngkit.documents.versions import EditStream

PAUSE: Final = 300.0  # seconds without an edit that end a sitting


@dataclass(frozen=True, slots=True)
class Sitting:
    """Consecutive edits of one stream; times in seconds since 1970, size in bytes. stream None: diffs of several."""

    stream: EditStream | None
    first: float
    last: float
    edits: int
    size: int


def sittings(entries: Iterable[Entry], pause: float = PAUSE) -> list[Sitting]:
    """Group log entries into sittings, in order of their first edit."""
    done: list[Sitting] = []
    at: dict[EditStream | None, int] = {}
    for entry in entries:
        number = at.get(entry.stream)
        if number is not None and entry.time - done[number].last <= pause:
            was = done[number]
            done[number] = Sitting(was.stream, was.first, entry.time, was.edits + 1, was.size + entry.size)
        else:
            at[entry.stream] = len(done)
            done.append(Sitting(entry.stream, entry.time, entry.time, 1, entry.size))
    return done


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each sitting (--each: for each edit) and each saved version."""
    with stored(arguments.store) as store:
        entries = list(store.log(arguments.name))
        saved = store.versions(arguments.name)
        local = store.origin
    lines: list[tuple[float, dict[str, Any]]] = [(each.time, version_fields(each)) for each in saved]
    if arguments.each:
        lines += [(entry.time, _entry_fields(entry, local)) for entry in entries]
    else:
        lines += [(sitting.first, _sitting_fields(sitting, local)) for sitting in sittings(entries)]
    for _, fields in sorted(lines, key=lambda line: line[0]):
        out(json_line(fields) if arguments.json else escaped(as_text(fields)))
    return 0


def _author(stream: EditStream | None, local: bytes) -> dict[str, Any]:
    return {"stream": None if stream is None else str(stream), "here": stream is not None and stream.origin == local}


def _entry_fields(entry: Entry, local: bytes) -> dict[str, Any]:
    return {
        "event": "edit" if entry.stream is not None else "diff",
        "time": utc(entry.time),
        **_author(entry.stream, local),
        "number": entry.seq,
        "size": entry.size,
    }


def _sitting_fields(sitting: Sitting, local: bytes) -> dict[str, Any]:
    return {
        "event": "sitting",
        "time": utc(sitting.first),
        "until": utc(sitting.last),
        **_author(sitting.stream, local),
        "edits": sitting.edits,
        "size": sitting.size,
    }


def version_fields(saved: Saved) -> dict[str, Any]:
    """Return a saved version as JSON; docs/schemas/doc.json."""
    edits = sum(saved.versions.values())
    return {"event": "version", "time": utc(saved.time), "version": saved.name, "edits": edits, "size": saved.size}


def as_text(fields: dict[str, Any]) -> str:
    """Format the JSON fields of an edit, a sitting or a version as a line for people."""
    size = f"{fields['size']} bytes"
    if fields["event"] == "version":
        return f"{fields['time']}  version {fields['version']!r}: {fields['edits']} edits, {size}"
    author = (
        "other peers, merged" if fields["stream"] is None else fields["stream"] + (" (here)" if fields["here"] else "")
    )
    if fields["event"] == "sitting":
        until = f" until {fields['until'][11:19]}" if fields["edits"] > 1 else ""
        return f"{fields['time']}  {author}: {plural(fields['edits'], 'edit')}{until}, {size}"
    edit = "a diff" if fields["event"] == "diff" else f"edit {fields['number']}"
    return f"{fields['time']}  {author}: {edit}, {size}"


def plural(count: int, noun: str) -> str:
    """Return the count with its noun: "1 edit", "2 edits"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
