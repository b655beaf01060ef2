"""A headless Chromium for tests, and a user's actions in it.

Every call of the driver is a request to another process, so it runs in a thread: the peers under test go on meanwhile.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Generator
from typing import Any, Self, TypeVar

import trio
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

PATIENCE = 20.0  # seconds for any one event: Chromium shares two cores
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--window-size=1280,860",
    "--lang=en",
)
ELSEWHERE = "notes.example"  # a name of another machine, to the browser: this one
NOT_OURS = "net::ERR_"  # the console logs failed connections, which the tests cause

T = TypeVar("T")


@contextlib.contextmanager
def chromium(*keys: str) -> Generator[webdriver.Chrome]:
    """Start a browser with an empty profile. It trusts certificates with these keys: SHA-256 in base64."""
    options = webdriver.ChromeOptions()
    named = f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"
    for flag in (*FLAGS, named, f"--ignore-certificate-errors-spki-list={','.join(keys)}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = shutil.which("chromium") or ""
    driver = webdriver.Chrome(options=options, service=Service(executable_path=shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """A tab with a document's page."""

    def __init__(self, driver: webdriver.Chrome, tab: str) -> None:
        self.driver = driver
        self.tab = tab

    @classmethod
    async def open(cls, driver: webdriver.Chrome, url: str, *, name: str | None = "Grace") -> Self:
        """Open a tab at `url`, with the user name `name` if given."""

        def load() -> str:
            driver.switch_to.new_window("tab")
            driver.get(url)
            return driver.current_window_handle

        page = cls(driver, await trio.to_thread.run_sync(load))
        if name is None:
            return page
        await page.sees("return document.getElementById('here').hidden", False)
        field = await page.find("#me")
        await page.do(field.clear)
        await page.do(lambda: field.send_keys(name + "\t"))
        return page

    async def do(self, act: Callable[[], T]) -> T:
        """Run an action with this tab active."""

        def there() -> T:
            self.driver.switch_to.window(self.tab)
            return act()

        return await trio.to_thread.run_sync(there)

    async def find(self, selector: str) -> WebElement:
        return await self.do(lambda: self.driver.find_element(By.CSS_SELECTOR, selector))

    async def script(self, script: str, *arguments: object) -> Any:
        return await self.do(lambda: self.driver.execute_script(script, *arguments))

    async def sees(self, script: str, expected: object) -> None:
        """Wait until the script returns this value."""
        value = None
        with trio.move_on_after(PATIENCE):
            while True:
                with contextlib.suppress(NoSuchElementException, StaleElementReferenceException):
                    value = await self.script(script)
                    if value == expected:
                        return
                await trio.sleep(0.05)
        raise AssertionError(f"{script}: {value!r} instead of {expected!r}")

    async def is_in(self, state: str) -> None:
        """Wait for a connection state: "online", "offline", "refused"."""
        await self.sees("return document.getElementById('state').dataset.state", state)

    async def catches_up(self) -> None:
        await self.sees(
            "return /^(Up to date|All changes saved)$/.test(document.getElementById('state-text').textContent)", True
        )

    async def shows(self, text: str) -> None:
        await self.sees("return document.getElementById('text').value", text)

    async def shows_table(self, *rows: list[str]) -> None:
        """Wait for these cells, the line of names first."""
        await self.sees(
            "return [[...document.querySelectorAll('th:not(.side) .cap span')].map(cell => cell.textContent),"
            " ...[...document.querySelectorAll('tbody tr')].map(row => [...row.querySelectorAll('input')]"
            ".map(field => field.value))]",
            list(rows),
        )

    async def types(self, keys: str, selector: str = "#text", at: int | None = None) -> None:
        """Type at the caret, or at `at` (UTF-16 units)."""
        field = await self.find(selector)
        if at is not None:
            await self.script(
                "arguments[0].focus(); arguments[0].setSelectionRange(arguments[1], arguments[1])", field, at
            )
        await self.do(lambda: field.send_keys(keys))

    async def digest(self) -> str:
        return str(await self.script("return document.getElementById('digest').dataset.digest"))

    async def shows_digest(self, digest: bytes) -> None:
        await self.sees("return document.getElementById('digest').dataset.digest", digest.hex())

    async def command(self, name: str, **parameters: object) -> Any:
        """Run a command of the DevTools protocol in this tab."""
        return await self.do(lambda: self.driver.execute_cdp_cmd(name, parameters))

    async def has_size(self, width: int, height: int) -> None:
        """Emulate a screen of this size, in CSS pixels."""
        size = {"width": width, "height": height}
        await self.command("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, mobile=width < 600, **size)

    async def is_dark(self, dark: bool = True) -> None:
        """Emulate the preference for a dark or light colour scheme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])

    async def complaints(self) -> list[str]:
        """Return new console entries: script errors and blocked loads."""
        entries: list[dict[str, str]] = await self.do(lambda: self.driver.get_log("browser"))  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if NOT_OURS not in entry["message"]]

    async def close(self) -> None:
        await self.do(self.driver.close)
        await trio.to_thread.run_sync(lambda: self.driver.switch_to.window(self.driver.window_handles[0]))
