"""Homes of pages: a peer, its web server, and a tab that has joined."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio
from selenium import webdriver

from nngkit.documents.peer import DocumentPeer
from nngkit.protocols import TLS
from nngkit.trust import Trust
from nngkit.web.doc import page_site
from nngkit.web.server import Server, link, serve
from tests.web.browsers import ELSEWHERE, Page

KEY = "a key"
NEEDED = [
    pytest.mark.slow,  # Chromium takes seconds to start
    pytest.mark.timeout(120),
    pytest.mark.needs_program("node", package="nodejs"),
    pytest.mark.needs_program("chromium"),
    pytest.mark.needs_program("chromedriver", package="chromium-driver"),
]


def peer(port: int = 0, **options: Any) -> DocumentPeer:
    """Run a peer that a page can join."""
    usual: dict[str, Any] = {"token": KEY, "accept": lambda _: True, "name": "desk"}
    return DocumentPeer(listen=f"ws://127.0.0.1:{port}", **(usual | options))


def port_of(home: DocumentPeer) -> int:
    return int(home.repair_addresses[0].split(":")[2].split("/")[0])


@contextlib.asynccontextmanager
async def serving(
    home: DocumentPeer,
    *,
    store: bool = False,
    documents: tuple[str, ...] = ("minutes",),
    port: int = 0,
    tls: TLS | Trust | None = None,
) -> AsyncGenerator[Server]:
    """Serve the page of `home`; it outlives that peer, as its successor has the same addresses."""
    identity = home.me.origin.hex() if store else None
    site = page_site(repair=home.page_addresses, bus=home.addresses, documents=lambda: documents, store=identity)
    more: dict[str, Any] = {} if tls is None else {"host": "0.0.0.0", "names": (ELSEWHERE,), "tls": tls}
    async with trio.open_nursery() as nursery:
        server: Server = await nursery.start(
            lambda task_status: serve(site, port=port, task_status=task_status, **more)
        )
        yield server
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def joined(
    driver: webdriver.Chrome,
    server: Server,
    *,
    key: str | None = KEY,
    name: str | None = "Grace",
    doc: str | None = "minutes",
) -> AsyncGenerator[Page]:
    """Open a tab with the page; it must have logged no error in the end. `name` None: no user name is set."""
    page = await Page.open(driver, link(server.url, token=key, doc=doc), name=name)
    try:
        yield page
        complaints = await page.complaints()
        assert complaints == [], complaints
    finally:
        with trio.CancelScope(shield=True):
            await page.close()
