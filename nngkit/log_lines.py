"""Repeated log lines: the first at once, then one a minute with a count. Pure.

What a line is about is its text without port numbers: a node that is refused comes again from another port, three times
a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

AGAIN: Final = 60.0  # seconds between two lines about the same
MOST: Final = 200  # things that are remembered: others are not said until one of them is forgotten
PORT: Final = re.compile(r":\d+\b")


@dataclass(slots=True)
class _Said:
    at: float
    more: int = 0


class LogLines:
    """Lines that were said in the last minute."""

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}

    def add(self, line: str, now: float, about: str | None = None) -> str | None:
        """Return the line as it is to be logged now, or None. `about`: what it is about, in place of its text."""
        about = PORT.sub("", line) if about is None else about
        said = self._said.get(about)
        if said is not None and now < said.at + AGAIN:
            said.more += 1
            return None
        if said is None and len(self._said) >= MOST:
            self._said = {each: one for each, one in self._said.items() if now < one.at + AGAIN}
            if len(self._said) >= MOST:
                return None
        self._said[about] = _Said(now)
        if said is None or not said.more:
            return line
        return f"{line} ({said.more} times more since it was last said)"
