"""The page in a real browser with real peers: editing, cursors, offline use, keys, losses."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import trio
from selenium import webdriver

from nngkit.documents.document import Document
from nngkit.documents.engine import yjs
from nngkit.documents.shared import Map
from nngkit.documents.sync.faults import NetworkFaults
from nngkit.testing import aeventually
from nngkit.web.doc import page_site
from nngkit.web.server import Server, serve
from tests.web.browsers import Page
from tests.web.homes import KEY, NEEDED, joined, peer, port_of, serving

pytestmark = NEEDED
HTML = "<img src=x onerror=alert(1)>"


async def equal(page: Page, document: Document) -> None:
    """Wait until page and peer have equal content digests."""
    await page.shows_digest(document.digest())


async def test_a_page_and_a_program_edit_text_and_table_together(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        body, columns, rows = doc.text("body"), doc.array("columns"), doc.array("rows")
        body.insert(0, "Tea 👩‍🚀 at four")
        columns.append("item")
        rows.append(Map({"item": "tea", "price": 3.5}))
        async with joined(browser, server) as page:
            await page.shows("Tea 👩‍🚀 at four")
            await page.shows_table(["item", "price"], ["tea", "3.5"])

            await page.types("!", at=len("Tea 👩‍🚀 at four".encode("utf-16-le")) // 2)
            await aeventually(lambda: str(body) == "Tea 👩‍🚀 at four!", what="typed text arrives")
            body.insert(4, "中 ")
            await page.shows("Tea 中 👩‍🚀 at four!")
            await page.types("?")  # the caret stays after its letter
            await aeventually(lambda: str(body) == "Tea 中 👩‍🚀 at four!?", what="the caret has moved with the text")

            await page.types("0", "tbody tr:nth-child(1) td:nth-child(2) input")
            await aeventually(lambda: rows[0]["price"] == 3.5, what="3.50 is the number 3.5")
            await page.types("1\n", "tbody tr:nth-child(1) td:nth-child(2) input")
            await aeventually(lambda: rows[0]["price"] == 3.501, what="a number stays a number")
            rows.append(Map({"item": "milk"}))
            await page.shows_table(["item", "price"], ["tea", "3.501"], ["milk", ""])
            button = await page.find("#add-row")
            await page.do(button.click)
            await aeventually(lambda: len(rows) == 3, what="a row is added")
            await page.types(HTML, "tbody tr:nth-child(3) input")
            await aeventually(lambda: rows[2].get("item") == HTML, what="and filled in")
            await page.catches_up()
            await equal(page, doc)

            undo = await page.find("#undo")
            for _ in range(6):
                if await page.do(undo.is_enabled):
                    await page.do(undo.click)
            await aeventually(lambda: str(body) == "Tea 中 👩‍🚀 at four", what="only the page's own edits are undone")
            await equal(page, doc)
        assert home.refusals == ()


async def test_page_says_not_saved_from_an_edit_on_that_its_peer_refuses(
    browser: webdriver.Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = yjs.YjsDocument._read

    def strict(self: yjs.YjsDocument, update: bytes) -> Any:
        if b"@" in update:
            raise ValueError("not an update: it holds an @")
        return read(self, update)

    monkeypatch.setattr(yjs.YjsDocument, "_read", strict)
    said = "return document.getElementById('state-text').textContent"
    async with peer(store=tmp_path / "docs.sqlite") as home, serving(home, store=True) as server:
        doc = home.open("minutes")
        async with joined(browser, server) as page:
            await page.types("Tea")
            await page.sees(said, "All changes saved")
            await page.types("@")
            await page.sees(said, "Not saved")
            await page.is_in("refused")
            await page.types(" at four")
            await page.sees(said, "Not saved")
            assert "it holds an @" in await page.script("return document.getElementById('notice').textContent")
            assert str(doc.text("body")) == "Tea"
            doc.text("body").insert(0, "Green ")
            await page.shows("Green Tea@ at four")
            await page.sees(said, "Not saved")
        async with joined(browser, server) as page:  # the browser has kept them
            await page.shows("Green Tea@ at four")
            await page.sees(said, "Not saved")


async def test_cursors_and_people_are_visible_on_both_sides(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        doc.text("body").insert(0, "One 😀 two")
        async with joined(browser, server, name=HTML) as page:
            await page.shows("One 😀 two")
            doc.awareness.local = {"user": {"name": HTML}, "cursor": doc.awareness.cursor("body", 6, 9)}
            before = "const range = document.createRange(); const mark = document.querySelector('#mirror .caret');"
            await page.sees(
                f"{before} range.setStart(document.getElementById('mirror'), 0); range.setEndBefore(mark);"
                "return [mark.dataset.name, range.toString(), document.querySelector('#mirror mark').textContent]",
                [HTML, "One 😀 two", "two"],
            )
            await page.sees(
                "return [...document.querySelectorAll('#people li')].map(item => item.innerText.trim())", [HTML]
            )

            await page.types("", at=6)
            await aeventually(lambda: places(doc) == {("body", 5, 5)}, what="its caret is visible, in code points")
            assert {state["user"]["name"] for state in doc.awareness.states.values()} == {HTML}
            doc.text("body").insert(0, "Zero ")
            await aeventually(lambda: places(doc) == {("body", 10, 10)}, what="and stays at its letter")
            doc.awareness.local = None
            await page.sees("return document.querySelectorAll('#people li, #mirror .caret').length", 0)
        await aeventually(lambda: places(doc) == set(), what="a closed page says goodbye")


def places(doc: Document) -> set[tuple[str, int, int]]:
    """Return the cursors of the others."""
    states = [state for client, state in doc.awareness.states.items() if client != doc.client_id]
    return {found for state in states if (found := doc.awareness.find(state["cursor"])) is not None}


async def test_offline_edits_arrive_when_the_peer_is_back(browser: webdriver.Chrome, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    async with peer(store=store) as home:
        port = port_of(home)
        async with serving(home, store=True) as server, joined(browser, server) as page:
            doc = home.open("minutes")
            doc.text("body").insert(0, "start")
            doc.array("columns").append("item")
            await page.shows("start")
            await page.sees("return document.getElementById('state-text').textContent", "All changes saved")
            await home.aclose()
            await page.is_in("offline")

            await page.types(" page", at=5)
            await page.do((await page.find("#add-row")).click)
            await page.types("tea\n", "tbody input")
            await trio.sleep(0.5)  # a cell is written shortly after the last key, and stored shortly after that
            await page.do(page.driver.refresh)
            await page.shows("start page")
            await page.shows_table(["item"], ["tea"])
            await page.is_in("offline")
            await page.types("!", at=10)

            async with peer(port, store=store) as again:
                doc = again.open("minutes")
                doc.text("body").insert(0, "desk ")
                await page.is_in("online")
                await page.shows("desk start page!")
                await aeventually(lambda: str(doc.text("body")) == "desk start page!", what="offline edits arrive")
                assert doc.array("rows")[0]["item"] == "tea"
                await page.sees("return document.getElementById('state-text').textContent", "All changes saved")
                await equal(page, doc)
                assert again.refusals == ()


async def test_stored_rows_are_merged_without_changing_the_content(browser: webdriver.Chrome, tmp_path: Path) -> None:
    async with peer(store=tmp_path / "store") as home, serving(home, store=True) as server:
        doc = home.open("minutes")
        async with joined(browser, server) as page:
            await page.is_in("online")
            for round_ in range(3):
                await page.script(  # each character is an edit and a row in the database
                    "const field = document.getElementById('text'); const [from, to] = arguments;"
                    "for (let i = from; i < to; i++) {"
                    " field.value += i % 10; field.dispatchEvent(new Event('input')); }",
                    round_ * 250,
                    round_ * 250 + 250,
                )
                await page.sees("return document.getElementById('state-text').textContent", "All changes saved")
                await page.do(page.driver.refresh)
                await page.is_in("online")
                await page.shows("0123456789" * (25 * (round_ + 1)))
            assert await rows_kept(page) <= 252, "750 rows were written"
            assert str(doc.text("body")) == "0123456789" * 75
            await page.catches_up()
            await equal(page, doc)


async def rows_kept(page: Page) -> int:
    """Return the number of rows in the browser's database."""
    script = (
        "const done = arguments[0];"
        "indexedDB.databases().then(found => {"
        " const opening = indexedDB.open(found[0].name); opening.onsuccess = () => {"
        " const count = opening.result.transaction('rows').objectStore('rows').count();"
        " count.onsuccess = () => { opening.result.close(); done(count.result); }; }; });"
    )
    return int(await page.do(lambda: page.driver.execute_async_script(script)))


async def test_page_is_editable_offline_and_synchronizes_afterwards(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server, joined(browser, server) as page:
        doc = home.open("minutes")
        doc.text("body").insert(0, "one")
        await page.shows("one")
        await network(page, there=False)
        await page.is_in("offline")
        await page.types(" page", at=3)
        doc.text("body").insert(0, "desk ")
        assert str(doc.text("body")) == "desk one"
        await network(page, there=True)
        await page.shows("desk one page")
        await aeventually(lambda: str(doc.text("body")) == "desk one page", what="both are in sync")
        await page.catches_up()
        await equal(page, doc)


async def network(page: Page, *, there: bool) -> None:
    conditions = {"offline": not there, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    await page.do(lambda: page.driver.execute_cdp_cmd("Network.enable", {}))
    await page.do(lambda: page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions))


async def test_wrong_key_is_refused_and_the_right_key_admitted(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        doc.text("body").insert(0, "secret")
        for key in (None, "wrong"):
            async with joined(browser, server, key=key) as page:
                await page.is_in("refused")
                await page.sees("return document.getElementById('refused').hidden", False)
                await page.sees("return document.getElementById('main').inert", True)
                assert await page.script("return document.getElementById('text').value") == ""
                assert "token" in await page.script("return document.getElementById('refused-why').textContent")
                assert home.peers == ()
                if key is None:
                    continue
                await page.types(KEY + "\n", "#token")
                await page.shows("secret")
                await page.sees("return document.getElementById('refused').hidden", True)
                await page.types("!", at=6)
                await aeventually(lambda: str(doc.text("body")) == "secret!", what="it may write")


async def test_key_leaves_the_address_bar_and_reaches_no_server(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server, joined(browser, server) as page:
        await page.is_in("online")
        assert await page.do(lambda: page.driver.current_url) == f"{server.url}#doc=minutes"
        asked = await page.script("return performance.getEntriesByType('resource').map(entry => entry.name)")
        assert asked
        assert [url for url in asked if "key" in url] == []
        await page.do(page.driver.refresh)
        await page.is_in("online")


async def test_edits_lost_on_the_bus_are_given(browser: webdriver.Chrome) -> None:
    faults = NetworkFaults(loss=0.7)
    async with peer(faults=faults) as home, serving(home) as server, joined(browser, server) as page:
        doc = home.open("minutes")
        await page.is_in("online")
        for number in range(20):
            await page.types(f"{number} ")
        text = "".join(f"{number} " for number in range(20))
        await aeventually(lambda: str(doc.text("body")) == text, what="all of it arrives")
        assert faults.lost > 5
        faults.loss = 0.0
        await page.catches_up()
        await equal(page, doc)


async def test_two_pages_edit_together_through_a_relay(browser: webdriver.Chrome) -> None:
    async with peer(relay=True) as home, serving(home) as server:
        doc = home.open("minutes")
        async with joined(browser, server, name="Ann") as ann, joined(browser, server, name="Ben") as ben:
            await ann.is_in("online")
            await ben.is_in("online")
            await ann.types("from Ann")
            await ben.shows("from Ann")
            await ben.types(", from Ben", at=8)
            await ann.shows("from Ann, from Ben")
            await ann.sees(
                "return [...document.querySelectorAll('#people li')].map(item => item.innerText.trim())", ["Ben"]
            )
            await ann.catches_up()
            await equal(ann, doc)
            await equal(ben, doc)


async def test_long_paste_arrives_in_parts(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server, joined(browser, server) as page:
        doc = home.open("minutes")
        await page.is_in("online")
        book = "".join(f"{number} 😀 lorem ipsum\n" for number in range(30_000))
        await page.script(
            "const field = document.getElementById('text'); field.value = arguments[0];"
            "field.dispatchEvent(new Event('input'))",
            book,
        )
        await aeventually(lambda: len(doc.text("body")) == len(book), what="all of it arrives")
        assert str(doc.text("body")) == book
        await page.catches_up()
        await equal(page, doc)


async def test_lone_surrogate_is_replaced_in_the_field_with_a_notice(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server, joined(browser, server) as page:
        doc = home.open("minutes")
        doc.array("columns").append("who")
        doc.array("rows").append(Map({"who": "Ada"}))
        await page.is_in("online")
        await page.sees("return document.querySelectorAll('td input').length", 1)
        for field in ("document.getElementById('text')", "document.querySelector('td input')"):
            await page.sees("return document.getElementById('notice').hidden", True)
            await page.script(
                f"const field = {field}; field.value = 'a' + String.fromCharCode(0xd83d) + 'b';"
                "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind))"
            )
            await page.sees(f"return {field}.value", "a\ufffdb")
            await page.sees("return document.getElementById('notice').hidden", False)
            await page.script("document.getElementById('notice').hidden = true")
        await aeventually(
            lambda: doc.plain() == {"body": "a\ufffdb", "columns": ["who"], "rows": [{"who": "a\ufffdb"}]}, what="all"
        )
        await page.catches_up()
        await equal(page, doc)


async def test_large_document_is_fetched_in_chunks(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        body = doc.text("body")
        body.insert(0, "0123456789abcde\n" * 200_000)  # 3 MB, 13 chunks
        async with joined(browser, server) as page:
            await page.sees("return document.getElementById('text').value.length", 3_200_000)
            await page.catches_up()
            await equal(page, doc)


async def test_another_store_at_the_same_address_gets_no_edits_of_the_page(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with peer(store=tmp_path / "one") as home:
            port = port_of(home)
            home.open("minutes").text("body").insert(0, "private")
            async with serving(home, store=True) as server:
                page = await stack.enter_async_context(joined(browser, server))
                await page.shows("private")
        await page.is_in("offline")
        async with peer(port, store=tmp_path / "two") as other, serving(other, store=True, port=server.port):
            await page.is_in("refused")
            await page.sees(
                "return document.getElementById('refused-title').textContent", "This address now serves other documents"
            )
            assert "reload the page" in await page.script("return document.getElementById('refused-why').textContent")
            assert not await page.do((await page.find("#token")).is_displayed)
            assert await page.script("return document.getElementById('text').value") == "private"
            assert await page.script("return document.getElementById('text').readOnly")
            assert other.peers == ()
            await page.do((await page.find("#reload")).click)
            await page.is_in("online")
            await page.catches_up()
            await page.shows("")
            assert str(other.open("minutes").text("body")) == ""
            await page.types("its own")
            await aeventually(lambda: str(other.open("minutes").text("body")) == "its own", what="it may be edited")


async def test_another_store_with_another_key_is_reported_as_another_store(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with peer(store=one) as home:
        port, repair, bus, store = port_of(home), home.repair_addresses, home.addresses, home.me.origin.hex()
    # the web server still announces the old store: only the peers know
    site = page_site(repair=repair, bus=bus, documents=lambda: ("minutes",), store=store)
    async with trio.open_nursery() as nursery:
        server: Server = await nursery.start(lambda task_status: serve(site, port=0, task_status=task_status))
        async with joined(browser, server) as page:
            async with peer(port, store=one) as home:
                home.open("minutes").text("body").insert(0, "private")
                await page.shows("private")
            await page.is_in("offline")
            async with peer(port, store=two, token="another key") as other:
                await page.is_in("refused")
                await page.sees(
                    "return document.getElementById('refused-title').textContent",
                    "This address now serves other documents",
                )
                assert other.peers == ()
        nursery.cancel_scope.cancel()


async def test_every_control_has_an_accessible_name(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home, documents=("minutes", "plan")) as server:
        doc = home.open("minutes")
        doc.array("columns").append("item")
        doc.array("rows").append(Map({"item": "tea"}))
        async with joined(browser, server) as page:
            await page.shows_table(["item"], ["tea"])
            names = await page.do(
                lambda: [
                    (element.tag_name, element.accessible_name)
                    for element in page.driver.find_elements("css selector", "button, input, textarea, select")
                    if element.is_displayed()
                ]
            )
            assert len(names) >= 9
            assert [tag for tag, name in names if not name] == []
            assert {"item, row 1", "Remove row 1", "Remove column item", "Another document", "Text"} <= {
                name for _, name in names
            }
