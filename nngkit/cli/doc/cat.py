"""`nngkit doc cat`: what is in a document, and with --follow what happens to it.

The text alone is printed as it is, without a line end of its own, so that `doc cat a > file` has what the text has.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from nngkit.cli.doc.opening import found, in_trio, opened
from nngkit.cli.doc.values import change_fields, part_text, to_json
from nngkit.cli.line_writer import LineWriter, printed, to_stdout
from nngkit.cli.output import json_line, utc
from nngkit.cli.stderr import say
from nngkit.documents import Change, Document, DocumentPeer
from nngkit.errors import ConfigError, Full, NotFound

__all__ = ["names_of_peers", "run", "text_of"]

NAME: Final = "nngkit doc cat"
ROOM: Final = 16 << 20  # bytes of changes that wait for a slow reader


def run(arguments: argparse.Namespace) -> int:
    """Print, and follow."""
    if arguments.follow and arguments.at is not None:
        raise ConfigError("--at", "an old version does not change any more: not together with --follow")

    async def work() -> None:
        async with opened(arguments) as peer:
            if arguments.follow:
                await _follow(peer, await found(peer, arguments.name, arguments, new=True), arguments)
                return
            document = await found(peer, arguments.name, arguments)
            if arguments.at is not None:
                document = document.at(arguments.at)
            _print(document, arguments)

    return in_trio(work)


def _print(document: Document, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json_line(to_json(document.plain())))
        return
    text = text_of(document, arguments.text)
    sys.stdout.write(text)
    if sys.stdout.isatty() and text and not text.endswith("\n"):
        sys.stdout.write("\n")


def text_of(document: Document, root: str) -> str:
    """The text of that name. Raises NotFound, saying which there are, where it is none."""
    content = document.plain()
    if isinstance(text := content.get(root, ""), str) and (root in content or not content):
        return text
    texts = ", ".join(repr(name) for name, value in content.items() if isinstance(value, str))
    why = f"it has {texts} (--text)" if texts else "it has none with anything in it (--json prints all)"
    raise NotFound(f"{document.name!r} has no text {root!r}: {why}")


async def _follow(peer: DocumentPeer, document: Document, arguments: argparse.Namespace) -> None:
    lines = to_stdout(ROOM)
    async with printed(lines):
        while True:
            changes = document.changes()
            _begin(document, arguments, lines)
            try:
                async for change in changes:
                    _tell(change, document, peer, arguments, lines)
                return
            except Full as behind:
                say(NAME, f"{behind}; what there is now follows")


def _begin(document: Document, arguments: argparse.Namespace, lines: LineWriter) -> None:
    if arguments.json:
        content = document.plain()
        _open(document, content)
        lines.put(json_line({"event": "content", "time": utc(time.time()), "content": to_json(content)}))
    else:
        text = str(document.text(arguments.text))
        if text:
            lines.put(text, "" if text.endswith("\n") else "\n")


def _open(document: Document, content: dict[str, Any]) -> None:
    """A root tells of its changes once it is opened, as what it is."""
    for name, value in content.items():
        if isinstance(value, str):
            document.text(name)
        elif isinstance(value, list):
            document.array(name)
        else:
            document.map(name)


def _tell(
    change: Change, document: Document, peer: DocumentPeer, arguments: argparse.Namespace, lines: LineWriter
) -> None:
    who = names_of_peers(peer).get(change.peer or "")
    when = utc(time.time())
    if arguments.json:
        lines.put(json_line(change_fields(change.parts, change.peer, who, when)))
        if change.parts:
            return
        new = {name: value for name, value in document.plain().items() if document.opened(name) is None}
        if new:  # a root that nobody read along: told whole, and from now on edit by edit
            _open(document, new)
            lines.put(json_line({"event": "content", "time": when, "content": to_json(new)}))
        return
    for part in change.parts:
        lines.put(f"{when}  {who or change.peer or 'here'}  {part_text(part)}")


def names_of_peers(peer: DocumentPeer) -> dict[str, str]:
    """By stream, as changes name them: who said a name."""
    return {str(other.stream): other.name for other in peer.peers if other.name}
