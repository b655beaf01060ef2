"""`nngkit doc import`: change documents to the content of files, in one transaction each. File names: folders.py."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from nngkit.cli.doc.content import bring, check
from nngkit.cli.doc.folders import walk
from nngkit.cli.doc.opening import found, in_trio, meets_others, opened
from nngkit.cli.doc.values import from_json
from nngkit.cli.streams.output import json_line, out
from nngkit.documents import DocumentPeer
from nngkit.documents.names import check_name
from nngkit.errors import ConfigError


def run(arguments: argparse.Namespace) -> int:
    """Read all files, then edit: if one of them cannot be read, nothing changes."""
    if arguments.store is None and not meets_others(arguments):
        raise ConfigError("--store", "the import would be lost: give a store, or peers (--join, --dial)")
    wanted = _read(Path(arguments.source), arguments)

    async def work() -> None:
        async with opened(arguments, new=True) as peer:
            for name, (content, partly) in wanted.items():
                await _import(peer, name, content, partly, arguments)

    return in_trio(work)


def _read(source: Path, arguments: argparse.Namespace) -> dict[str, tuple[dict[str, Any], bool]]:
    """Return the content by document, and whether it is partial (texts alone)."""
    try:
        if source.is_dir():
            if arguments.name is not None:
                raise ConfigError("--as", "needs a file, and this is a folder")
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
        raise ConfigError("FILE", f"{path}: not the JSON of a document: not an object", str(path))
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
    out(json_line(fields) if arguments.json else f"{name}: {'changed' if changed else 'unchanged'}")
