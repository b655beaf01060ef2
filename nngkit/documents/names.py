"""What a document may be called: a path without tricks, as names become folders when documents are exported. Pure.

>>> check_name("minutes/2026-11")
'minutes/2026-11'
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from nngkit.errors import ConfigError

__all__ = ["LONGEST", "check_name"]

LONGEST: Final = 200  # bytes of UTF-8: with an ending of its own it still fits in the 255 of a file's name


@lru_cache(1024)  # every message names its document
def check_name(name: str) -> str:
    """`name`, which must be 1 to 200 bytes of printable text; segments between "/" may not be empty, "." or "..".

    Raises ConfigError that says what is wrong.
    """
    if (why := _wrong(name)) is not None:
        raise ConfigError("document name", f"{name[:LONGEST]!a}: {why}", name)
    return name


def _wrong(name: str) -> str | None:
    if not name:
        return "is empty"
    if not name.isprintable():  # surrogates are not either
        return "has characters that cannot be printed"
    if len(name.encode()) > LONGEST:
        return f"is longer than {LONGEST} bytes"
    if "\\" in name:
        return "has a backslash, which some systems take for a slash"
    if any(segment in ("", ".", "..") for segment in name.split("/")):
        return 'has a segment that is empty, "." or ".."'
    return None
