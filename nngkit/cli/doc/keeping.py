"""`nngkit doc log | versions | save | compact | recover`: what a store has, by whom, since when, and in how many bytes.

A sitting is what one stream (a peer from one start to the next) wrote with no more than five minutes between two edits.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from nngkit.cli.doc.opening import found, in_trio, opened, stored
from nngkit.cli.output import json_line, out, utc
from nngkit.documents.engine.interface import load_engine
from nngkit.documents.records import Entry, Saved
from nngkit.documents.store import Store
from nngkit.documents.store import recover as recovered
from nngkit.documents.versions import EditStream
from nngkit.errors import ConfigError, NotFound

__all__ = ["Sitting", "compact", "log", "recover", "save", "sittings", "versions"]

PAUSE: Final = 300.0  # seconds without an edit that end a sitting


@dataclass(frozen=True, slots=True)
class Sitting:
    """Edits of one stream: from when to when (seconds since 1970), how many, how many bytes. None: diffs of several."""

    stream: EditStream | None
    first: float
    last: float
    edits: int
    size: int


def sittings(entries: Iterable[Entry], pause: float = PAUSE) -> list[Sitting]:
    """The log in lines that people can read, in the order in which they began."""
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


def log(arguments: argparse.Namespace) -> int:
    """Who edited when."""
    with stored(arguments.store) as store:
        entries = list(store.log(arguments.name))
        saved = store.versions(arguments.name)
        mine = store.origin
    lines: list[tuple[float, dict[str, Any]]] = [(each.time, _saved_fields(each)) for each in saved]
    if arguments.each:
        lines += [(entry.time, _entry_fields(entry, mine)) for entry in entries]
    else:
        lines += [(sitting.first, _sitting_fields(sitting, mine)) for sitting in sittings(entries)]
    for _, fields in sorted(lines, key=lambda line: line[0]):
        out(json_line(fields) if arguments.json else _text(fields))
    return 0


def _who(stream: EditStream | None, mine: bytes) -> dict[str, Any]:
    return {"stream": None if stream is None else str(stream), "here": stream is not None and stream.origin == mine}


def _entry_fields(entry: Entry, mine: bytes) -> dict[str, Any]:
    return {
        "event": "edit" if entry.stream is not None else "diff",
        "time": utc(entry.time),
        **_who(entry.stream, mine),
        "number": entry.seq,
        "size": entry.size,
    }


def _sitting_fields(sitting: Sitting, mine: bytes) -> dict[str, Any]:
    return {
        "event": "sitting",
        "time": utc(sitting.first),
        "until": utc(sitting.last),
        **_who(sitting.stream, mine),
        "edits": sitting.edits,
        "size": sitting.size,
    }


def _saved_fields(saved: Saved) -> dict[str, Any]:
    edits = sum(saved.versions.values())
    return {"event": "version", "time": utc(saved.time), "version": saved.name, "edits": edits, "size": saved.size}


def _text(fields: dict[str, Any]) -> str:
    size = f"{fields['size']} bytes"
    if fields["event"] == "version":
        return f"{fields['time']}  version {fields['version']!r}: {fields['edits']} edits, {size}"
    who = "others, at once" if fields["stream"] is None else fields["stream"] + (" (here)" if fields["here"] else "")
    if fields["event"] == "sitting":
        until = f" until {fields['until'][11:19]}" if fields["edits"] > 1 else ""
        return f"{fields['time']}  {who}: {_plural(fields['edits'], 'edit')}{until}, {size}"
    what = "a diff" if fields["event"] == "diff" else f"edit {fields['number']}"
    return f"{fields['time']}  {who}: {what}, {size}"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def versions(arguments: argparse.Namespace) -> int:
    """Saved versions, oldest first."""
    with stored(arguments.store) as store:
        saved = store.versions(arguments.name)
    for each in saved:
        fields = _saved_fields(each)
        out(json_line(fields) if arguments.json else _text(fields))
    return 0


def save(arguments: argparse.Namespace) -> int:
    """Save the content of now, as it is here once those who were named were met."""
    if arguments.store is None:
        raise ConfigError("--store", "a version is kept in a store: say which")

    async def work() -> None:
        async with opened(arguments) as peer:
            document = await found(peer, arguments.name, arguments)
            fields = _saved_fields(await document.save_version(arguments.version))
            out(json_line(fields) if arguments.json else _text(fields))

    return in_trio(work)


def compact(arguments: argparse.Namespace) -> int:
    """One snapshot each."""

    async def work() -> None:
        with stored(arguments.store) as store:
            for name in _asked(arguments.names, store):
                done = await store.compact(name, load_engine())
                fields = {
                    "event": "compacted",
                    "document": name,
                    "records": done.records,
                    "before": done.before,
                    "after": done.after,
                }
                out(
                    json_line(fields)
                    if arguments.json
                    else f"{name}: {_plural(done.records, 'record')}, {done.before} bytes, now {done.after}"
                )

    return in_trio(work)


def _asked(names: list[str], store: Store) -> list[str]:
    known = store.names()
    for name in names:
        if name not in known:
            raise NotFound(f"there is no document {name!r}")
    return names or known


def recover(arguments: argparse.Namespace) -> int:
    """Copy what is good; 1 if something is missing."""
    report = recovered(arguments.damaged, arguments.to)
    if not arguments.json:
        out(str(report))
        return 0 if report.whole else 1
    out(
        json_line(
            {
                "event": "recovered",
                "from": report.path,
                "to": report.to,
                "whole": report.whole,
                "unaccounted": report.unaccounted,
                "same_origin": report.same_origin,
                "documents": [
                    {
                        "document": each.name,
                        "kept": each.kept,
                        "lost": each.lost,
                        "left_out": each.left_out,
                        "saved": each.saved,
                        "saved_lost": each.saved_lost,
                        "why": each.why,
                    }
                    for each in report.documents
                ],
            }
        )
    )
    return 0 if report.whole else 1
