"""Callbacks that do not keep their object alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakMethod


def weakly(method: Callable[..., Any], otherwise: Any = None) -> Callable[..., Any]:
    """``method`` for a core to call: it does not keep the socket alive, so that one nobody holds ends at once."""
    reference = WeakMethod(method)

    def call(*arguments: Any) -> Any:
        bound = reference()
        return otherwise if bound is None else bound(*arguments)

    return call
