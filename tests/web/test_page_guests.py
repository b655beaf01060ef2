"""Pages of guests: a name is proven by the pass of a link, and a policy says what it may."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from selenium import webdriver

from nngkit.documents import DocumentPeer
from nngkit.testing import aeventually
from nngkit.trust import Folder, Trust, passes
from nngkit.web.server import Server, link
from tests.web.browsers import Page
from tests.web.homes import NEEDED, serving

pytestmark = NEEDED

POLICY = """\
realm = "farm"
version = {version}
{revoked}
[role.hub]
names = ["hub"]
edit = ["*"]

[role.ada]
names = ["guest.ada"]
edit = ["minutes"]

[role.bob]
names = ["guest.bob"]
view = ["minutes"]
"""
BODY = "return document.getElementById('text').value"
WHY = "return document.getElementById('refused-why').textContent"


class Home:
    """A peer with a trust, and its page."""

    def __init__(self, folder: Folder, peer: DocumentPeer, server: Server) -> None:
        self.folder, self.peer, self.server = folder, peer, server
        self.minutes = peer.open("minutes").text("body")

    @contextlib.asynccontextmanager
    async def page(self, driver: webdriver.Chrome, guest: str, *, hours: float = 1.0) -> AsyncIterator[Page]:
        url = link(self.server.url, guest=guest, hours=hours, realm=self.folder.realm, doc="minutes")
        page = await Page.open(driver, url, name=None)
        try:
            yield page
        finally:
            await page.close()


def write(folder: Folder, version: int, revoked: str = "") -> None:
    (folder.path / "policy.toml").write_text(POLICY.format(version=version, revoked=revoked))
    folder.sign()


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    folder = Folder.new(tmp_path, "farm")
    write(folder, 2)
    passes.write(tmp_path / "hub.pass", folder.realm.issue("hub"))
    peer = DocumentPeer(listen="ws://127.0.0.1:0", relay=True, trust=Trust(tmp_path / "hub.pass"))
    async with peer, serving(peer, store=True) as server:
        peer.open("minutes").text("body").insert(0, "hello")
        yield Home(folder, peer, server)


async def test_a_guest_with_the_right_edits_and_one_with_view_sees(browser: webdriver.Chrome, home: Home) -> None:
    async with home.page(browser, "guest.ada") as ada, home.page(browser, "guest.bob") as bob:
        await ada.sees(BODY, "hello")
        await ada.types("!", at=5)
        await aeventually(lambda: str(home.minutes) == "hello!", 15)
        await bob.sees(BODY, "hello!")
        await bob.types("FORGED", at=0)
        await aeventually(lambda: home.peer.stats.refused.get("right", 0) >= 1, 15)
        assert str(home.minutes) == "hello!"
        await ada.types("?", at=6)
        await aeventually(lambda: str(home.minutes) == "hello!?", 15)
        assert "pass=" not in await ada.script("return location.href")


async def test_a_guest_that_is_revoked_leaves_and_does_not_come_back(browser: webdriver.Chrome, home: Home) -> None:
    async with home.page(browser, "guest.ada") as page:
        await page.sees(BODY, "hello")
        write(home.folder, 3, 'revoked = ["guest.ada"]')
        await page.sees(f"{WHY}.includes('revoked: guest.ada')", True)
        home.minutes.append(" later")
        assert await page.script(BODY) == "hello"


async def test_a_page_without_a_pass_is_refused(browser: webdriver.Chrome, home: Home) -> None:
    page = await Page.open(browser, link(home.server.url, doc="minutes"), name=None)
    await page.sees(f"{WHY}.includes('the token is wrong or missing')", True)
    assert await page.script(BODY) == ""
    await page.script(
        "window.got = 0; window.bus = new WebSocket(arguments[0], 'bus.sp.nanomsg.org');"
        "bus.onmessage = () => { got++; }",
        home.peer.address,
    )
    await page.sees("return [bus.readyState, got]", [3, 0])  # a BUS takes no page without a session
    (complaint,) = await page.complaints()  # of this page, and not of the next test's: the browser has one log
    assert "403" in complaint
    await page.close()
