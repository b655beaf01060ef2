"""The options that several commands share, in one table: what they are called, what they take, what they mean.

::

    options.add(parser, "json", "timeout")

A value that cannot be read is one line from argparse: `argument --timeout: '5s' is not a number of seconds`.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

__all__ = [
    "OPTIONS",
    "ActionParser",
    "Option",
    "Parser",
    "add",
    "add_for",
    "add_seconds",
    "address",
    "more_than_no_seconds",
    "parser_for",
    "seconds",
    "size",
    "whole",
]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and which option or value was probably meant."""

    def error(self, message: str) -> NoReturn:
        from nngkit.cli.nearest import did_you_mean

        if (wrong := re.match(r"unrecognized arguments: (--[\w-]+)", message)) is not None:
            message += did_you_mean(wrong[1], self._option_string_actions)
        elif (wrong := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)) is not None:
            message += did_you_mean(wrong[1], re.findall(r"'(.*?)'", wrong[2]))
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class ActionParser(Parser):
    """The parser of an action. It refuses unknown options itself, so that the error names the action."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and leave nothing over."""
        found, over = super().parse_known_args(args, namespace)
        if over:
            self.error(f"unrecognized arguments: {' '.join(over)}")
        return found, over


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


def size(text: str) -> int:
    """A number of bytes, from 0 to 1 GiB."""
    return whole(text, 0, 1 << 30)


def whole(text: str, least: int, most: int) -> int:
    """A whole number in that range."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


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
    "cacert": Option(
        ("--cacert",), {"metavar": "FILE", "help": "TLS: the authority whose certificates are good (PEM)"}
    ),
    "cert": Option(("--cert",), {"metavar": "FILE", "help": "TLS: our own certificate (PEM)"}),
    "key": Option(("--key",), {"metavar": "FILE", "help": "TLS: its key (PEM)"}),
    "server-name": Option(
        ("--server-name",), {"metavar": "NAME", "help": "TLS: the name the listener has to have (default: the host)"}
    ),
    "insecure": Option(("--insecure",), {"action": "store_true", "help": "TLS: take any certificate"}),
    "max-size": Option(
        ("--max-size",),
        {
            "type": size,
            "default": 1 << 20,
            "metavar": "BYTES",
            "help": "the largest message let in, 0 for 1 GiB (default: 1048576)",
        },
    ),
}


def add(parser: argparse.ArgumentParser, *names: str) -> None:
    """Give `parser` the options of that name."""
    for name in names:
        parser.add_argument(*OPTIONS[name].flags, **OPTIONS[name].keywords)


def add_seconds(parser: argparse.ArgumentParser, flag: str, default: float, what: str) -> None:
    """Give `parser` an option that takes a length of time."""
    what = f"{what} (default: {default:g})"
    parser.add_argument(flag, type=more_than_no_seconds, default=default, metavar="S", help=what)


def add_for(parser: argparse.ArgumentParser, side: str, *names: str) -> None:
    """The same for one side of a command that has two: `--front-cert`, which comes before `--cert`."""
    for name in names:
        option = OPTIONS[name]
        keywords = {**option.keywords, "help": f"the same at the {side} alone"}
        parser.add_argument(*(f"--{side}-{flag.removeprefix('--')}" for flag in option.flags), **keywords)
