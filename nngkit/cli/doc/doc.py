"""`nngkit doc`: its actions, their options, and dispatch. An action's module is loaded when it runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from nngkit.cli.doc.arguments import ACTIONS as TABLE
from nngkit.cli.doc.arguments import add
from nngkit.cli.options import ActionParser, Parser

__all__ = ["ACTIONS", "EPILOG", "add_arguments", "parsers", "run"]

ACTIONS: Final = {name: action.summary for name, action in TABLE.items()}
EPILOG: Final = """\
`nngkit doc ACTION --help` has the options of an action. Most take --store FILE, to work on a stored copy, and
--listen, --dial, --join, --discovery and --token, to connect to peers; all that print take --json.
Exit codes: 1 no such document, or an incomplete recovery; 2 usage; 3 cannot listen; 4 no peer connected in
time. docs/documents.md"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=ActionParser)
    for name, action in TABLE.items():
        own = actions.add_parser(
            name,
            help=action.summary,
            description=f"{action.summary[0].upper()}{action.summary[1:]}.",
            epilog=action.epilog or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add(own, action)


def parsers() -> Iterator[Parser]:
    """Yield the parsers of the actions, for the catalogue of options."""
    parser = Parser(prog="nngkit doc", allow_abbrev=False)
    add_arguments(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def run(arguments: argparse.Namespace) -> int:
    """Run the action; return its exit code."""
    from nngkit.documents.names import check_name

    for name in (getattr(arguments, "name", None), *getattr(arguments, "names", ())):
        if name is not None:
            check_name(name)  # before a store or a network is opened
    name = {"import": "import_"}.get(arguments.action, arguments.action)
    code: int = import_module(f"nngkit.cli.doc.{name}").run(arguments)
    return code
