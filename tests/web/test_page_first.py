"""The page's start screen and its error messages."""

from __future__ import annotations

import pytest
import trio
from selenium import webdriver

from nngkit.testing import aeventually
from nngkit.web.server import link
from tests.web.browsers import Page
from tests.web.homes import KEY, NEEDED, joined, peer, serving

pytestmark = NEEDED
STATE = "return document.getElementById('state-text').textContent"
SHOWN = (
    "return [...document.querySelectorAll('input, textarea, select, .screen button')]"
    ".filter(node => node.checkVisibility() && !node.closest('[inert]')).map(node => node.id)"
)
NAMES = "return [...document.querySelectorAll('#list a')].map(link => link.textContent)"


async def test_link_to_an_empty_server_leads_to_a_first_document(browser: webdriver.Chrome) -> None:
    async with (
        peer() as home,
        serving(home, documents=()) as server,
        joined(browser, server, doc=None, name=None) as page,
    ):
        await page.is_in("online")
        await page.sees(STATE, "Connected")
        assert await page.script("return document.getElementById('no-documents').checkVisibility()")
        assert await page.script(SHOWN) == ["new-name", ""], "nothing takes text that would go nowhere"
        assert not await page.script("return document.getElementById('notice').checkVisibility()")

        await page.types("minutes/first\n", "#new-name")
        await page.sees("return document.querySelector('h1').textContent", "minutes/first")
        await page.is_in("online")
        await page.types("hello")
        await aeventually(lambda: str(home.open("minutes/first").text("body")) == "hello", what="the edit arrives")

        await page.do((await page.find("#all")).click)
        await page.sees(NAMES, ["minutes/first"])
        await page.do((await page.find("#list a")).click)
        await page.shows("hello")


async def test_existing_documents_can_be_chosen(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home, documents=("plan", "a & b=c")) as server:
        home.open("a & b=c").text("body").insert(0, "both")
        async with joined(browser, server, doc=None, name=None) as page:
            await page.sees(NAMES, ["a & b=c", "plan"])
            await page.do((await page.find("#list a")).click)
            await page.shows("both")


@pytest.mark.parametrize("name", ["../etc", "a//b", "a\u202eb", "x" * 300])
async def test_invalid_name_in_the_link_is_reported_at_once(browser: webdriver.Chrome, name: str) -> None:
    async with peer() as home, serving(home) as server, joined(browser, server, doc=name, name=None) as page:
        await page.is_in("online")
        told = await page.script("return document.getElementById('new-why').textContent")
        assert f"“{name}”" in told
        assert "Choose a document from the list" in told
        await page.sees(NAMES, ["minutes"])
        assert "textarea" not in await page.script(SHOWN)
        assert home.refusals == ()


async def test_typed_name_is_checked_before_it_is_opened(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server, joined(browser, server, doc=None, name=None) as page:
        await page.is_in("online")
        await page.types("../etc\n", "#new-name")
        await page.sees("return document.getElementById('new-why').checkVisibility()", True)
        assert await page.do((await page.find("#new-name")).is_displayed)
        assert "segment" in await page.script("return document.getElementById('new-why').textContent")
        await page.types("x", "#new-name")
        await page.sees("return document.getElementById('new-why').checkVisibility()", False)
        assert home.refusals == ()


async def test_document_that_is_not_served_is_reported_and_not_editable(browser: webdriver.Chrome) -> None:
    async with peer(accept=lambda name: name == "plan") as home, serving(home, documents=("plan",)) as server:
        home.open("plan")
        async with joined(browser, server, doc="minutes") as page:
            await page.sees(
                "return document.getElementById('refused-title').textContent", "This document is not served here"
            )
            await page.sees("return document.getElementById('main').checkVisibility()", False)
            await page.do(page.driver.find_element("css selector", "#refused-list a").click)
            await page.sees(NAMES, ["plan"])


async def test_wrong_key_disables_the_start_screen(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server:
        home.open("minutes")
        async with joined(browser, server, key="wrong", doc=None, name=None) as page:
            await page.is_in("refused")
            await page.sees(SHOWN, ["token"])
            await page.types(KEY + "\n", "#token")
            await page.is_in("online")
            await page.sees("return document.getElementById('new').checkVisibility()", True)


async def test_peer_of_another_version_is_reported(browser: webdriver.Chrome) -> None:
    """A newer home, with a welcome of version 2. The page stops retrying."""
    async with peer() as home, serving(home) as server:
        page = await Page.open(browser, link(server.url, token=KEY, doc="minutes"))
        try:
            await page.is_in("online")
            await page.do(
                lambda: page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NEWER})
            )
            await page.do(page.driver.refresh)
            await page.is_in("refused")
            await page.sees(
                "return document.getElementById('refused-title').textContent",
                "The page and its peer have different versions",
            )
            assert await page.do((await page.find("#reload")).is_displayed)
        finally:
            with trio.CancelScope(shield=True):
                await page.close()


NEWER = """
const { get } = Object.getOwnPropertyDescriptor(MessageEvent.prototype, "data");
Object.defineProperty(MessageEvent.prototype, "data", { get() {
  const data = get.call(this);
  if (!(data instanceof ArrayBuffer)) return data;
  const bytes = new Uint8Array(data.slice(0));
  const key = bytes.findIndex((byte, i) => byte === 0x61 && bytes[i + 1] === 0x76 && bytes[i + 2] === 1); // "v": 1
  if (key >= 0) bytes[key + 2] = 2;
  return bytes.buffer;
} });
"""


async def test_copied_link_has_key_and_document(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server, joined(browser, server) as page:
        await page.is_in("online")
        copy = await page.find("#copy")
        await page.script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        await page.do(copy.click)
        await page.sees("return window.copied", link(server.url, token=KEY, doc="minutes"))
        await page.sees("return document.getElementById('copy').textContent", "Copied")
        await page.sees("return document.getElementById('copy').textContent", "Copy link")

        await page.script("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
        await page.do(copy.click)
        await page.sees("return document.activeElement.id", "link")
        await page.sees("return getSelection().toString()", link(server.url, token=KEY, doc="minutes"))


async def test_skip_link_focuses_the_text_and_keeps_the_address(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server, joined(browser, server) as page:
        home.open("minutes").text("body").insert(0, "here")
        await page.shows("here")
        await page.script("document.getElementById('skip').click()")
        await page.sees("return document.activeElement.id", "text")
        assert (await page.script("return location.hash")) == "#doc=minutes"
