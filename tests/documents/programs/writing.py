"""``python writing.py FILE [LIMIT]``: edits two documents of a store forever; prints "doc epoch seq" when acknowledged.

Each edit appends "epoch:seq;" to a text; now and then it compacts a document, or saves a version. 16 edits are in
flight at any time. LIMIT: cap on the size of a file, in bytes. Prints "ended ERROR COUNT" for the tasks that failed.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import trio

from nngkit.documents.store import Record, Store
from nngkit.errors import NngkitError

sys.path.insert(0, str(Path(__file__).parents[3]))  # this checkout, where `tests` is

from tests.documents.stores import Author, TextEngine, mine, updates

ended: list[str] = []


async def write(store: Store, name: str, author: Author, seqs: list[int]) -> None:
    me = mine(store)
    try:
        while True:
            seqs[0] += 1
            seq = seqs[0]
            update = author.type(f"{me.epoch}:{seq};")
            await store.synced(store.append(name, Record(me, seq, update, {})))
            os.write(1, f"{name} {me.epoch} {seq}\n".encode())
            if seq % 199 == 0:
                store.save_version(name, f"{me.epoch}-{seq}", author.whole(), {me: seq})
    except NngkitError as error:
        ended.append(f"{type(error).__name__}: {error}")


async def compact(store: Store, name: str) -> None:
    try:
        while True:
            await store.compact(name, TextEngine(), recent=20)
            await trio.sleep(0.005)
    except NngkitError as error:
        ended.append(f"{type(error).__name__}: {error}")


async def main() -> None:
    store = Store.open(sys.argv[1])
    async with trio.open_nursery() as nursery:
        for name in ("one", "two"):
            author, seqs = Author(*updates(store.load(name))), [1]
            store.append(name, Record(mine(store), 1, author.type(f"{store.epoch}:1;"), {}))
            for _ in range(8):
                nursery.start_soon(write, store, name, author, seqs)
            if name == "two":
                nursery.start_soon(compact, store, name)
    os.write(1, f"ended {len(ended)} {ended[0]}\n".encode())


if len(sys.argv) > 2:
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
trio.run(main)
