"""`nngkit resolve NAME`: its options. What it does is in resolving.py."""

from __future__ import annotations

import argparse
from typing import Final

from nngkit.cli import options
from nngkit.cli.tls import add_tls

__all__ = ["EPILOG", "add_arguments", "run"]

EPILOG: Final = "Exit codes: 0 ok, 1 nobody of that NAME, 2 usage, 3 no daemon there, 4 a daemon that does not answer."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("name", metavar="NAME", help="the service")
    parser.add_argument(
        "--zone", metavar="ZONE", help="a provider of this zone, if there is one (default: NNGKIT_ZONE)"
    )
    options.add(parser, "daemon", "timeout", "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do it. What that takes comes in now: a help does without trio."""
    from nngkit.cli import resolving

    return resolving.run(arguments)
