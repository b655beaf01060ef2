"""`nngkit doc edit`: edit a text in the terminal, together with others.

Every key applies to the document's current text, the cursor is a relative position that moves with the text while
others write, and the screen is drawn from the document. Without a terminal, or with --editor, an external editor is
used (external_editor.py).
"""

from __future__ import annotations

import argparse
import curses
import os
import sys
from pathlib import Path
from typing import Any, Final

from nngkit.cli.doc.editor import external_editor
from nngkit.cli.doc.opening import checked_root, in_trio, meets_others, opened, user
from nngkit.cli.streams.output import json_line
from nngkit.cli.streams.stderr import say
from nngkit.errors import ConfigError

NAME: Final = "nngkit doc edit"


def run(arguments: argparse.Namespace) -> int:
    """Edit until the user quits; return the exit code."""
    if arguments.store is None and not meets_others(arguments) and not arguments.listen:
        raise ConfigError("--store", "the text would be lost: give a store, or peers (--join, --dial, --listen)")
    if arguments.editor or not can_edit():
        return external_editor.edit(arguments)
    try:
        from nngkit.cli.doc.editor.screen import Editor
        from nngkit.cli.doc.editor.session import Session
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise ConfigError("the editor", f"{package} is not installed: pip install 'nngkit[editor]'") from error
    done: dict[str, Any] = {}
    code = 0
    warned: list[str] = []
    rescued: list[Path] = []

    async def work() -> None:
        nonlocal code
        async with opened(arguments, new=True) as peer:
            document = peer.open(arguments.name)
            root, stored = checked_root(document, arguments.text), arguments.store is not None
            session = Session(peer, document, root, name=user(arguments), stored=stored)
            editor = Editor(session, arguments.timeout)
            try:
                code = await editor.run()
            finally:
                done.update(
                    event="left",  # docs/schemas/doc.json
                    document=document.name,
                    characters=len(session.text),
                    digest=document.digest().hex(),
                    kept=session.is_kept or session.is_as_it_began,
                )
                if not done["kept"] and not editor.discarded:
                    rescued.append(external_editor.written(arguments.name, str(session.text)))

    ended = in_trio(work, warned.append)  # printed after the screen is restored
    for text in dict.fromkeys(warned):
        say(NAME, text)
    if done:
        if not done["kept"]:
            where = "".join(f"; the text is in {path}" for path in rescued)
            say(NAME, f"{arguments.name}: the last edits are not known to be on any disk{where}")
        if arguments.json:
            print(json_line(done))
    return ended or code


def can_edit() -> bool:
    """Return True if there is a terminal with a movable cursor."""
    if os.environ.get("TERM", "dumb") == "dumb" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        curses.setupterm(fd=sys.stdout.fileno())
    except curses.error:  # unknown TERM
        return False
    return bool(curses.tigetstr("cup") and curses.tigetstr("clear"))
