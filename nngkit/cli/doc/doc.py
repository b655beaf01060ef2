"""`nngkit doc`: its actions, their options, and dispatch. An action's module is loaded when it runs."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, Final

from nngkit.cli.doc.arguments import ACTIONS as TABLE
from nngkit.cli.doc.arguments import add
from nngkit.cli.options import add_actions

ACTIONS: Final = {name: action.summary for name, action in TABLE.items()}
EPILOG: Final = """\
`nngkit doc ACTION --help` has the options of an action. Most take --store FILE, to work on a stored copy, and
--listen, --dial, --join, --discovery and --token, to connect to peers; all that print take --json.
Exit codes: 1 no such document, or an incomplete recovery; 2 usage; 3 cannot listen; 4 no peer connected in
time. docs/documents.md"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    for name, own in add_actions(parser, ACTIONS).items():
        own.epilog = TABLE[name].epilog or None
        add(own, TABLE[name])


def check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for arguments of the action that do not go together."""
    _module(arguments).check(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; return its exit code."""
    from nngkit.documents.names import check_name

    for name in (getattr(arguments, "name", None), *getattr(arguments, "names", ())):
        if name is not None:
            check_name(name)  # before a store or a network is opened
    code: int = _module(arguments).run(arguments)
    return code


def _module(arguments: argparse.Namespace) -> Any:
    name = {"import": "import_"}.get(arguments.action, arguments.action)
    return import_module(f"nngkit.cli.doc.{name}")
