"""The status page in a headless Chromium: what it shows, also by keyboard, and what a hostile name does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import trio

from nngkit import Service
from nngkit.cli.discovery.discoverd import _sections
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.web.door import Door
from nngkit.web.server import serve
from nngkit.web.status import Feed, Section, page_site
from nngkit.web.status.table import Table
from tests.web.browsers import Page, chromium
from tests.web.gateways import calculating
from tests.web.homes import NEEDED
from tests.web.pages import built_page
from tests.web.test_page_axe import AXE, SIZES, found

pytestmark = NEEDED
HOSTILE = "<img src=x onerror=document.title='taken'>"
NAMES = "return [...document.querySelectorAll('#tiles .service')].map(name => name.textContent)"
FOCUSED = "return document.activeElement.textContent"


@contextlib.asynccontextmanager
async def watching(*more: Section) -> AsyncGenerator[tuple[Daemon, Page]]:
    """Open the page of a daemon."""
    settings = DaemonSettings(listen=("tcp://127.0.0.1:0",), deadline=0.2, interval=0.2)
    async with Daemon(settings) as daemon, trio.open_nursery() as nursery:
        feed = Feed("nngkit discoverd", [*_sections(daemon, None), *more])
        nursery.start_soon(feed.run)
        server = await nursery.start(partial(serve, Door("nngkit test", {}, events=feed, beyond=page_site())))
        driver = await nursery.start(_browser)
        yield daemon, await Page.open(driver, server.url, name=None)
        nursery.cancel_scope.cancel()


async def _browser(task_status: trio.TaskStatus[Any]) -> None:
    with chromium() as driver:
        task_status.started(driver)
        await trio.sleep_forever()


def service(daemon: Daemon, name: str, port: int, **options: Any) -> Service:
    return Service(name, f"tcp://127.0.0.1:{port}", discovery=daemon.addresses, **options)


async def test_services_come_and_go_and_a_hostile_name_is_text() -> None:
    async with watching() as (daemon, page):
        async with service(daemon, "pay", 1, zone="ny", priority=1), service(daemon, "ask", 2, zone="<b>bold"):
            async with service(daemon, "pay", 3), service(daemon, HOSTILE, 4):
                await page.sees(NAMES, [HOSTILE, "ask", "pay"])
                await page.sees("return document.querySelectorAll('img, b').length", 0)
                dots = "return [...document.querySelectorAll('#tiles li:last-child .group')].map(g => g.textContent)"
                await page.sees(dots, ["no zone · 8●", "ny · 1●"])
            await page.sees("return document.querySelectorAll('#tiles li[data-up=none]').length", 1)
            await page.sees("return document.querySelector('#ribbon li').className", "down")
            told = "document.getElementById('announce').textContent"  # three in full, and how many more
            await page.sees(f"return /is down: bye|more changes/.test({told})", True)
            # by keyboard: a tile, the one beside it, and its dialog
            await page.do(lambda: page.driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True}))
            await page.script("document.querySelector('#tiles button').focus()")
            keys = partial(page.types, selector="#tiles button:focus")
            await keys("\ue014")  # arrow right
            await page.sees(FOCUSED, "ask 1 of 1 up")
            await keys("\ue010")  # end
            await page.sees(FOCUSED, "pay 1 of 2 up")
            assert await page.script("return document.querySelectorAll('#tiles button[tabindex=\"0\"]').length") == 1
            await keys("\ue007")  # enter
            await page.sees("return document.getElementById('detail').open", True)
            await page.sees(
                "return document.getElementById('pick').textContent",
                "A caller that prefers no zone gets tcp://127.0.0.1:1 (priority 1).",
            )
            await page.types("\ue00c", selector="#close")  # escape
            await page.sees(FOCUSED, "pay 1 of 2 up")
            await page.types("AS", selector="#filter")
            await page.sees("return document.querySelectorAll('#tiles li:not([hidden])').length", 1)
        assert await page.script("return document.title") == "nngkit discoverd"
        assert await page.complaints() == []


async def many(rows: Table) -> None:
    """Have 500 services."""
    for number in range(500):
        row: dict[str, object] = {
            "name": f"service-{number:03}",
            "address": "tcp://127.0.0.1:1",
            "id": "1",
            "state": "up",
            "reason": "answered",
        }
        row |= {"since": 1e9, "zone": "", "priority": 8, "weight": 100, "version": "", "tags": [], "stale": False}
        rows.set(str(number), row)
    await trio.sleep_forever()


async def test_many_services_have_pages_by_mouse_keyboard_and_filter() -> None:
    feed = Feed("nngkit test", [Section({"services": "Services."}, many)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.run)
        server = await nursery.start(partial(serve, Door("nngkit test", {}, events=feed, beyond=page_site())))
        page = await Page.open(await nursery.start(_browser), server.url, name=None)
        await page.do(lambda: page.driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True}))
        tiles = "const names = [...document.querySelectorAll('#tiles .service')].map(name => name.textContent);"
        ends = f"{tiles} return [names.length, names[0], names.at(-1)]"
        told = "return document.getElementById('range').textContent"
        await page.sees(told, "1 to 240 of 500")
        assert await page.script(ends) == [240, "service-000", "service-239"]
        await page.do((await page.find("#next")).click)
        assert await page.script(ends) == [240, "service-240", "service-479"]
        await page.sees("return document.getElementById('announce').textContent", "Services 241 to 480 of 500")
        await page.script("document.querySelector('#tiles button[tabindex=\"0\"]').focus()")
        keys = partial(page.types, selector="#tiles button:focus")
        await keys("\ue012")  # arrow left, of the first tile
        await page.sees(FOCUSED, "service-239 1 of 1 up")
        assert await page.script(ends) == [240, "service-000", "service-239"]
        await keys("\ue010")  # end
        await page.sees(FOCUSED, "service-499 1 of 1 up")
        assert await page.script(ends) == [20, "service-480", "service-499"]
        assert await page.script("return document.querySelectorAll('#tiles button[tabindex=\"0\"]').length") == 1
        _have_axe()
        assert await found(page) == []
        await page.types("E-49", selector="#filter")
        await page.sees(ends, [10, "service-490", "service-499"])
        assert await page.script("return document.getElementById('pager').hidden") is True
        await page.types("x", selector="#filter")
        await page.sees(ends, [0, None, None])
        assert await page.complaints() == []
        nursery.cancel_scope.cancel()


def _have_axe() -> None:
    if not AXE.is_file():
        built_page()  # it comes with the packages of that page


async def tree(members: Table) -> None:
    """Have the tree of a cluster, as a host tells of it."""
    for number in range(3):
        parent = f"node-{number - 1}" if number else ""
        row = {"id": f"node-{number}", "parent": parent, "address": None, "slots": number, "kinds": ["render"]}
        members.set(str(number), row)
    await trio.sleep_forever()


async def test_axe_finds_nothing_on_any_screen() -> None:
    _have_axe()
    members = Section({"members": "Nodes."}, tree)
    async with watching(members) as (daemon, page), service(daemon, "pay", 1, zone="ny"):
        async with service(daemon, "pay", 2):
            await page.sees("return document.querySelectorAll('#tree li').length", 3)
            await page.sees("return document.querySelectorAll('#ribbon li').length", 2)
        for dark in (False, True):
            for size in SIZES.values():
                await page.has_size(*size)
                await page.is_dark(dark)
                assert await found(page) == []
                wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
                assert await page.script(wide) is False
        await page.script("document.querySelector('#tiles button').click()")
        await page.sees("return document.getElementById('detail').open", True)
        assert await found(page) == []


async def test_the_page_of_a_gateway_has_its_tables() -> None:
    async with calculating(publish="tcp://127.0.0.1:0") as (home, _), trio.open_nursery() as nursery:
        driver = await nursery.start(_browser)
        page = await Page.open(driver, home.http.url, name=None)
        await page.sees(NAMES, ["calc", "shout"])
        await home.call("calc/double", {"n": 1})
        cells = "document.querySelectorAll('#others section:has(#table-calls) td')"
        await page.sees(f"return [{cells}[0]?.textContent, {cells}[2]?.textContent]", ["calc", "1"])
        await page.sees("return document.getElementById('rounds').hidden", True)
        assert await page.complaints() == []
        nursery.cancel_scope.cancel()
