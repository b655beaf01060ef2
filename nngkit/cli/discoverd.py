"""`nngkit discoverd`: its options. What it does is in serving.py."""

from __future__ import annotations

import argparse
from typing import Any, Final

from nngkit.cli import options
from nngkit.cli.ranges import partition
from nngkit.cli.tls import add_tls

__all__ = ["EPILOG", "add_arguments", "run"]

EPILOG: Final = """\
Environment: PORT, DEADLINE and INTERVAL (milliseconds) as in the article this follows, NNGKIT_PORT and so on beside
them, NNGKIT_LISTEN, NNGKIT_QUERY, NNGKIT_CERT; options win. docs/discovery.md has them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    url: dict[str, Any] = {"type": options.address, "action": "append", "metavar": "URL"}
    parser.add_argument("--listen", **url, help="survey here, may be repeated (default: tcp://127.0.0.1:5555)")
    parser.add_argument("--query", **url, help="answer callers here, may be repeated (default: the next port)")
    number: dict[str, Any] = {"type": options.more_than_no_seconds, "metavar": "S"}
    parser.add_argument("--deadline", **number, help="seconds that a round waits for replies (default: 5)")
    number["type"] = options.seconds
    parser.add_argument("--interval", **number, help="seconds of pause after a round (default: 2)")
    parser.add_argument("--no-text", action="store_true", help="do not ask in the article's text form")
    parser.add_argument("--journal", metavar="JOURNAL", help="keep every round in this journal (docs/journal.md)")
    parser.add_argument(
        "--partition", type=partition, default=0, metavar="N", help="of the journal: one recorder each (default: 0)"
    )
    options.add(parser, "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do it. What that takes comes in now: a help does without trio."""
    from nngkit.cli import serving

    return serving.run(arguments)
