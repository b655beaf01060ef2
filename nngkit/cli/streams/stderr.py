"""Diagnostics: one line each on standard error. Text of a peer is shown, never obeyed, by the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from nngkit.cli.masking import masked


def escaped(text: str) -> str:
    """Return the text with what is not printable, terminal escapes and bidirectional overrides among it, as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def one_line(text: str) -> str:
    """Return the text escaped, its white space as single spaces."""
    return escaped(" ".join(text.split()))


def _plain(where: str, text: str) -> str:
    return f"{where}: {one_line(text)}"


form: Callable[[str, str], str] = _plain
"""How `say` writes a line; log_lines.py can change it to JSON."""


def say(where: str, text: str) -> None:
    """Write `where: text` as one line to standard error, or nothing if that is closed."""
    if sys.stderr is not None:  # print would take stdout instead
        print(form(where, masked(text)), file=sys.stderr)
