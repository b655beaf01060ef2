"""The options that several commands share, in one table: what they are called, what they take, what they mean.

::

    options.add(parser, "json", "timeout")

A value that cannot be read is one line from argparse: `argument --timeout: '5s' is not a number of seconds`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

__all__ = ["OPTIONS", "Option", "Parser", "add", "address", "more_than_no_seconds", "parser_for", "seconds"]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser_for(command: str, summary: str, epilog: str) -> Parser:
    """The parser of a command, to be given its options."""
    return Parser(
        prog=f"nngkit {command}",
        description=f"{summary.capitalize()}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def more_than_no_seconds(text: str) -> float:
    """A number of seconds, over 0."""
    if not (number := seconds(text)):
        raise argparse.ArgumentTypeError(f"{text!r} seconds are no time at all")
    return number


def address(text: str) -> str:
    """A URL; whether its scheme and host are any good, the socket says."""
    scheme, colon, rest = text.partition("://")
    if not (scheme and colon and rest):
        raise argparse.ArgumentTypeError(f"{text!r} is not an address like tcp://host:port")
    return text


@dataclass(frozen=True)
class Option:
    """One row: the names on the command line, and the rest as argparse takes it."""

    flags: tuple[str, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)


OPTIONS: Final = {
    "json": Option(("--json",), {"action": "store_true", "help": "print JSON, one object a line (docs/schemas/)"}),
    "timeout": Option(
        ("--timeout",),
        {"type": seconds, "default": 2.0, "metavar": "S", "help": "seconds to wait for an answer (default: 2)"},
    ),
    "daemon": Option(
        ("--daemon",),
        {
            "type": address,
            "action": "append",
            "metavar": "URL",
            "help": "where a daemon answers, once for each (default: NNGKIT_QUERY, or DISCOVERY_HOST and the port "
            "after DISCOVERY_PORT, or tcp://127.0.0.1:5556)",
        },
    ),
}


def add(parser: argparse.ArgumentParser, *names: str) -> None:
    """Give `parser` the options of that name."""
    for name in names:
        parser.add_argument(*OPTIONS[name].flags, **OPTIONS[name].keywords)
