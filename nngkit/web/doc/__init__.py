"""The page that edits documents: a peer in JavaScript, and where its built form is. Its sources lie beside this file.

`python3 dev.py web` builds it, in a checkout; a wheel that was built after that has it. What it does:
docs/documents.md, "In a browser"; how: the first lines of replica.js and peer.js. For a peer that listens on ws::

    site = page_site(repair=peer.repair_addresses, bus=peer.addresses, documents=lambda: ["minutes"], store=origin)
    server = await nursery.start(nngkit.web.server.serve, site)
    print(nngkit.web.server.link(server.url, token="..."))

Knows addresses and names, no peer: who has one passes in what the page needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from nngkit.errors import ConfigError
from nngkit.web.site import Site

__all__ = ["page_folder", "page_site"]


def page_folder() -> Path:
    """The folder of the built page. Raises ConfigError, which says how to build it, where it is not built."""
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
    """The page for the peer whose REP listens at `repair` and whose BUS at `bus`. Only ws and wss addresses count.

    Of `bus` the page is told host and port alone, to be allowed to connect there: the path is secret, and comes with
    the welcome. `documents`: names to choose from, asked at each request. `store`: what stays the same as long as the
    documents do, the origin of the peer's stream for example; the browser keeps what is written offline under it, and
    the page refuses to join another. None: the browser keeps nothing. `folder`: a page built elsewhere.

    Raises ConfigError where the page is not built, or no address is one that a page can dial.
    """
    sockets = [address for address in repair if address.startswith(("ws://", "wss://"))]
    if not sockets:
        raise ConfigError("repair", "a page reaches ws:// and wss:// alone, and the peer listens on neither", repair)
    buses = [address for address in bus if address.startswith(("ws://", "wss://"))]

    def config() -> object:
        return {"repair": sockets, "documents": sorted(documents()), "store": store}

    return Site.load(folder or page_folder(), json={"config.json": config}, connect=[*sockets, *buses])
