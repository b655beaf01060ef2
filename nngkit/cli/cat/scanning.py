"""Words of a command line: which are options, which are not. Pure; nanocat's rule, which `nngkit cat` follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

__all__ = ["words"]


def words(arguments: Sequence[str]) -> Iterator[tuple[Literal["long", "short", "none"], str, list[str]]]:
    """Each word with what it is, and the words after it: who needs one as a value takes it from there.

    A lone dash is no option, and after `--` nothing is.
    """
    rest = list(arguments)
    options = True
    while rest:
        word = rest.pop(0)
        if options and word == "--":
            options = False
        elif options and word.startswith("-") and word != "-":
            yield "long" if word.startswith("--") else "short", word, rest
        else:
            yield "none", word, rest
