"""A browser shared by all tests of the page."""

from collections.abc import Generator

import pytest
from selenium import webdriver

from tests.web.browsers import chromium
from tests.web.certificates import OF_PAGE, OF_PASS
from tests.web.pages import built_page


@pytest.fixture(scope="session")
def browser() -> Generator[webdriver.Chrome]:
    """A browser; each test has its own tab and web server, which is another site to it."""
    built_page()
    with chromium(OF_PAGE.digest, OF_PASS.digest) as driver:
        yield driver
