"""Status page of a daemon: its state in a browser, kept current by server-sent events. docs/operating.md.

::

    table.py       rows by key, and what has changed of them
    feed.py        GET /v1/events: the tables of a daemon, to many pages
    sections.py    tables that are read again and again
    services.py    tables of a view of services
    documents.py   tables of a document peer
    page/          what the browser loads: HTML, CSS and JavaScript, served as it is

One page serves all daemons: it shows the tables that `/v1/events` names. table.py is pure.
"""

from pathlib import Path

from nngkit.web.site import Site
from nngkit.web.status.feed import Feed, FeedStats, Section

__all__ = ["Feed", "FeedStats", "Section", "page_site"]


def page_site() -> Site:
    """Return the page's files."""
    return Site.load(Path(__file__).with_name("page"))
