"""The actions of `nngkit doc` and their options, in one table. Loads nothing but argparse.

>>> ACTIONS["cat"].takes[0]
'NAME'
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from nngkit.cli import options
from nngkit.cli.options import Option
from nngkit.cli.tls import add_tls

BODY: Final = "body"  # the text that the page of `doc serve` edits too
MANY: Final[Mapping[str, Any]] = {"action": "append", "default": [], "metavar": "URL"}


OPTIONS: Final = {
    "NAME": Option("name", metavar="NAME", help="the document"),
    "[NAME]": Option("names", metavar="NAME", nargs="*", help="documents (default: all of the store)"),
    "[NAMED]": Option("names", metavar="NAME", nargs="*", help="documents to open and check"),
    "NAMES": Option("names", metavar="NAME", nargs="*", help="documents (default: all)"),
    "VERSION": Option("version", metavar="VERSION", help="name of the version"),
    "DIR": Option("dir", metavar="DIR", help="the folder, created if it does not exist"),
    "SOURCE": Option("source", metavar="FILE|DIR", help="a .txt or .json file, or a folder of them"),
    "DAMAGED": Option("damaged", metavar="FILE", help="the damaged store"),
    "TO": Option("to", metavar="TO", help="the new store, for the intact parts"),
    "store": Option("--store", metavar="FILE", help="the file that stores the documents"),
    "the store": Option("--store", metavar="FILE", required=True, help="the file that stores the documents"),
    "listen": Option("--listen", **MANY, type=options.address, help="listen for peers; may be repeated"),
    "dial": Option("--dial", **MANY, type=options.address, help="dial a peer's BUS; may be repeated"),
    "join": Option(
        "--join",
        **MANY,
        type=options.address,
        help="join the peers of this one, at the address that `doc serve` prints; may end in #token=TOKEN; "
        "may be repeated",
    ),
    "token": Option(
        "--token",
        variables=("NNGKIT_TOKEN",),
        secret=True,
        metavar="TOKEN",
        help="the peers' shared secret (default: NNGKIT_TOKEN)",
    ),
    "me": Option("--name", dest="me", metavar="TEXT", help="name shown to others (default: the login)"),
    "relay": Option("--relay", action="store_true", help="relay messages between peers"),
    "discovery": Option(
        "--discovery", **MANY, type=options.address, help="survey address of a discovery daemon: find peers by document"
    ),
    "timeout": Option(
        "--timeout", type=options.seconds, default=5.0, metavar="S", help="seconds to wait for peers (default: 5)"
    ),
    "json": options.OPTIONS["json"],
    "text": Option("--text", default=BODY, metavar="ROOT", help=f"the document's text (default: {BODY})"),
    "editor": Option("--editor", action="store_true", help="edit a copy with $VISUAL or $EDITOR, and merge"),
    "whole": Option("--json", action="store_true", help="print the whole document as one JSON object"),
    "follow": Option("--follow", action="store_true", help="go on, and print changes as they arrive"),
    "at": Option("--at", metavar="VERSION", help="print this saved version"),
    "each": Option("--each", action="store_true", help="a line for each edit, not for each sitting"),
    "as": Option("--as", dest="name", metavar="NAME", help="name of the document (one FILE only)"),
    "interval": Option(
        "--interval", type=options.more_than_no_seconds, metavar="S", help="repeat every S seconds (default: once)"
    ),
    "only": Option(
        "--only", action="append", metavar="PATTERN", help="documents that peers may open: minutes/* (default: all)"
    ),
    "no-token": Option(
        "--no-token", action="store_true", help="accept every peer that connects; also over tcp and ipc"
    ),
    "http": Option(
        "--http",
        type=options.host_port,
        metavar="[HOST:]PORT",
        help="address of the page, and of /healthz, /readyz, /metrics, /v1/... (default: 127.0.0.1:4780)",
    ),
    "https": Option(
        "--https",
        type=options.host_port,
        metavar="[HOST:]PORT",
        help="address of the page over TLS, with --cert and --key; with --trust by default with the pass",
    ),
    "guests": Option(
        "--guests",
        **MANY,
        type=options.address,
        help="with --trust: listen for pages of guests (default with --https: wss:// at its host, port 4713)",
    ),
    "http-name": options.OPTIONS["http-name"],
    "max-pipes": Option(
        "--max-pipes", type=partial(options.whole, least=1, most=1_000_000), metavar="N", help=options.MAX_PIPES
    ),
    "URL": Option("url", metavar="URL", help="address of the page, as `doc serve` prints it"),
    "guest": Option("--guest", required=True, metavar="NAME", help="name of the guest, which a policy knows"),
    "hours": Option(
        "--hours", type=options.more_than_no_seconds, default=8.0, metavar="H", help="how long it is valid (default: 8)"
    ),
    "realm": Option("--realm", default=".", metavar="FOLDER", help="folder of the realm, with realm.key (default: .)"),
    "document": Option("--doc", dest="document", metavar="NAME", help="the document to open"),
    "no-page": Option("--no-page", action="store_true", help="serve peers only"),
}
NET: Final = ("listen", "dial", "join", "discovery", "token", "me", "relay", "timeout", "tls")


@dataclass(frozen=True)
class Action:
    """An action of `nngkit doc`: its summary, and the keys of the OPTIONS that it takes."""

    summary: str
    takes: tuple[str, ...]
    epilog: str = ""


ACTIONS: Final[dict[str, Action]] = {
    "edit": Action(
        "edit a text in the terminal, at the same time as other peers",
        ("NAME", "text", "editor", "store", *NET, "json"),
        "keys: arrows, home, end, page keys; Ctrl-S waits until the text is durable; Ctrl-Z and Ctrl-Y undo and redo;\n"
        "Ctrl-Q quits. --json: one line on exit.",
    ),
    "cat": Action(
        "print a text of a document, or all of its content", ("NAME", "text", "whole", "follow", "at", "store", *NET)
    ),
    "log": Action("list edits by author, time and size, and saved versions", ("NAME", "each", "the store", "json")),
    "versions": Action("list the saved versions", ("NAME", "the store", "json")),
    "save": Action("save a version under a name", ("NAME", "VERSION", "store", *NET, "json")),
    "export": Action(
        "write documents into a folder: texts as .txt, whole documents as .json",
        ("NAMES", "DIR", "store", *NET, "json"),
    ),
    "import": Action(
        "change documents to the content of files, with minimal edits, in one transaction each",
        ("SOURCE", "as", "text", "store", *NET, "json"),
    ),
    "compact": Action("merge the log of each document in a store into one snapshot", ("[NAME]", "the store", "json")),
    "recover": Action("copy the intact parts of a damaged store into a new one", ("DAMAGED", "TO", "json")),
    "status": Action(
        "show peers, the documents each has, and counts of losses, refusals and repairs",
        ("[NAMED]", "interval", "store", *NET, "json"),
    ),
    "link": Action(
        "print a link by which a guest edits or views documents in a browser",
        ("URL", "guest", "hours", "realm", "document"),
    ),
    "serve": Action(
        "serve a folder of documents to peers and, with the page, to browsers",
        (
            "DIR",
            "listen",
            "guests",
            "http",
            "https",
            "http-name",
            "no-page",
            "max-pipes",
            "only",
            "no-token",
            "token",
            "me",
            "dial",
            "join",
            "discovery",
            "tls",
            "json",
            "shared-files",
        ),
    ),
}


def add(parser: argparse.ArgumentParser, action: Action) -> None:
    """Add the options of `action` to its parser."""
    for name in action.takes:
        if name == "tls":
            add_tls(parser)
        elif name == "shared-files":
            options.add(parser, name)
        else:
            options.add(parser, name, options=OPTIONS)
