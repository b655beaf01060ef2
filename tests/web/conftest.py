"""A browser shared by all tests of the page."""

from collections.abc import Generator

import pytest
from selenium import webdriver

from tests.web.browsers import chromium
from tests.web.pages import built_page


@pytest.fixture(scope="session")
def browser() -> Generator[webdriver.Chrome]:
    """A browser; each test has its own tab and web server, which is another site to it."""
    built_page()
    with chromium() as driver:
        yield driver
