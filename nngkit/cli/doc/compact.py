"""`nngkit doc compact`: merge the log of each document in a store into one snapshot."""

from __future__ import annotations

import argparse
from typing import Final

from nngkit.cli.doc.log import plural
from nngkit.cli.doc.opening import in_trio, stored
from nngkit.cli.streams.output import json_line, out, picked
from nngkit.cli.streams.stderr import say
from nngkit.documents.engine.interface import load_engine
from nngkit.documents.store import Store
from nngkit.errors import NotFound, StoreDamaged

NAME: Final = "nngkit doc compact"


def run(arguments: argparse.Namespace) -> int:
    """Compact the named documents, or all of the store. Return 1 if any is damaged."""

    damaged: list[str] = []

    async def work() -> None:
        with stored(arguments.store) as store:
            for name in _selected(arguments.names, store):
                try:
                    done = await store.compact(name, load_engine())
                except StoreDamaged as damage:
                    damaged.append(name)
                    say(NAME, f"not compacted: {damage}")
                    continue
                fields = {"event": "compacted", "document": name, **picked(done, "records before after")}
                text = f"{name}: {plural(done.records, 'record')}, {done.before} bytes, now {done.after}"
                out(json_line(fields) if arguments.json else text)

    return in_trio(work) or int(bool(damaged))


def _selected(names: list[str], store: Store) -> list[str]:
    known = store.names()
    for name in names:
        if name not in known:
            raise NotFound(f"there is no document {name!r}")
    return names or known
