"""Valid document names. Names become paths when documents are exported, so the rules exclude path tricks. Pure.

>>> check_name("minutes/2026-11")
'minutes/2026-11'
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from nngkit.errors import ConfigError

LONGEST: Final = 200  # bytes of UTF-8: leaves room for a suffix within the 255 bytes of a file name


@lru_cache(1024)  # every message names its document
def check_name(name: str) -> str:
    """Return `name` if it is 1 to 200 bytes of printable text without empty, "." or ".." segments between slashes.

    Raises ConfigError with the reason.
    """
    if not isinstance(name, str):
        raise ConfigError("document name", f"{name!r} is not text", name)
    if (why := _wrong(name)) is not None:
        raise ConfigError("document name", f"{name[:LONGEST]!a}: {why}", name)
    return name


def _wrong(name: str) -> str | None:
    if not name:
        return "is empty"
    if not name.isprintable():  # excludes surrogates too
        return "has characters that cannot be printed"
    if len(name.encode()) > LONGEST:
        return f"is longer than {LONGEST} bytes"
    if "\\" in name:
        return "has a backslash, which some systems take for a slash"
    if any(segment in ("", ".", "..") for segment in name.split("/")):
        return 'has a segment that is empty, "." or ".."'
    return None
