"""Listeners on port 0: the system chooses their port, and the command reports it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def any_port(url: str) -> bool:
    """Return True if a listener at `url` gets a free port."""
    return re.search(r":0(/|$)", url) is not None


def say_chosen(say: Callable[[str], None], urls: Iterable[str], addresses: Iterable[str]) -> None:
    """Report the address of each listener on port 0. `addresses` are those of the listeners at `urls`, in order."""
    for url, address in zip(urls, addresses, strict=True):
        if any_port(url):
            say(f"listens at {address}")
