"""Many changes between threads, for what goes wrong only if two of them meet within a step that takes no lock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def many_switches() -> Iterator[None]:
    """Have the interpreter change between threads every microsecond in the block, in place of every 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
