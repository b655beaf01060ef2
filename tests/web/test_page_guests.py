"""Pages of guests: a name is proven by the pass of a link, and a policy says what it may."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from nngkit.documents import DocumentPeer
from nngkit.protocols import TLS
from nngkit.testing import aeventually
from nngkit.trust import Trust, passes
from nngkit.web.server import Server, link
from tests.trust.one_realm import FARM, OneRealm
from tests.web.browsers import ELSEWHERE, Page
from tests.web.certificates import OF_PAGE, OF_PASS
from tests.web.homes import NEEDED, serving

pytestmark = NEEDED

POLICY = 'hub | edit = ["*"]', 'guest.ada | edit = ["minutes"]', 'guest.bob | view = ["minutes"]'
BODY = "return document.getElementById('text').value"
NAMES = "return [...document.querySelectorAll('#people li')].map(item => item.title)"
WHY = "return document.getElementById('refused-why').textContent"


class Home:
    """A peer with a trust, and its page."""

    def __init__(self, farm: OneRealm, peer: DocumentPeer, server: Server) -> None:
        self.farm, self.peer, self.server = farm, peer, server
        self.minutes = peer.open("minutes").text("body")

    @contextlib.asynccontextmanager
    async def page(self, driver: webdriver.Chrome, guest: str, *, hours: float = 1.0) -> AsyncIterator[Page]:
        url = link(self.server.url, guest=guest, hours=hours, realm=FARM, doc="minutes")
        page = await Page.open(driver, url, name=None)
        try:
            yield page
        finally:
            await page.close()


@contextlib.asynccontextmanager
async def opened(farm: OneRealm, tls: TLS | Trust | None, **options: Any) -> AsyncIterator[Home]:
    farm.policy(*POLICY)
    async with DocumentPeer(relay=True, **options) as peer, serving(peer, store=True, tls=tls) as server:
        peer.open("minutes").text("body").insert(0, "hello")
        yield Home(farm, peer, server)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    farm = OneRealm(tmp_path)
    async with opened(farm, None, listen="ws://127.0.0.1:0", trust=farm.trust("hub")) as home:
        yield home


async def test_a_guest_with_the_right_edits_and_one_with_view_sees(browser: webdriver.Chrome, home: Home) -> None:
    async with home.page(browser, "guest.ada") as ada, home.page(browser, "guest.bob") as bob:
        await ada.sees(BODY, "hello")
        await bob.sees(NAMES, ["ada"])  # of the pass
        await ada.types("!", at=5)
        await aeventually(lambda: str(home.minutes) == "hello!", 15)
        await bob.sees(BODY, "hello!")
        await bob.types("FORGED", at=0)
        await aeventually(lambda: home.peer.stats.refused.get("right", 0) >= 1, 15)
        assert str(home.minutes) == "hello!"
        await ada.types("?", at=6)
        await aeventually(lambda: str(home.minutes) == "hello!?", 15)
        assert "pass=" not in await ada.script("return location.href")
        assert await ada.script("return document.getElementById('copy').hidden")  # what it copies would be no one's


@pytest.mark.parametrize("shown", ["a certificate of its own", "the pass"])
async def test_a_guest_comes_from_another_machine_by_https(
    browser: webdriver.Chrome, tmp_path: Path, shown: str
) -> None:
    farm, of_pass = OneRealm(tmp_path), shown == "the pass"
    passes.write(tmp_path / "hub.pass", OF_PASS.text)
    trust = farm.trust("hub")
    tls = None if of_pass else TLS(cert=OF_PAGE.chain, key=OF_PAGE.key)
    options = {"listen": "wss://0.0.0.0:0", "guests": "wss://0.0.0.0:0", "guests_tls": tls, "trust": trust}
    async with opened(farm, tls or trust, **options) as home:
        assert home.server.url.startswith(f"https://{ELSEWHERE}:")
        async with home.page(browser, "guest.ada") as ada:
            await ada.sees(BODY, "hello")
            assert await ada.script("return [isSecureContext, location.hostname]") == [True, ELSEWHERE]
            await ada.types("!", at=5)
            await aeventually(lambda: str(home.minutes) == "hello!", 15)
            assert await ada.complaints() == []


async def test_a_guest_that_is_revoked_leaves_and_does_not_come_back(browser: webdriver.Chrome, home: Home) -> None:
    async with home.page(browser, "guest.ada") as page:
        await page.sees(BODY, "hello")
        home.farm.policy(*POLICY, revoked=("guest.ada",))
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
