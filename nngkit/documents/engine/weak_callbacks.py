"""Callbacks that hold no reference to their object: the engine keeps them where Python's collector cannot look.

A callback with a strong reference makes a cycle through Rust, which is never freed (measured: 2.8 GB after some 10,000
documents).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakMethod


def weakly(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a callback that calls `method` while its object is alive."""
    kept = WeakMethod(method)

    def call(event: Any) -> None:
        alive = kept()
        if alive is not None:
            alive(event)

    return call
