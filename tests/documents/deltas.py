"""Deltas applied to plain text, to compare with what an engine has made of it."""

from __future__ import annotations

from nngkit.documents.engine.codepoints import Delete, Delta, Insert, Keep


def patched(text: str, delta: Delta) -> str:
    """Apply a delta to `text`."""
    out: list[str] = []
    at = 0
    for part in delta:
        match part:
            case Keep(count):
                out.append(text[at : at + count])
                at += count
            case Insert(value):
                out.append(value)
            case Delete(count):
                at += count
    return "".join(out) + text[at:]
