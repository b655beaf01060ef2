"""Rows by key, and what has changed of them since they were last told. Pure.

::

    table = Table()
    table.set("pay", {"state": "up"})
    table.take()            # [{"set": {"pay": {"state": "up"}}}]
    table.take()            # []
    table.drop("pay")
    table.take()            # [{"gone": ["pay"]}]

A part has at most PART rows, so that a browser draws many rows in several steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

MOST_ROWS: Final = 16_384  # as many providers as a daemon keeps
PART: Final = 500

Part = dict[str, Any]


class Table:
    """Rows that can be made JSON. Rows above `most` are left out, and `cut` says so."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self.rows: dict[str, object] = {}
        self._most = most
        self._changed: dict[str, None] = {}
        self._about: Part = {}  # what is said of the table beside its rows
        self._told: Part = {}

    def set(self, key: str, row: object) -> None:
        """Add or replace a row."""
        if key in self.rows:
            if self.rows[key] == row:
                return
        elif len(self.rows) >= self._most:
            self._about["cut"] = True
            return
        self.rows[key] = row
        self._changed[key] = None

    def drop(self, key: str) -> None:
        """Remove a row, if it is there."""
        if self.rows.pop(key, None) is not None:
            self._changed[key] = None

    def replace(self, rows: Mapping[str, object]) -> None:
        """Have exactly these rows."""
        self._about.pop("cut", None)
        for key in self.rows.keys() - rows.keys():
            self.drop(key)
        for key, row in rows.items():
            self.set(key, row)

    def fail(self, why: str) -> None:
        """Say why the rows may be outdated; "" if they are not."""
        self._about["error"] = why

    def take(self) -> list[Part]:
        """Return what has changed since the last call."""
        changed, self._changed = self._changed, {}
        gone = [key for key in changed if key not in self.rows]
        parts = _parts(key for key in changed if key in self.rows)
        found: list[Part] = [{"set": {key: self.rows[key] for key in part}} for part in parts]
        if gone:
            found.insert(0, {"gone": gone})
        if self._about != self._told:
            self._told = dict(self._about)
            found.append({"about": self._told})
        return found

    def all(self) -> list[Part]:
        """Return the parts from which a reader that knows nothing has the rows."""
        found: list[Part] = [{"set": {key: self.rows[key] for key in part}} for part in _parts(self.rows)]
        return [*found, {"about": dict(self._about)}] if self._about else found


def _parts(keys: Iterable[str]) -> Iterable[list[str]]:
    rest = iter(keys)
    while part := list(islice(rest, PART)):
        yield part
