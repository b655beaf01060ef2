"""`nngkit doc ACTION`: documents that stay in sync, from a shell: edited, printed, kept, served, replayed.

::

    nngkit doc edit minutes --store notes.sqlite --dial tcp://host:4711
    nngkit doc cat minutes --store notes.sqlite

=====================  =======================================================================
arguments.py           every action with its options, in one table
opening.py             the peer or the store that the options speak of
editing.py             edit: the loop between the terminal, the document and the disk
external.py            edit --editor: a file, somebody's editor, and the way back
session.py             edit: who is here, and what is on how many disks
layout.py  keys.py     edit: lines to rows, and bytes to keys;  caret.py: what a key does. All pure
view.py  screen.py     edit: what stands where, pure; and curses, which puts it there
differences.py         from one text to the next in few edits, and past what others did: pure
values.py              content as JSON and back;  folders.py: names as paths that stay in their folder
reading.py  keeping.py files.py  status.py  serving.py      the other actions
trace.py  drafts.py  replaying.py       replay: the file, pure; what its authors saw; the peers
=====================  =======================================================================

Here is only what a help needs: the rest is brought in when an action runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from nngkit.cli.doc.arguments import ACTIONS as TABLE
from nngkit.cli.doc.arguments import add
from nngkit.cli.options import ActionParser, Parser

__all__ = ["ACTIONS", "EPILOG", "add_arguments", "parsers", "run"]

ACTIONS: Final = {name: action.what for name, action in TABLE.items()}
EPILOG: Final = """\
`nngkit doc ACTION --help` has the options of an action. Most take --store FILE, to work on what a disk has, and
--listen, --dial, --join, --discovery and --token, to meet others; all that print take --json.
Exit codes: 1 no such document, or it differs; 2 usage; 3 cannot listen; 4 nobody was met in time. docs/documents.md"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action, and its options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=ActionParser)
    for name, action in TABLE.items():
        own = actions.add_parser(
            name,
            help=action.what,
            description=f"{action.what[0].upper()}{action.what[1:]}.",
            epilog=action.epilog or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add(own, action)


def parsers() -> Iterator[Parser]:
    """Those of the actions, for whoever collects their options."""
    parser = Parser(prog="nngkit doc", allow_abbrev=False)
    add_arguments(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def run(arguments: argparse.Namespace) -> int:
    """Do the action."""
    action = TABLE[arguments.action]
    from nngkit.documents.names import check_name

    for name in (getattr(arguments, "name", None), *getattr(arguments, "names", ())):
        if name is not None:
            check_name(name)  # before a store or a network is looked at
    does = getattr(import_module(f"nngkit.cli.doc.{action.room}"), action.does or arguments.action)
    code: int = does(arguments)
    return code
