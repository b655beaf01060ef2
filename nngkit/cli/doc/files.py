"""`nngkit doc export | import`: documents into files, and back as one edit each. Where they lie: folders.py."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from nngkit.cli.doc.content import bring, check
from nngkit.cli.doc.folders import path_of, walk, write
from nngkit.cli.doc.opening import found, in_trio, meets_others, opened, stored
from nngkit.cli.doc.values import from_json, to_json
from nngkit.cli.output import json_line, out
from nngkit.documents import Document, DocumentPeer
from nngkit.documents.names import check_name
from nngkit.errors import ConfigError

__all__ = ["export", "import_"]


def export(arguments: argparse.Namespace) -> int:
    """Write."""
    folder = Path(arguments.dir)
    if arguments.store is None and not meets_others(arguments) and not arguments.listen:
        raise ConfigError(
            "--store", "there is nothing to export from: say a store, or somebody to meet (--join, --dial)"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("DIR", f"{folder}: {error.strerror or error}", arguments.dir) from error
    names = list(arguments.names)
    if not names and arguments.store is not None:
        with stored(arguments.store) as store:
            names = store.names()

    async def work() -> None:
        async with opened(arguments) as peer:
            if not arguments.names and meets_others(arguments):
                await peer.wait_for_peers(1, arguments.timeout)
                names[:] = sorted({*names, *(name for other in peer.peers for name in other.documents)})
            for name in names:
                _export(await found(peer, name, arguments), folder, arguments)

    return in_trio(work)


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


def import_(arguments: argparse.Namespace) -> int:
    """Read everything, then edit: a file that cannot be read changes nothing."""
    if arguments.store is None and not meets_others(arguments):
        raise ConfigError("--store", "nobody would keep it: say a store, or somebody to give it to (--join, --dial)")
    wanted = _read(Path(arguments.source), arguments)

    async def work() -> None:
        async with opened(arguments, new=True) as peer:
            for name, (content, partly) in wanted.items():
                await _import(peer, name, content, partly, arguments)

    return in_trio(work)


def _read(source: Path, arguments: argparse.Namespace) -> dict[str, tuple[dict[str, Any], bool]]:
    """By document: its content, and whether that is a part of it (texts without the rest)."""
    try:
        if source.is_dir():
            if arguments.name is not None:
                raise ConfigError("--as", "is for a file, and this is a folder")
            files = list(walk(source))
        else:
            root = {".json": None, ".txt": arguments.text}.get(source.suffix, ...)
            if root is ...:
                raise ConfigError("FILE", f"{source}: neither .txt nor .json", str(source))
            files = [(check_name(arguments.name or source.stem), root, source)]
        found: dict[str, tuple[dict[str, Any], bool]] = {}
        for name, root, path in sorted(files, key=lambda file: (file[0], file[1] is not None)):  # texts over .json
            content, partly = found.get(name, ({}, True))
            if root is None:
                found[name] = (_json(path), False)
            else:
                found[name] = (content | {root: path.read_bytes().decode()}, partly)
    except OSError as error:
        raise ConfigError("FILE", f"{error.filename or source}: {error.strerror or error}", str(source)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("FILE", f"{source}: not UTF-8: {error.reason} at byte {error.start}", str(source)) from error
    if not found:
        raise ConfigError("DIR", f"{source}: no .txt or .json in it", str(source))
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        value = from_json(json.loads(path.read_bytes()))
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError("FILE", f"{path}: not the JSON of a document: {error}", str(path)) from error
    if not isinstance(value, dict):
        raise ConfigError("FILE", f"{path}: not the JSON of a document: it has to be an object", str(path))
    return value


async def _import(
    peer: DocumentPeer, name: str, content: dict[str, Any], partly: bool, arguments: argparse.Namespace
) -> None:
    document = await found(peer, name, arguments, new=True)
    have = document.plain()
    wanted = {**have, **content} if partly else content
    try:
        check(wanted, have)
    except (ValueError, TypeError) as error:
        raise ConfigError("FILE", f"{os.fspath(arguments.source)}: {name}: {error}", arguments.source) from error
    changed = bring(document, wanted, have)
    if arguments.store is not None:
        await document.durable()
    if meets_others(arguments):
        await document.synced(1, arguments.timeout)
    fields = {"event": "imported", "document": name, "changed": changed, "roots": sorted(document.plain())}
    out(json_line(fields) if arguments.json else f"{name}: {'changed' if changed else 'as it was'}")
