"""The actions of `nngkit doc`, and what each takes: one table. Loads nothing but argparse.

>>> ACTIONS["cat"].room
'reading'
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from nngkit.cli import options
from nngkit.cli.options import Option
from nngkit.cli.tls import add_tls

__all__ = ["ACTIONS", "BODY", "Action", "add"]

BODY: Final = "body"  # the text that the page of `doc serve` edits too
MANY: Final[Mapping[str, Any]] = {"action": "append", "default": [], "metavar": "URL"}


def _port(text: str) -> tuple[str, int]:
    """HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not (host and colon):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), options.whole(port, 0, 65535)


_peers: Final = partial(options.whole, least=1, most=64)

ROWS: Final = {
    "NAME": Option(("name",), {"metavar": "NAME", "help": "the document"}),
    "[NAME]": Option(("names",), {"metavar": "NAME", "nargs": "*", "help": "documents (default: all of the store)"}),
    "[NAMED]": Option(("names",), {"metavar": "NAME", "nargs": "*", "help": "documents to look into"}),
    "NAMES": Option(("names",), {"metavar": "NAME", "nargs": "*", "help": "documents (default: all there are)"}),
    "VERSION": Option(("version",), {"metavar": "VERSION", "help": "what to call it"}),
    "DIR": Option(("dir",), {"metavar": "DIR", "help": "the folder, made if there is none"}),
    "SOURCE": Option(("source",), {"metavar": "FILE|DIR", "help": "a .txt or .json file, or a folder of them"}),
    "DAMAGED": Option(("damaged",), {"metavar": "FILE", "help": "the store that is refused"}),
    "TO": Option(("to",), {"metavar": "TO", "help": "the store to be made of what is good in it"}),
    "TRACE": Option(("trace",), {"metavar": "FILE", "help": "the trace: JSON, also compressed by gzip"}),
    "store": Option(("--store",), {"metavar": "FILE", "help": "the file that keeps the documents"}),
    "the store": Option(
        ("--store",), {"metavar": "FILE", "required": True, "help": "the file that keeps the documents"}
    ),
    "listen": Option(
        ("--listen",), {**MANY, "type": options.address, "help": "be there for other peers; may be repeated"}
    ),
    "dial": Option(("--dial",), {**MANY, "type": options.address, "help": "go to a peer's BUS; may be repeated"}),
    "join": Option(
        ("--join",),
        {
            **MANY,
            "type": options.address,
            "help": "ask there where the BUS is, as `doc serve` says it; may end in #token=TOKEN; may be repeated",
        },
    ),
    "token": Option(("--token",), {"metavar": "TOKEN", "help": "what opens the door (default: NNGKIT_TOKEN)"}),
    "me": Option(("--name",), {"dest": "me", "metavar": "TEXT", "help": "who I am to others (default: the login)"}),
    "relay": Option(("--relay",), {"action": "store_true", "help": "pass on what one peer says to the others"}),
    "discovery": Option(
        ("--discovery",),
        {**MANY, "type": options.address, "help": "where a discovery daemon surveys: find peers by document"},
    ),
    "timeout": Option(
        ("--timeout",),
        {"type": options.seconds, "default": 5.0, "metavar": "S", "help": "seconds to wait for others (default: 5)"},
    ),
    "json": options.OPTIONS["json"],
    "text": Option(
        ("--text",), {"default": BODY, "metavar": "ROOT", "help": f"which text of the document (default: {BODY})"}
    ),
    "editor": Option(("--editor",), {"action": "store_true", "help": "edit a copy with $VISUAL or $EDITOR, and merge"}),
    "whole": Option(("--json",), {"action": "store_true", "help": "print all that is in it as one JSON object"}),
    "follow": Option(("--follow",), {"action": "store_true", "help": "go on, and print changes as they come"}),
    "at": Option(("--at",), {"metavar": "VERSION", "help": "as it was saved under that name"}),
    "each": Option(("--each",), {"action": "store_true", "help": "a line for each edit, not for each sitting"}),
    "as": Option(("--as",), {"dest": "name", "metavar": "NAME", "help": "call the document so (one FILE only)"}),
    "interval": Option(
        ("--interval",),
        {"type": options.more_than_no_seconds, "metavar": "S", "help": "look again every S seconds (default: once)"},
    ),
    "only": Option(
        ("--only",),
        {"action": "append", "metavar": "PATTERN", "help": "documents that others may open: minutes/* (default: all)"},
    ),
    "no-token": Option(
        ("--no-token",), {"action": "store_true", "help": "let in everybody who can connect; also over tcp and ipc"}
    ),
    "http": Option(
        ("--http",),
        {
            "type": _port,
            "default": ("127.0.0.1", 4780),
            "metavar": "HOST:PORT",
            "help": "where the page is (default: 127.0.0.1:4780)",
        },
    ),
    "no-page": Option(("--no-page",), {"action": "store_true", "help": "serve peers alone"}),
    "peers": Option(
        ("--peers",), {"type": _peers, "default": 2, "metavar": "N", "help": "peers, from 1 to 64 (default: 2)"}
    ),
    "until": Option(
        ("--timeout",),
        {
            "type": options.more_than_no_seconds,
            "default": 60.0,
            "metavar": "S",
            "help": "seconds that nothing may move before it is given up (default: 60)",
        },
    ),
    "transport": Option(
        ("--transport",),
        {"choices": ("tcp", "ipc", "inproc", "ws"), "default": "tcp", "help": "between the peers (default: tcp)"},
    ),
}
NET: Final = ("listen", "dial", "join", "discovery", "token", "me", "relay", "timeout", "tls")


@dataclass(frozen=True)
class Action:
    """`what` it does, for helps; the `room` (module) that does it, in a function of the action's name or `does`;
    the rows it `takes`."""

    what: str
    room: str
    takes: tuple[str, ...]
    epilog: str = ""
    does: str = ""


ACTIONS: Final[dict[str, Action]] = {
    "edit": Action(
        "edit a text in the terminal, together with everybody who has it open",
        "editing",
        ("NAME", "text", "editor", "store", *NET, "json"),
        "keys: arrows, home, end, page keys; Ctrl-S waits until it is on a disk; Ctrl-Z and Ctrl-Y undo and redo;\n"
        "Ctrl-Q leaves. --json: one line when it is left.",
    ),
    "cat": Action(
        "print a text of a document, or all that is in it",
        "reading",
        ("NAME", "text", "whole", "follow", "at", "store", *NET),
    ),
    "log": Action(
        "say who edited when and how much, and which versions were saved",
        "keeping",
        ("NAME", "each", "the store", "json"),
    ),
    "versions": Action("list the versions that were saved", "keeping", ("NAME", "the store", "json")),
    "save": Action("save a version under a name", "keeping", ("NAME", "VERSION", "store", *NET, "json")),
    "export": Action(
        "write documents into a folder: texts as .txt, everything as .json",
        "files",
        ("NAMES", "DIR", "store", *NET, "json"),
    ),
    "import": Action(
        "bring documents to what files say, in one edit each that changes as little as can be",
        "files",
        ("SOURCE", "as", "text", "store", *NET, "json"),
        does="import_",
    ),
    "compact": Action("make one snapshot of what a store has of documents", "keeping", ("[NAME]", "the store", "json")),
    "recover": Action("copy what is good of a damaged store into a new one", "keeping", ("DAMAGED", "TO", "json")),
    "status": Action(
        "say who is there, what is where, and what was lost, refused and repaired",
        "status",
        ("[NAMED]", "interval", "store", *NET, "json"),
    ),
    "serve": Action(
        "serve a folder of documents to peers and, with the page, to browsers",
        "serving",
        (
            "DIR",
            "listen",
            "http",
            "no-page",
            "only",
            "no-token",
            "token",
            "me",
            "dial",
            "join",
            "discovery",
            "tls",
            "json",
        ),
    ),
    "replay": Action(
        "replay a recorded editing trace through real peers, and compare",
        "replaying",
        ("TRACE", "peers", "transport", "until", "json"),
        "The format is that of the public editing traces: txns of patches [position, deleted, inserted] in code\n"
        "points, and with `parents` and `agent` where several wrote at once. Exit code 1: the end is another.",
    ),
}


def add(parser: argparse.ArgumentParser, action: Action) -> None:
    """The options of an action."""
    for name in action.takes:
        if name == "tls":
            add_tls(parser)
        else:
            parser.add_argument(*ROWS[name].flags, **ROWS[name].keywords)


Run = Callable[[argparse.Namespace], int]
