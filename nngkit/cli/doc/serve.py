"""`nngkit doc serve`: serve a folder of documents to peers and, with the page, to browsers.

::

    $ nngkit doc serve notes
    http://127.0.0.1:4780/#token=9f0c...
    nngkit doc serve: notes: peers join at ws://127.0.0.1:4712/repair, as
        nngkit doc edit NAME --join 'ws://127.0.0.1:4712/repair#token=9f0c...'

The link is printed once, on stdout, and grants access. Its token is printed to a terminal alone, as all else may be a
log: there a line says where it is. Browsers do not send the part after # to the server. Everything is stored in
DIR/docs.sqlite, and the token that it made in DIR/docs.token. The peer relays, as a page connects to it alone.

To other machines it goes over TLS: `--https 0.0.0.0:4780 --cert page.pem --key page.key`, and pages connect to wss://.
With a trust, that is an address of its own, for guests only: peers elsewhere show their pass.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO
from urllib.parse import urlencode

import trio

from nngkit.background import Background
from nngkit.cli import door
from nngkit.cli.doc.opening import in_trio, settings, stored
from nngkit.cli.options import limit_pipes
from nngkit.cli.streams import notify
from nngkit.cli.streams.output import json_line, utc
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import certificate_of, has_trust
from nngkit.cli.tokens import from_environment, kept
from nngkit.documents import DocumentPeer, PeerStats
from nngkit.errors import ConfigError, StoreDamaged
from nngkit.file_modes import make_folder
from nngkit.protocols import TLS
from nngkit.trust import OPEN, Trust, chosen

if TYPE_CHECKING:
    from nngkit.web.door import Route
    from nngkit.web.site import Site

NAME: Final = "nngkit doc serve"
STORE: Final = "docs.sqlite"
TOKEN: Final = "docs.token"  # it stays, so that links and peers are admitted after a restart
LISTEN: Final = "ws://127.0.0.1:4712"  # fixed: browsers store offline edits by address
HTTP: Final = ("127.0.0.1", 4780)
PEERS, GUESTS = 4712, 4713  # ports beside that of --https


def check(arguments: argparse.Namespace) -> tuple[dict[str, Any], TLS | None]:
    """Return the settings of the peer, and the certificate of its page. Raises ConfigError if arguments conflict."""
    if arguments.no_token and (arguments.token or from_environment()):
        raise ConfigError("--no-token", "conflicts with --token or NNGKIT_TOKEN")
    tls = _secure(arguments) if arguments.https is not None else None
    arguments.listen = arguments.listen or [LISTEN]
    arguments.timeout = None
    return settings(arguments), tls


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; return the exit code."""
    folder = Path(arguments.dir)
    given, tls = check(arguments)
    limit_pipes(arguments)
    try:
        make_folder(folder)
    except OSError as error:
        raise ConfigError("DIR", f"{folder}: {error.strerror or error}", arguments.dir) from error
    token_file = None
    if given["token"] is None and not arguments.no_token and not isinstance(chosen(None, given["tls"]), Trust):
        token_file = folder.absolute() / TOKEN
        given["token"] = kept(token_file)
    path = folder / STORE
    known: list[str] = []
    if path.exists():
        with stored(str(path)) as store:
            known = store.names()
    patterns = arguments.only or []

    def accept(name: str) -> bool:
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    async def work() -> None:
        more = {"guests": arguments.guests, "guests_tls": tls} if arguments.guests else {}
        peer = DocumentPeer(**{**given, **more, "relay": True, "store": path, "accept": accept})
        async with peer, AsyncExitStack() as page:
            for name in filter(accept, known):
                try:
                    peer.open(name)
                except StoreDamaged as damage:
                    say(NAME, f"not served: {damage}")
            url = await _page(peer, arguments, tls, page)
            _report(peer, url, given["token"], token_file, arguments)
            notify.ready(f"serves {arguments.dir}")  # without the link, which grants access
            await trio.sleep_forever()

    return in_trio(work)


def _secure(arguments: argparse.Namespace) -> TLS | None:
    """Set the addresses beside that of --https; return the page's certificate, None for that of the pass."""
    if arguments.http is not None:
        raise ConfigError("--http", "conflicts with --https")
    host = arguments.https[0]
    named = f"wss://[{host}]" if ":" in host else f"wss://{host}"
    tls = certificate_of(arguments)
    if has_trust(arguments, {}):
        arguments.cert = arguments.key = None  # those of peers are passes
        arguments.guests = arguments.guests or [f"{named}:{GUESTS}"]
    elif tls is None:
        raise ConfigError("--https", "needs --cert and --key, or a pass: --trust")
    else:
        arguments.listen = arguments.listen or [f"{named}:{PEERS}"]
    return tls


async def _page(
    peer: DocumentPeer, arguments: argparse.Namespace, tls: TLS | None, running: AsyncExitStack
) -> str | None:
    """Serve the page and the door by HTTP, until `running` ends.

    Return the URL of the page, None without one: peers still are served.
    """
    from nngkit.web.serving import serving

    page = None if arguments.no_page else _site(peer)
    if page is None and arguments.http is None:
        return None
    host, port = arguments.https or arguments.http or HTTP
    shown = None if arguments.https is None else tls or chosen(None)
    shown = None if shown is OPEN else shown
    background = await running.enter_async_context(Background())
    site, add = _door(peer, page, (host, port), background, tell=arguments.http is not None)
    server = await running.enter_async_context(
        serving(site, host=host, port=port, names=arguments.http_name, tls=shown)
    )
    add(server)
    url: str = server.url
    if page is not None:
        return url
    say(NAME, f"answers HTTP at {url}")
    return None


def _site(peer: DocumentPeer) -> Site | None:
    """Return the page, or say why there is none."""
    if not peer.page_addresses:
        say(NAME, "no page: it needs a ws:// or wss:// listener, or with a trust --https")
        return None
    from nngkit.web.doc import page_site

    try:
        return page_site(
            repair=peer.page_addresses, bus=peer.addresses, documents=lambda: _shown(peer), store=peer.me.origin.hex()
        )
    except ConfigError as error:
        say(NAME, f"no page: the {error}")
        return None


def _shown(peer: DocumentPeer) -> list[str]:
    """Return the names of the documents. With a trust none: a guest learns in the welcome which it may have."""
    return [] if isinstance(chosen(None), Trust) else list(peer.documents)


@dataclass(frozen=True, slots=True)
class DocumentsState:
    """State of a server of documents. `stream`: the one of its own edits."""

    stream: str
    addresses: tuple[str, ...]
    counters: PeerStats


def _door(
    peer: DocumentPeer, page: Site | None, http: tuple[str, int], background: Background, *, tell: bool
) -> tuple[Site, Callable[[Any], object]]:
    """Return the page with the door, or alone where other machines can reach it.

    Without it, the status page is there.
    """
    from nngkit.web.door import Rows, Value
    from nngkit.web.status import documents, page_site

    try:
        door.check_place(http)
    except ConfigError:
        if page is None:
            raise
        return page, lambda server: None

    def state() -> dict[str, Any]:
        return asdict(DocumentsState(str(peer.me), tuple(peer.addresses), peer.stats))

    routes: dict[str, Route] = {
        "v1/documents": Rows(
            "Open documents: edits in each, and peers that have it open.",
            lambda: documents.document_rows(peer, _shown(peer)),
            asdict,
            door.state_schema(documents.OpenDocument),
        ),
        "v1/peers": Rows(
            "Peers of which a message came within the last three seconds.",
            lambda: documents.peer_rows(peer),
            asdict,
            door.state_schema(documents.OtherPeer),
        ),
        "v1/peer": Value("This peer, and its counters.", state, door.state_schema(DocumentsState)),
    }
    events = door.feed_of(NAME, routes, documents.sections(peer, partial(_shown, peer)))
    background.start(events.run)
    beyond = page_site() if page is None else page
    return door.make(NAME, routes, watch=[peer, events], beyond=beyond, events=events, tell=tell)


def _report(
    peer: DocumentPeer, url: str | None, token: str | None, token_file: Path | None, arguments: argparse.Namespace
) -> None:
    """Print the link and the addresses. A token goes to a terminal alone: what else is there may be a log."""
    secret = f"#{urlencode({'token': token})}" if token else ""

    def shown(address: str, stream: TextIO | None) -> str:
        return f"{address}{secret}" if _is_terminal(stream) else address

    joins = peer.repair_addresses
    if arguments.json:
        fields: dict[str, Any] = {
            "event": "serving",
            "time": utc(time.time()),
            "page": None if url is None else shown(url, sys.stdout),
            "join": [shown(join, sys.stdout) for join in joins],
            "addresses": list(peer.addresses),
            "stream": str(peer.me),
            "documents": sorted(peer.documents),
            "token_file": None if token_file is None else str(token_file),
        }
        print(json_line(fields), flush=True)
        return
    if url is not None:
        print(shown(url, sys.stdout), flush=True)
    say(NAME, f"{arguments.dir}: peers join at {' '.join(joins)}")
    others = sys.stderr if url is not None else sys.stdout
    by_file = ""
    if token_file is not None and not _is_terminal(others):
        say(NAME, f"the token is in {token_file}; the link for browsers ends in #token=TOKEN")
        by_file = f"NNGKIT_TOKEN_FILE={shlex.quote(str(token_file))} "
    for join in joins:
        print(f"{by_file}nngkit doc edit NAME --join '{shown(join, others)}'", file=others, flush=True)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
