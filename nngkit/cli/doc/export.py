"""`nngkit doc export`: write documents into a folder. File names: folders.py."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from nngkit.cli.doc.folders import path_of, write
from nngkit.cli.doc.opening import found, in_trio, meets_others, opened, stored
from nngkit.cli.doc.values import to_json
from nngkit.cli.streams.output import json_line, out
from nngkit.cli.streams.stderr import say
from nngkit.documents import Document
from nngkit.errors import ConfigError, StoreDamaged

NAME: Final = "nngkit doc export"


def run(arguments: argparse.Namespace) -> int:
    """Export the named documents; without names, those of the store and of the peers. Return 1 if any is damaged."""
    folder = Path(arguments.dir)
    if arguments.store is None and not meets_others(arguments) and not arguments.listen:
        raise ConfigError("--store", "there is nothing to export from: give a store, or peers (--join, --dial)")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("DIR", f"{folder}: {error.strerror or error}", arguments.dir) from error
    names = list(arguments.names)
    if not names and arguments.store is not None:
        with stored(arguments.store) as store:
            names = store.names()

    damaged: list[str] = []

    async def work() -> None:
        async with opened(arguments) as peer:
            if not arguments.names and meets_others(arguments):
                await peer.wait_for_peers(1, arguments.timeout)
                names[:] = sorted({*names, *(name for other in peer.peers for name in other.documents)})
            for name in names:
                try:
                    document = await found(peer, name, arguments)
                except StoreDamaged as damage:
                    damaged.append(name)
                    say(NAME, f"not exported: {damage}")
                else:
                    _export(document, folder, arguments)

    return in_trio(work) or int(bool(damaged))


def _export(document: Document, folder: Path, arguments: argparse.Namespace) -> None:
    content = document.plain()
    files = {path_of(document.name): json.dumps(to_json(content), ensure_ascii=False, indent=2) + "\n"}
    files |= {path_of(document.name, root): text for root, text in content.items() if isinstance(text, str)}
    for path, text in files.items():
        data = text.encode()
        try:
            write(folder, path, data)
        except OSError as error:
            raise ConfigError("DIR", f"{folder / path}: {error.strerror or error}", arguments.dir) from error
        fields = {"event": "exported", "document": document.name, "file": str(folder / path), "size": len(data)}
        out(json_line(fields) if arguments.json else str(folder / path))
