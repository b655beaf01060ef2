"""Picture of the status page for the documentation: `python -m tools.status_page` writes docs/status-page.png.

A daemon with services of an invented shop, some providers of which drain, in a headless Chromium.
"""

from __future__ import annotations

from base64 import b64decode
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import trio

from nngkit import Service
from nngkit.cli.discovery.discoverd import _sections
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.testing import aeventually
from nngkit.web.door import Door
from nngkit.web.server import serve
from nngkit.web.status import Feed, page_site
from tests.web.browsers import Page, chromium

PICTURE = Path(__file__).parent.parent / "docs" / "status-page.png"
SIZE = (1200, 760)  # CSS pixels
PATIENCE = 20.0  # seconds
# providers of each service, and how many of them drain
SHOP = {
    "basket": 6,
    "catalogue": 9,
    "login": 4,
    "mail": 2,
    "pay": 6,
    "prices": 5,
    "search": 12,
    "stock": 4,
}
ZONES = ("ny", "ldn", "sgp")
DRAIN = {"pay": 1, "mail": 2, "search": 3}


async def main() -> None:
    """Write the picture."""
    settings = DaemonSettings(listen=("tcp://127.0.0.1:0",), deadline=0.2, interval=0.2)
    async with Daemon(settings) as daemon, trio.open_nursery() as nursery, AsyncExitStack() as stack:
        feed = Feed("nngkit discoverd", _sections(daemon, None))
        nursery.start_soon(feed.run)
        server = await nursery.start(partial(serve, Door("nngkit discoverd", {}, events=feed, beyond=page_site())))
        draining = []
        for name, count in SHOP.items():
            for number in range(count):
                zone, priority = ZONES[number % len(ZONES)], 1 if number < count - 1 else 8
                address = f"tcp://10.{number % len(ZONES)}.0.{number + 10}:{9000 + list(SHOP).index(name)}"
                one = Service(name, address, discovery=daemon.addresses, zone=zone, priority=priority, version="2.4.1")
                await stack.enter_async_context(one)
                draining += [one] if number < DRAIN.get(name, 0) else []
        await aeventually(lambda: sum(daemon.stats.discovery.up.values()) == sum(SHOP.values()), PATIENCE)
        driver = await trio.to_thread.run_sync(stack.enter_context, chromium())
        page = await Page.open(driver, server.url, name=None)
        await page.has_size(*SIZE)
        await page.sees("return document.querySelectorAll('#tiles li').length", len(SHOP))
        for one in draining:
            one.drain()
        await page.sees("return document.querySelectorAll('#tiles .draining').length > 0", True)
        await page.sees("return document.querySelectorAll('#pulse span').length > 30", True)
        picture = await page.command("Page.captureScreenshot", format="png")
        await trio.Path(PICTURE).write_bytes(b64decode(picture["data"]))
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
