"""Several people in one document: remote edits take neither scroll position nor focus from the user."""

from __future__ import annotations

import contextlib
from typing import Any

from selenium import webdriver

from nngkit.documents import Document, DocumentPeer
from nngkit.documents.shared import Map
from nngkit.testing import aeventually
from tests.web.browsers import Page
from tests.web.homes import KEY, NEEDED, joined, peer, serving

pytestmark = NEEDED
PHONE = (390, 780)  # CSS pixels
LINES = "".join(f"line {number}\n" for number in range(200))
CELL = "tbody tr:nth-child({}) td:nth-child({}) input"


def table(doc: Document, *rows: dict[str, Any], columns: tuple[str, ...] = ("item", "price")) -> None:
    for column in columns:
        doc.array("columns").append(column)
    for row in rows:
        doc.array("rows").append(Map(row))


async def test_cells_show_the_other_people_in_them(browser: webdriver.Chrome) -> None:
    async with peer(relay=True) as home, serving(home) as server:
        table(home.open("minutes"), {"item": "tea"}, {"item": "milk"})
        async with joined(browser, server, name="Ann") as ann, joined(browser, server, name="Ben") as ben:
            for page in (ann, ben):
                await page.shows_table(["item", "price"], ["tea", ""], ["milk", ""])
            here = (
                "return [...document.querySelectorAll('td[data-here]')]"
                ".map(cell => [cell.dataset.here, cell.firstChild.ariaLabel])"
            )
            await ann.do((await ann.find(CELL.format(1, 1))).click)
            await ben.sees(here, [["Ann", "item, row 1"]])
            await ann.types("s")
            await ben.sees("return document.querySelector('#mirror .caret')?.dataset.name", "Ann")
            await ben.sees(here, [])
            await ann.do((await ann.find(CELL.format(2, 2))).click)
            await ben.sees(here, [["Ann", "price, row 2"]])
            await ben.sees("return document.querySelectorAll('#mirror .caret').length", 0)
            del home.open("minutes").array("rows")[0]
            await ben.sees(here, [["Ann", "price, row 1"]])
            del home.open("minutes").array("rows")[0]
            await ben.sees(here, [])


FOCUS = (
    "const node = document.activeElement;"
    "return [node.ariaLabel, node.value, node.selectionStart, node === window.before]"
)


async def test_remote_columns_and_rows_do_not_take_the_focus(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        columns, rows = doc.array("columns"), doc.array("rows")
        table(doc, {"item": "tea"}, {"item": "milk"})
        async with joined(browser, server) as page:
            await page.shows_table(["item", "price"], ["tea", ""], ["milk", ""])
            await page.types("half an ed", CELL.format(2, 2), at=0)
            await page.script("window.before = document.activeElement; document.activeElement.setSelectionRange(4, 4);")
            columns.insert(0, "who")
            await page.sees("return document.querySelectorAll('th:not(.side)').length", 3)
            assert await page.script(FOCUS) == ["price, row 2", "half an ed", 4, True]
            columns.append("when")
            rows.insert(0, Map({"item": "bread"}))
            await page.sees("return document.querySelectorAll('tbody tr').length", 3)
            await page.sees("return document.querySelectorAll('th:not(.side)').length", 4)
            assert await page.script(FOCUS) == ["price, row 3", "half an ed", 4, True]
            del columns[1]  # "item" is now shown after the others: its cells move
            await page.sees("return document.querySelector('th:nth-child(4)').innerText.trim().slice(0, 4)", "item")
            assert await page.script(FOCUS) == ["price, row 3", "half an ed", 4, True]
            await page.script("document.activeElement.setSelectionRange(10, 10)")
            await page.do(lambda: page.driver.switch_to.active_element.send_keys("it"))
            await aeventually(lambda: rows[2].get("price") == "half an edit", what="the edit arrives in its row")


async def test_typing_continues_when_a_plain_row_becomes_a_map(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        doc.array("columns").append("item")
        doc.array("rows").append({"item": "tea", "price": 1})
        async with joined(browser, server) as page:
            await page.shows_table(["item", "price"], ["tea", "1"])
            await page.types("s", CELL.format(1, 1))
            await page.script("window.before = document.activeElement")
            await aeventually(lambda: doc.array("rows")[0]["item"] == "teas", what="the edit arrives")
            assert await page.script(FOCUS) == ["item, row 1", "teas", 4, True]
            await page.do(lambda: page.driver.switch_to.active_element.send_keys("!"))
            await aeventually(lambda: doc.array("rows")[0]["item"] == "teas!", what="and the next one")


async def look(page: Page, text: str) -> float:
    """Return the distance of the line with these letters from the top of the window."""
    script = (
        "const walker = document.createTreeWalker(document.getElementById('mirror'), NodeFilter.SHOW_TEXT);"
        "while (walker.nextNode()) { const at = walker.currentNode.data.indexOf(arguments[0]); if (at < 0) continue;"
        " const range = document.createRange(); range.setStart(walker.currentNode, at);"
        " range.setEnd(walker.currentNode, at + 1); return range.getBoundingClientRect().top; }"
    )
    return float(await page.script(script, text))


async def test_remote_lines_above_do_not_move_the_visible_text(browser: webdriver.Chrome) -> None:
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        body = doc.text("body")
        body.insert(0, LINES)
        async with joined(browser, server) as page:
            for size in ((1280, 860), PHONE):
                await page.has_size(*size)
                await page.shows(str(body))
                at = str(body).index("line 100\n")
                await page.script(
                    "scrollBy({ top: arguments[0] - 300, behavior: 'instant' })", await look(page, "line 100\n")
                )
                before = await look(page, "line 100\n")
                body.insert(0, "a line that is new\n" * 7)
                await page.shows(str(body))
                assert abs(await look(page, "line 100\n") - before) <= 1
                del body[0:40]
                await page.shows(str(body))
                assert abs(await look(page, "line 100\n") - before) <= 1
                body.insert(len(str(body)), "at the end\n")
                await page.shows(str(body))
                assert abs(await look(page, "line 100\n") - before) <= 1

                at = str(body).index("line 105\n")
                await page.types("", at=at)  # a visible caret is the anchor
                before = await look(page, "line 105\n")
                body.insert(str(body).index("line 103\n"), "between\n" * 3)
                await page.shows(str(body))
                assert abs(await look(page, "line 105\n") - before) <= 1
                assert await page.script("return document.getElementById('text').selectionStart") == at + 24
                await page.script("document.activeElement.blur()")


async def test_edited_cell_stays_in_place(browser: webdriver.Chrome) -> None:
    top = "return document.activeElement.getBoundingClientRect().top"
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        body, rows = doc.text("body"), doc.array("rows")
        body.insert(0, LINES)
        table(doc, *({"item": str(number)} for number in range(60)))
        async with joined(browser, server) as page:
            for size in ((1280, 860), PHONE):
                await page.has_size(*size)
                await page.shows(str(body))
                field = await page.find(CELL.format(40, 1))
                await page.script("arguments[0].scrollIntoView({ block: 'center' }); arguments[0].focus()", field)
                before = await page.script(top)
                body.insert(0, "a line that is new\n" * 7)
                await page.shows(str(body))
                assert abs(await page.script(top) - before) <= 1
                rows.insert(0, Map({"item": "first"}))
                await page.sees("return document.querySelectorAll('tbody tr').length", len(rows))
                assert abs(await page.script(top) - before) <= 1
                await page.script("document.activeElement.blur()")


async def test_state_people_and_undo_stay_visible(browser: webdriver.Chrome) -> None:
    in_sight = (
        "return arguments[0].every(id => { const { top, bottom, left, right } = document.getElementById(id)"
        ".getBoundingClientRect(); return top >= 0 && bottom <= innerHeight && left >= 0 && right <= innerWidth"
        " && document.elementFromPoint((left + right) / 2, (top + bottom) / 2)?.closest('#' + id) !== null; })"
    )
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        doc.text("body").insert(0, LINES)
        async with joined(browser, server) as page:
            doc.awareness.local = {"user": {"name": "Ben"}, "cursor": None}
            await page.sees("return document.querySelectorAll('#people li').length", 1)
            await page.types("!", at=0)
            for size in ((1280, 860), PHONE):
                await page.has_size(*size)
                await page.script("scrollTo({ top: 2500, behavior: 'instant' })")
                assert await page.script("return scrollY") > 1000
                assert await page.script(in_sight, ["state", "people", "undo", "redo", "me"])
                assert await page.script("return document.getElementById('bar').offsetHeight") <= size[1] / 6
                assert await page.script("return document.documentElement.scrollWidth") <= size[0]


async def test_phone_shows_some_of_twenty_people_and_counts_the_rest(browser: webdriver.Chrome) -> None:
    async with peer(relay=True) as home, serving(home) as server, contextlib.AsyncExitStack() as stack:
        home.open("minutes")
        async with joined(browser, server) as page:
            await page.is_in("online")
            for number in range(20):
                other = await stack.enter_async_context(DocumentPeer(join=home.repair_addresses, token=KEY))
                other.open("minutes").awareness.local = {"user": {"name": f"Person {number:02}"}, "cursor": None}
            shown = "return document.querySelectorAll('#people li').length"
            more = "return document.getElementById('more').textContent"
            await page.sees(more, "+14")
            assert await page.script(shown) == 6
            await page.has_size(*PHONE)
            await page.sees(more, "+18")
            assert await page.script(shown) == 2
            assert await page.script("return document.getElementById('bar').offsetHeight") <= PHONE[1] / 6
            assert await page.script("return document.documentElement.scrollWidth") <= PHONE[0]
            await page.do((await page.find("#more")).click)
            await page.sees(shown, 20)
            assert await page.script(more) == "Fewer"
            assert await page.script("return document.getElementById('more').ariaExpanded") == "true"
            await page.do((await page.find("#more")).click)
            await page.sees(shown, 2)


async def test_name_at_a_caret_fades_and_returns_when_it_moves(browser: webdriver.Chrome) -> None:
    shown = "return Number(getComputedStyle(document.querySelector('#mirror .caret'), '::after').opacity) > 0.5"
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        doc.text("body").insert(0, "One two three")
        async with joined(browser, server) as page:
            await page.shows("One two three")

            def at(place: int) -> None:
                doc.awareness.local = {"user": {"name": "Ben"}, "cursor": doc.awareness.cursor("body", place)}

            at(3)
            await page.sees(shown, True)
            await page.sees(shown, False)
            doc.text("body").insert(0, "Zero ")
            await page.shows("Zero One two three")
            assert not await page.script(shown), "it has not moved: it is beside the same letter"
            assert await page.script("return document.querySelector('#mirror .caret').checkVisibility()")
            at(5)
            await page.sees(shown, True)


async def test_lone_surrogates_never_enter_the_document(browser: webdriver.Chrome) -> None:
    """Typed or pasted text may contain lone surrogates, which UTF-8 cannot encode."""
    put = (
        "const [selector, text] = arguments; const field = document.querySelector(selector); field.focus();"
        "field.value = text; field.setSelectionRange(text.length, text.length);"
        "field.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    half, other = "'\\ud83d'", "'\\ude00'"
    async with peer() as home, serving(home) as server:
        doc = home.open("minutes")
        body, rows = doc.text("body"), doc.array("rows")
        table(doc, {"item": "tea"})
        async with joined(browser, server) as page:
            await page.shows_table(["item", "price"], ["tea", ""])
            same = "return document.getElementById('text').value"

            await page.script(put.replace("text] = arguments", f"] = arguments; const text = 'a' + {half}"), "#text")
            await aeventually(lambda: str(body) == "a\ufffd", what="a lone high surrogate is replaced")
            await page.sees(same, "a\ufffd")
            await page.script(put.replace("text] = arguments", f"] = arguments; const text = {other} + 'b'"), "#text")
            await aeventually(lambda: str(body) == "\ufffdb", what="a lone low surrogate too")
            await page.sees(same, "\ufffdb")

            cell = CELL.format(1, 1)
            await page.script(put.replace("text] = arguments", f"] = arguments; const text = 'x' + {half}"), cell)
            await aeventually(lambda: rows[0].get("item") == "x\ufffd", what="a cell too")
            await page.sees(f"return document.querySelector('{cell}').value", "x\ufffd")

            await page.do((await page.find("#add-column")).click)
            name = "#column-name"
            await page.script(put.replace("text] = arguments", f"] = arguments; const text = 'c' + {other}"), name)
            await page.types("\n", name)
            await aeventually(lambda: "c\ufffd" in list(doc.array("columns")), what="a column too")

            # some browsers deliver the halves one by one
            await page.script(
                put.replace("text] = arguments", f"] = arguments; const text = 'e' + {half}") + ";"
                "field.value += '\\ude00'; field.setSelectionRange(3, 3); field.dispatchEvent(new Event('input'))",
                "#text",
            )
            await aeventually(lambda: str(body) == "e😀", what="then it is whole")
            await page.catches_up()
            await page.shows_digest(doc.digest())
