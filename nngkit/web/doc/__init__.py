"""The page that edits documents: a peer in JavaScript, and the location of its build. Its sources lie beside this file.

`python3 dev.py web` builds it in a checkout; wheels built after that contain it. docs/documents.md, "In a browser",
describes it; replica.js and peer.js describe the implementation. For a peer that listens on ws::

    site = page_site(repair=peer.page_addresses, bus=peer.addresses, documents=lambda: ["minutes"], store=origin)
    server = await nursery.start(nngkit.web.server.serve, site)
    print(nngkit.web.server.link(server.url, token="..."))

Knows addresses and names but no peer: the caller passes in what the page needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from nngkit.documents.sync.addresses import advertised
from nngkit.errors import ConfigError
from nngkit.web.site import Site

__all__ = ["page_folder", "page_site"]


def page_folder() -> Path:
    """Return the folder of the built page. Raises ConfigError, with the way to build it, if it is not built."""
    folder = Path(__file__).parents[1] / "static" / "doc"
    if not (folder / "index.html").is_file():
        raise ConfigError(
            "document page",
            "is not built: run `python3 dev.py web` in a checkout (it needs Node.js and npm), "
            "or install a wheel that was built after that",
            str(folder),
        )
    return folder


def page_site(
    *,
    repair: Sequence[str],
    bus: Sequence[str],
    documents: Callable[[], Iterable[str]],
    store: str | None = None,
    folder: Path | None = None,
) -> Site:
    """Return the page of the peer whose REP listens at `repair` and BUS at `bus`. Only ws and wss addresses count.

    All interfaces stand for the host that the browser has asked. The page gets only host and port of `bus`, for its
    security policy: an address of it comes with the welcome.
    `documents`: the names on offer, called for each request. `store`: a text that stays the same as long as the
    documents do, for example the origin of the peer's stream. The browser stores offline edits under it, and the page
    refuses to join another store. None: the browser stores nothing. `folder`: a page built elsewhere.

    Raises ConfigError if the page is not built, or no address is one that a page can dial.
    """
    sockets = [advertised(address) for address in repair if address.startswith(("ws://", "wss://"))]
    if not sockets:
        raise ConfigError("repair", "a page can dial only ws:// and wss://, and the peer listens on neither", repair)
    buses = [advertised(address) for address in bus if address.startswith(("ws://", "wss://"))]

    def config() -> object:
        return {"repair": sockets, "documents": sorted(documents()), "store": store}

    return Site.load(folder or page_folder(), json={"config.json": config}, connect=[*sockets, *buses])
