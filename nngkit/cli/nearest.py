"""The word that was probably meant, for errors about a word that does not exist. Pure."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]

CLOSE = 0.7  # the share of equal letters; with 0.6 "fetch" is taken for "bench"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" for the most similar of `known`, or "" if none is similar."""
    from difflib import get_close_matches  # 10 ms, which only an error spends

    found = get_close_matches(word, list(known), 1, CLOSE)
    return f"; did you mean {found[0]}?" if found else ""
