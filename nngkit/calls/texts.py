"""Text of what a program has raised or named, as UTF-8 can carry it. Pure.

>>> text_of(ValueError("a lone surrogate: \\ud800"))
'a lone surrogate: \\\\ud800'
"""

from __future__ import annotations

from typing import Any


def text_of(value: Any) -> str:
    """Return `value` as text that UTF-8 can carry."""
    try:
        return str(value).encode("utf-8", "backslashreplace").decode()
    except Exception:  # the `str` of a class that is not ours
        return f"<{type(value).__name__} without text>"
