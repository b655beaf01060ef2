"""Waits of requests for what may come, such as long polls: they end early once the gateway is to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Waits:
    """Waits of all requests."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._over = False

    @contextmanager
    def at_most(self, seconds: float) -> Iterator[None]:
        """Cancel the block after so many seconds, or at the end, as `trio.move_on_after` does."""
        with trio.move_on_after(0.0 if self._over else seconds) as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.remove(scope)

    def end(self) -> None:
        """End all waits, and those to come."""
        self._over = True
        for scope in self._scopes:
            scope.cancel()
