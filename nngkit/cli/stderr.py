"""Diagnostics: one line each on standard error."""

from __future__ import annotations

import sys

__all__ = ["say"]


def say(where: str, text: str) -> None:
    """Write `where: text` as one line to standard error, or nothing if that is closed."""
    if sys.stderr is not None:  # print would take stdout instead
        print(f"{where}: {' '.join(text.split())}", file=sys.stderr)
