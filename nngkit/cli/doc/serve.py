"""`nngkit doc serve`: serve a folder of documents to peers and, with the page, to browsers.

::

    $ nngkit doc serve notes
    http://127.0.0.1:4780/#token=9f0c...
    nngkit doc serve: notes: peers join at ws://127.0.0.1:4712/repair, as
        nngkit doc edit NAME --join 'ws://127.0.0.1:4712/repair#token=9f0c...'

The link is printed once, on stdout, and grants access. Browsers do not send the part after # to the server. Everything
is stored in DIR/docs.sqlite, and the token that it made in DIR/docs.token. The peer relays, as a page connects to it
alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import trio

from nngkit.cli.doc.opening import in_trio, settings, stored
from nngkit.cli.options import limit_pipes
from nngkit.cli.streams import notify
from nngkit.cli.streams.output import json_line, utc
from nngkit.cli.streams.stderr import say
from nngkit.cli.tokens import from_environment, kept
from nngkit.documents import DocumentPeer
from nngkit.errors import ConfigError, StoreDamaged
from nngkit.file_modes import make_folder
from nngkit.trust import Trust, chosen

NAME: Final = "nngkit doc serve"
STORE: Final = "docs.sqlite"
TOKEN: Final = "docs.token"  # it stays, so that links and peers are admitted after a restart
LISTEN: Final = "ws://127.0.0.1:4712"  # fixed: browsers store offline edits by address


def check(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the peer. Raises ConfigError for arguments that do not go together."""
    if arguments.no_token and (arguments.token or from_environment()):
        raise ConfigError("--no-token", "conflicts with --token or NNGKIT_TOKEN")
    arguments.listen = arguments.listen or [LISTEN]
    arguments.timeout = None
    return settings(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; return the exit code."""
    folder = Path(arguments.dir)
    given = check(arguments)
    limit_pipes(arguments)
    try:
        make_folder(folder)
    except OSError as error:
        raise ConfigError("DIR", f"{folder}: {error.strerror or error}", arguments.dir) from error
    if given["token"] is None and not arguments.no_token and not isinstance(chosen(None, given["tls"]), Trust):
        given["token"] = kept(folder / TOKEN)
    path = folder / STORE
    known: list[str] = []
    if path.exists():
        with stored(str(path)) as store:
            known = store.names()
    patterns = arguments.only or []

    def accept(name: str) -> bool:
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    async def work() -> None:
        peer = DocumentPeer(**{**given, "relay": True, "store": path, "accept": accept})
        async with peer, trio.open_nursery() as nursery:
            for name in filter(accept, known):
                try:
                    peer.open(name)
                except StoreDamaged as damage:
                    say(NAME, f"not served: {damage}")
            url = None if arguments.no_page else await _page(peer, arguments, nursery)
            _report(peer, url, given["token"], arguments)
            notify.ready(f"serves {arguments.dir}")  # without the link, which grants access
            await trio.sleep_forever()

    return in_trio(work)


async def _page(peer: DocumentPeer, arguments: argparse.Namespace, nursery: trio.Nursery) -> str | None:
    """Serve the page and return its URL; None if it cannot be served: peers still are."""
    if not any(address.startswith("ws") for address in peer.addresses):
        say(NAME, "no page: it needs a ws:// or wss:// listener")
        return None
    from nngkit.web.doc import page_site
    from nngkit.web.server import serve as serve_site

    # with a trust, a guest learns in the welcome which documents it may have
    hidden = isinstance(chosen(None), Trust)
    documents: Callable[[], list[str]] = lambda: [] if hidden else list(peer.documents)  # noqa: E731
    try:
        site = page_site(
            repair=peer.repair_addresses, bus=peer.addresses, documents=documents, store=peer.me.origin.hex()
        )
    except ConfigError as error:
        say(NAME, f"no page: the {error}")
        return None
    host, port = arguments.http
    names = arguments.http_name or ()
    server = await nursery.start(
        lambda task_status: serve_site(site, host=host, port=port, names=names, task_status=task_status)
    )
    url: str = server.url
    return url


def _report(peer: DocumentPeer, url: str | None, token: str | None, arguments: argparse.Namespace) -> None:
    secret = f"#{urlencode({'token': token})}" if token else ""
    joins = [f"{address}{secret}" for address in peer.repair_addresses]
    if arguments.json:
        fields: dict[str, Any] = {
            "event": "serving",
            "time": utc(time.time()),
            "page": None if url is None else f"{url}{secret}",
            "join": joins,
            "addresses": list(peer.addresses),
            "stream": str(peer.me),
            "documents": sorted(peer.documents),
        }
        print(json_line(fields), flush=True)
        return
    if url is not None:
        print(f"{url}{secret}", flush=True)
    say(NAME, f"{arguments.dir}: peers join at {' '.join(peer.repair_addresses)}")
    for join in joins:
        line = f"nngkit doc edit NAME --join '{join}'"
        print(line, file=sys.stderr if url is not None else sys.stdout, flush=True)
