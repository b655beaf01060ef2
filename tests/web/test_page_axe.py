"""axe-core reports no violation on any screen of the page, light and dark, on a desktop and on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from selenium import webdriver

from nngkit.documents.shared import Map
from tests.web.browsers import Page
from tests.web.homes import NEEDED, joined, peer, serving
from tests.web.pages import SOURCES

pytestmark = NEEDED
AXE = SOURCES / "node_modules" / "axe-core" / "axe.min.js"
SIZES = {"desk": (1280, 860), "phone": (390, 780)}  # CSS pixels


async def found(page: Page) -> list[str]:
    """Return the violations that axe-core finds on the current page, with all stable rules, WCAG 2.2's included."""
    source = AXE.read_text()

    def run() -> Any:
        page.driver.execute_script(source)
        return page.driver.execute_async_script(
            "const done = arguments[0];"
            "axe.run(document, { rules: { 'target-size': { enabled: true } } })"
            ".then(({ violations, passes }) => done([violations, passes.length]), error => done(String(error)))"
        )

    violations, passes = await page.do(run)
    assert passes > 10, "it has looked"
    return [f"{one['id']}: {node['html']} {node['failureSummary']}" for one in violations for node in one["nodes"]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_document_screen_with_people(browser: webdriver.Chrome, size: str, dark: bool) -> None:
    async with peer() as home, serving(home, documents=("minutes", "plan")) as server:
        doc = home.open("minutes")
        doc.text("body").insert(0, "Tea at four, or later\n" * 80)
        for column in ("item", "price"):
            doc.array("columns").append(column)
        for item in ("tea", "milk", "bread"):
            doc.array("rows").append(Map({"item": item, "price": 1.5}))
        doc.awareness.local = {"user": {"name": "Ben"}, "cursor": doc.awareness.cursor("body", 3, 9)}
        async with joined(browser, server) as page:
            await page.has_size(*SIZES[size])
            await page.is_dark(dark)
            await page.catches_up()
            await page.sees("return document.querySelectorAll('#mirror .caret').length", 1)
            assert await found(page) == []
            await page.types("!", at=0)
            await page.do((await page.find("#add-column")).click)
            assert await found(page) == [], "with undo, and a form open"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_start_screen_and_error_messages(browser: webdriver.Chrome, size: str, dark: bool) -> None:
    async with peer() as home, serving(home, documents=("minutes", "plan")) as server:
        async with joined(browser, server, doc="../etc", name=None) as page:
            await page.has_size(*SIZES[size])
            await page.is_dark(dark)
            await page.is_in("online")
            assert await found(page) == []
        async with joined(browser, server, key="wrong") as page:
            await page.has_size(*SIZES[size])
            await page.is_dark(dark)
            await page.is_in("refused")
            assert await found(page) == []
