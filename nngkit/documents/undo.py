"""Undo of local edits; edits of other peers stay.

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

WINDOW: Final = 0.5  # seconds: keys typed faster than two per second are undone together


class Owner(Protocol):
    """Interface of the document, for Undo."""

    engine: EngineDocument

    def check_writable(self) -> None: ...


class Undo:
    """Undoes and redoes local edits in `scope`, from its creation on.

    Edits less than `window` seconds (of `clock`) apart form one step. Undoing a step is a transaction that other peers
    receive like any other; its origin in `doc.changes()` is this object.
    """

    def __init__(
        self,
        document: Owner,
        scope: tuple[Shared, ...],
        window: float = WINDOW,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not scope:
            raise ConfigError("undo", "the scope is empty: name at least one text, map or array")
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
        """Undo the last step. Returns False if there is none."""
        self._document.check_writable()
        return self._undo.undo()

    def redo(self) -> bool:
        """Redo the last undone step. Returns False if there is none, as after a new edit."""
        self._document.check_writable()
        return self._undo.redo()

    def stop_capturing(self) -> None:
        """Begin a new step with the next edit, even within `window`: after a line, or when the cursor has moved."""
        self._clock.skip()

    def clear(self) -> None:
        """Drop all steps."""
        self._undo.clear()


class _Clock:
    """`clock`, with an offset that `skip` advances by one window: the engine joins edits by their times alone."""

    def __init__(self, clock: Callable[[], float], window: float) -> None:
        self._clock = clock
        self._window = window
        self._ahead = 0.0

    def __call__(self) -> float:
        return self._clock() + self._ahead

    def skip(self) -> None:
        self._ahead += self._window + 0.001  # the engine counts whole milliseconds
