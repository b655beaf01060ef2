"""Classify the words of a command line as options or not, by nanocat's rule, which `nngkit cat` follows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal


def words(arguments: Sequence[str]) -> Iterator[tuple[Literal["long", "short", "none"], str, list[str]]]:
    """Yield each word with its kind, and the list of words after it, from which an option takes its value.

    A lone dash is not an option, nor is any word after `--`.
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
