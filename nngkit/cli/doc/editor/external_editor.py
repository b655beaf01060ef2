"""`nngkit doc edit --editor`: edit a copy of the text in an external editor, and merge the result.

Others may edit meanwhile; their changes are collected as one delta. The saved file is compared with its original, and
these edits are rebased over the delta and applied in one transaction. Insertions of both sides are kept, deletions of
both apply.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from nngkit.cli.doc.differences import edits, joined, rebased
from nngkit.cli.doc.opening import checked_root, in_trio, meets_others, opened, user
from nngkit.cli.streams.output import json_line
from nngkit.cli.streams.stderr import say
from nngkit.documents import Document, Text
from nngkit.documents.changes import Delta, Part, TextChange
from nngkit.documents.engine.codepoints import compose
from nngkit.errors import ConfigError, NngkitError, TimedOut

NAME: Final = "nngkit doc edit"
USUAL: Final = "vi"


def editor() -> list[str]:
    """Return the command of $VISUAL or $EDITOR. Raises ConfigError if it is malformed."""
    for variable in ("VISUAL", "EDITOR"):
        if value := os.environ.get(variable):
            try:
                if words := shlex.split(value):
                    return words
            except ValueError as error:
                raise ConfigError(variable, f"{value!r}: {error}", value) from error
    return [USUAL]


def saved(data: bytes, began: str) -> str:
    """Return the text of a saved file, without a last newline that the editor added. Raises UnicodeDecodeError."""
    text = data.decode()
    return text[:-1] if text.endswith("\n") and began and not began.endswith("\n") else text


def merged(text: Text, began: str, wanted: str, theirs: Delta) -> int:
    """Apply the edits from `began` to `wanted` to a text that others changed by `theirs`; return their number."""
    made = joined(began, edits(began, wanted))
    with text.document.transaction(origin="editor"):
        for at, deleted, inserted in reversed(rebased(made, theirs)):
            text.splice(at, deleted, inserted)
    return len(made)


def written(name: str, text: str) -> Path:
    """Write the text of a document to a new file, readable by its owner only; return its path."""
    path = Path(tempfile.mkdtemp(prefix="nngkit-")) / f"{name.rpartition('/')[2]}.txt"
    path.write_bytes(text.encode())
    return path


def edit(arguments: argparse.Namespace) -> int:
    """Run the editor and merge; return the exit code."""
    command = editor()
    failed = 0

    async def work() -> None:
        nonlocal failed
        async with opened(arguments, new=True) as peer:
            document = peer.open(arguments.name)
            if meets_others(arguments):
                try:
                    await document.joined(arguments.timeout)
                except TimedOut as alone:  # edit the local copy; it is merged when peers connect
                    if arguments.store is None:
                        raise
                    say(NAME, f"{alone}; editing the local copy")
            document.awareness.local = {"user": {"name": user(arguments), "color": peer.me.origin[0] % 8}}
            failed = await _edit(document, checked_root(document, arguments.text), command, arguments)

    return in_trio(work) or failed


class _Follower:
    """Collects the changes of others to a text, as one delta."""

    def __init__(self, document: Document, root: str) -> None:
        self.theirs: Delta = ()
        self._path = (root,)
        self._changes = document.changes()

    async def run(self) -> None:
        """Collect changes in `theirs` until cancelled."""
        async for change in self._changes:
            self._add(change.parts)

    def rest(self) -> None:
        """Collect the changes received so far."""
        for change in self._changes.unread():
            self._add(change.parts)

    def _add(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if isinstance(part, TextChange) and part.path == self._path:
                self.theirs = compose(self.theirs, part.delta)


async def _edit(document: Document, root: str, command: list[str], arguments: argparse.Namespace) -> int:
    text = document.text(root)
    follower = _Follower(document, root)
    began = str(text)
    path = written(document.name, began)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follower.run)
            code = await _run([*command, str(path)])
            nursery.cancel_scope.cancel()
    except BaseException:
        say(NAME, f"not merged: the edited text is in {path}")
        raise
    if code:
        say(NAME, f"{command[0]} ended with {code}: not merged, the edited text is in {path}")
        return 1
    try:
        wanted = saved(path.read_bytes(), began)
        follower.rest()
        count = merged(text, began, wanted, follower.theirs)
    except (OSError, ValueError) as error:  # also not UTF-8
        say(NAME, f"not merged: {path}: {error}")
        return 1
    kept = await _keep(document, arguments)
    shutil.rmtree(path.parent, ignore_errors=True)
    fields = {
        "event": "merged",
        "document": document.name,
        "edits": count,
        "theirs": len(follower.theirs),
        "characters": len(text),
        "digest": document.digest().hex(),
        "kept": kept,
    }
    print(json_line(fields) if arguments.json else f"{document.name}: {count} edits")
    return 0


async def _run(command: list[str]) -> int:
    """Run the editor in the foreground and return its exit code. Cancellation ends it."""
    try:
        done = await trio.run_process(command, stdin=None, check=False)
    except OSError as error:
        raise ConfigError("EDITOR", f"{command[0]}: {error.strerror or error}", command[0]) from error
    return done.returncode


async def _keep(document: Document, arguments: argparse.Namespace) -> bool:
    if arguments.store is not None:
        await document.durable()
        return True
    try:
        await document.synced(1, arguments.timeout)
    except NngkitError as error:
        say(NAME, f"not known to be on any disk: {error}")
        return False
    return True
