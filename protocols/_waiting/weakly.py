"""Callbacks that do not keep their object alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakMethod


def weakly(method: Callable[..., Any], otherwise: Any = None) -> Callable[..., Any]:
    """Return a callback for ``method`` that does not keep its object alive, and then returns ``otherwise``."""
    reference = WeakMethod(method)

    def call(*arguments: Any) -> Any:
        bound = reference()
        return otherwise if bound is None else bound(*arguments)

    return call
