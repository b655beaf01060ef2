"""Offsets and cursors of the Durable Streams Protocol (its sections 8 and 10.1) as text. Pure.

    >>> token(42)
    '0000000000000000_0000000000000042'
    >>> position(token(42))
    42

A position counts bytes of a stream, messages of a JSON stream, or records of a topic's partition. All tokens have the
same length, so that they sort as their positions do. The first number is always 0: this is the form that the protocol's
conformance suite takes for the start of a stream.
"""

from __future__ import annotations

import re
from typing import Final

MOST: Final = 10**16 - 1
"""The largest position: 10 PB, or at a million records a second 317 years."""
_TOKEN: Final = re.compile(r"0{16}_([0-9]{16})")
_CURSOR: Final = re.compile(r"[0-9]{1,15}")
INTERVAL: Final = 20  # seconds, by the protocol
EPOCH: Final = 1_728_432_000  # 2024-10-09, by the protocol
MOST_JITTER: Final = 3600 // INTERVAL


def token(position: int) -> str:
    """Return the offset of a position. Raises ValueError for one out of range."""
    if not 0 <= position <= MOST:
        raise ValueError(f"position {position} is not from 0 to {MOST}")
    return f"{0:016d}_{position:016d}"


def position(token: str) -> int | None:
    """Return the position of an offset; None if it is none of ours."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else int(found[1])


def cursor(now: float, given: str | None, jitter: int) -> str:
    """Return the cursor of a live response at `now`, seconds since 1970: the interval's number, or above the given one.

    `jitter`: a random number from 1 to MOST_JITTER. A given cursor that is none is ignored.
    """
    current = max(0, int(now - EPOCH) // INTERVAL)
    if given is None or not _CURSOR.fullmatch(given) or int(given) < current:
        return str(current)
    return str(int(given) + jitter)
