"""Undo on pycrdt's undo manager, which tracks the local origin only.

::

    undo = YjsUndo(doc, [doc.root("body", "text")], 0.5, "undo", time.monotonic, LOCAL)
    undo.undo()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pycrdt


class UndoDocument(Protocol):
    """Interface of the document, for YjsUndo."""

    def committing(self, origin: object) -> AbstractContextManager[None]: ...


class YjsUndo:
    """See interface.EngineUndo. A document that was rebuilt after damage has nothing to undo."""

    def __init__(
        self,
        owner: UndoDocument,
        nodes: Sequence[Any],
        window: float,
        origin: object,
        clock: Callable[[], float],
        tracked: int,
    ) -> None:
        self._owner = owner
        self._nodes = tuple(nodes)
        self._window = round(window * 1000)
        self._origin = origin
        self._clock = clock
        self._tracked = tracked
        self.renew()

    def renew(self) -> None:
        clock = self._clock  # not self, see weak_callbacks.py
        self._manager = pycrdt.UndoManager(
            scopes=[node.raw for node in self._nodes],
            capture_timeout_millis=self._window,
            timestamp=lambda: int(clock() * 1000),
        )
        self._manager.include_origin(self._tracked)

    @property
    def can_undo(self) -> bool:
        return self._manager.can_undo()

    @property
    def can_redo(self) -> bool:
        return self._manager.can_redo()

    def undo(self) -> bool:
        with self._owner.committing(self._origin):
            return self._manager.undo()

    def redo(self) -> bool:
        with self._owner.committing(self._origin):
            return self._manager.redo()

    def clear(self) -> None:
        self._manager.clear()
