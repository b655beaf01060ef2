"""Undo of one's own edits: what others wrote meanwhile stays.

::

    undo = doc.undo(doc.text("body"))
    doc.text("body").insert(0, "hello")
    undo.undo(); undo.redo()
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from nngkit.documents.engine.interface import EngineDocument
from nngkit.documents.shared import Shared
from nngkit.errors import ConfigError

__all__ = ["WINDOW", "Undo"]

WINDOW: Final = 0.5  # seconds: letters typed faster than two a second are taken back together


class Owner(Protocol):
    """What undo needs of its document."""

    engine: EngineDocument

    def check_writable(self) -> None: ...


class Undo:
    """Takes back, and does again, the local edits made in `scope` since this was made.

    Edits less than `window` seconds (of `clock`) apart are one step. A step is a transaction of its own, which peers
    get like any other; in `doc.changes()` its origin is this object.
    """

    def __init__(
        self,
        document: Owner,
        scope: tuple[Shared, ...],
        window: float = WINDOW,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not scope:
            raise ConfigError("undo", "nothing to undo in: name at least one text, map or array")
        if window < 0:
            raise ConfigError("undo window", "is below 0", window)
        self._document = document
        self._clock = _Clock(clock, window)
        self._undo = document.engine.undo([part.node for part in scope], window, self, self._clock)

    @property
    def can_undo(self) -> bool:
        return self._undo.can_undo

    @property
    def can_redo(self) -> bool:
        return self._undo.can_redo

    def undo(self) -> bool:
        """Take back the last step; False if there is none."""
        self._document.check_writable()
        return self._undo.undo()

    def redo(self) -> bool:
        """Do again what was taken back last; False if there is nothing, as after a new edit."""
        self._document.check_writable()
        return self._undo.redo()

    def stop_capturing(self) -> None:
        """The next edit begins a step of its own, however soon it comes: after a line, or when the cursor has moved."""
        self._clock.skip()

    def clear(self) -> None:
        """Forget all steps."""
        self._undo.clear()


class _Clock:
    """`clock`, which can be put forward by a window: the engine joins edits by their times alone."""

    def __init__(self, clock: Callable[[], float], window: float) -> None:
        self._clock = clock
        self._window = window
        self._ahead = 0.0

    def __call__(self) -> float:
        return self._clock() + self._ahead

    def skip(self) -> None:
        self._ahead += self._window + 0.001  # the engine's are whole milliseconds
