"""`nngkit doc cat`: print a document's content, and with --follow its changes.

A text is printed unchanged, without an additional newline, so that `doc cat a > file` copies it exactly.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from nngkit.cli.doc.opening import found, in_trio, opened
from nngkit.cli.doc.values import change_fields, part_text, to_json
from nngkit.cli.streams.line_writer import LineWriter, printed, to_stdout
from nngkit.cli.streams.output import json_line, utc
from nngkit.cli.streams.stderr import escaped, say
from nngkit.documents import Change, Document, DocumentPeer
from nngkit.errors import ConfigError, Full, NotFound

NAME: Final = "nngkit doc cat"
BUFFER: Final = 16 << 20  # bytes of changes queued for a slow reader


def run(arguments: argparse.Namespace) -> int:
    """Print the content, and follow changes if asked to."""
    if arguments.follow and arguments.at is not None:
        raise ConfigError("--at", "conflicts with --follow: a saved version does not change")

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
    """Return the text `root`. Raises NotFound that lists the texts of the document."""
    content = document.plain()
    if isinstance(text := content.get(root, ""), str) and (root in content or not content):
        return text
    texts = ", ".join(repr(name) for name, value in content.items() if isinstance(value, str))
    why = f"it has {texts} (--text)" if texts else "it has only empty ones (--json prints everything)"
    raise NotFound(f"{document.name!r} has no text {root!r}: {why}")


async def _follow(peer: DocumentPeer, document: Document, arguments: argparse.Namespace) -> None:
    lines = to_stdout(BUFFER)
    async with printed(lines):
        while True:
            changes = document.changes()
            _begin(document, arguments, lines)
            try:
                async for change in changes:
                    _print_change(change, document, peer, arguments, lines)
                return
            except Full as behind:
                say(NAME, f"{behind}; the current content follows")


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
    """Open the roots by their kind: only an opened root reports changes."""
    for name, value in content.items():
        if isinstance(value, str):
            document.text(name)
        elif isinstance(value, list):
            document.array(name)
        else:
            document.map(name)


def _print_change(
    change: Change, document: Document, peer: DocumentPeer, arguments: argparse.Namespace, lines: LineWriter
) -> None:
    author = names_of_peers(peer).get(change.peer or "")
    when = utc(time.time())
    if arguments.json:
        lines.put(json_line(change_fields(change.parts, change.peer, author, when)))
        if change.parts:
            return
        new = {name: value for name, value in document.plain().items() if document.opened(name) is None}
        if new:  # a new root: printed whole, from now on by its changes
            _open(document, new)
            lines.put(json_line({"event": "content", "time": when, "content": to_json(new)}))
        return
    for part in change.parts:
        lines.put(escaped(f"{when}  {author or change.peer or 'here'}  {part_text(part)}"))


def names_of_peers(peer: DocumentPeer) -> dict[str, str]:
    """Return the names of peers by stream, as changes identify them."""
    return {str(other.stream): other.name for other in peer.peers if other.name}
