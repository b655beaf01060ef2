"""`nngkit discover`: its options. What it does is in discovering.py."""

from __future__ import annotations

import argparse
from typing import Final

from nngkit.cli import options
from nngkit.cli.tls import add_tls

__all__ = ["EPILOG", "add_arguments", "run"]

EPILOG: Final = "Exit codes: 0 ok, 1 nobody of that NAME, 2 usage, 3 no daemon there, 4 a daemon that does not answer."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="only providers of this service")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--all", action="store_true", help="also who cannot be called now: suspect, draining, down")
    what.add_argument("--rounds", action="store_true", help="the daemons' last rounds and counters instead")
    options.add(parser, "daemon", "timeout", "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do it. What that takes comes in now: a help does without trio."""
    from nngkit.cli import discovering

    return discovering.run(arguments)
