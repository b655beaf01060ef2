"""Durable updates a second of a document store, and the cost of loading.

    durable       each writer appends an update of 30 bytes and waits until it is on disk before its next
    load, open    records a second of one long document; bytes a second of a file that is checked at opening

The files are in build/, as the temporary folder may be in memory.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from _child import Meter
from _measuring import RESULTS, Group, Way
from nngkit.documents.store import Record, Store
from nngkit.documents.versions import EditStream

WRITERS = (1, 64, 1024)
LONG = 100_000  # records
DURABLE = Group(
    "durable updates, 30 B, one peer",
    tuple(Way(f"{count:,} in flight", "_store:durable", task={"writers": count}) for count in WRITERS),
)
LOADING = Group(f"a document of {LONG:,} records", (Way("load", "_store:load"), Way("open", "_store:open_again")))


@contextmanager
def folder() -> Iterator[Path]:
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="store", dir=RESULTS) as name:
        yield Path(name)


def edits(store: Store) -> Iterator[Record]:
    me = EditStream(store.origin, store.epoch)
    update = os.urandom(30)
    return (Record(me, seq, update, {}) for seq in itertools.count(1))


def durable(task: dict[str, Any]) -> None:
    """Measure acknowledged updates a second."""

    async def main() -> None:
        meter = Meter(task["seconds"])
        async with Store.open(where / "docs.sqlite") as store:
            records = edits(store)

            going_on = True

            async def write() -> None:
                nonlocal going_on
                while going_on:
                    await store.synced(store.append("doc", next(records)))
                    going_on = going_on and meter.add(1)

            async with trio.open_nursery() as nursery:
                for _ in range(task["writers"]):
                    nursery.start_soon(write)

    with folder() as where:
        trio.run(main)


def _long(path: Path) -> None:
    with Store.open(path) as store:
        for record in itertools.islice(edits(store), LONG):
            store.append("doc", record)


def load(task: dict[str, Any]) -> None:
    """Measure loaded records a second."""
    with folder() as where:
        _long(where / "docs.sqlite")
        with Store.open(where / "docs.sqlite") as store:
            meter = Meter(task["seconds"])
            while meter.add(len(store.load("doc").records)):
                pass


def open_again(task: dict[str, Any]) -> None:
    """Measure bytes a second of a file at opening, which checks all of it."""
    with folder() as where:
        path = where / "docs.sqlite"
        _long(path)
        size = path.stat().st_size
        meter = Meter(task["seconds"])
        going_on = True
        while going_on:
            Store.open(path).close()
            going_on = meter.add(size)


if __name__ == "__main__":
    import _measuring as bench

    bench.run("store", (DURABLE, LOADING), bench.options(__doc__, rounds=3, seconds=2.0).parse_args())
