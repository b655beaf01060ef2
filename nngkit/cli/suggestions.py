"""Suggestions for misspelled words, for error messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable

CLOSE = 0.7  # share of equal letters; with 0.6 "fetch" would match "bench"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" for the most similar of `known`, or "" if none is similar."""
    from difflib import get_close_matches  # 10 ms, spent only on errors

    found = get_close_matches(word, list(known), 1, CLOSE)
    return f"; did you mean {found[0]}?" if found else ""
