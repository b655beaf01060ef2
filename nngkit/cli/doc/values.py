"""Convert a document's content to JSON and back. Pure.

JSON has no bytes and no infinity: they become objects with one key. Objects that look like these are wrapped::

    >>> to_json({"icon": b"\\x00\\xff", "rate": float("inf")})
    {'icon': {'$bytes': 'AP8='}, 'rate': {'$number': 'Infinity'}}
    >>> from_json(to_json({"$bytes": 1})) == {"$bytes": 1}
    True
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from typing import Any, Final

from nngkit.documents.engine.codepoints import Delete, Delta, Insert, Keep
from nngkit.documents.engine.interface import MISSING, MapChange, Part, TextChange

MARKS: Final = ("$bytes", "$number", "$object")
NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
SHOWN: Final = 40  # characters of an insertion in text output


def to_json(value: Any) -> Any:
    """Convert a document's value to JSON."""
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if isinstance(value, dict):
        plain = {key: to_json(each) for key, each in value.items()}
        return {"$object": plain} if len(plain) == 1 and next(iter(plain)) in MARKS else plain
    return value


def from_json(value: Any) -> Any:
    """Convert JSON to a document's value. Raises ValueError for an invalid object with one of the marks."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(mark, inside)] = value.items()
        if mark == "$bytes" and isinstance(inside, str):
            try:
                return base64.b64decode(inside, validate=True)
            except binascii.Error as error:
                raise ValueError(f"$bytes: {error}") from error
        if mark == "$number" and inside in tuple(NUMBERS):
            return NUMBERS[inside]
        if mark == "$object" and isinstance(inside, dict):
            return {key: from_json(each) for key, each in inside.items()}
        if mark in MARKS:
            raise ValueError(f"{mark}: {inside!r}")
    return {key: from_json(each) for key, each in value.items()}


def change_fields(parts: Sequence[Part], peer: str | None, author: str | None, when: str) -> dict[str, Any]:
    """Return a change as JSON; docs/schemas/doc-change.json."""
    return {
        "event": "change",
        "time": when,
        "peer": peer,
        "name": author,
        "parts": [part_fields(part) for part in parts],
    }


def part_fields(part: Part) -> dict[str, Any]:
    """Return the change of one text, array or map as JSON."""
    if isinstance(part, MapChange):
        keys = {
            key: {
                "was": None if was is MISSING else to_json(was),
                "is": None if now is MISSING else to_json(now),
                "had": was is not MISSING,
                "has": now is not MISSING,
            }
            for key, (was, now) in part.keys.items()
        }
        return {"path": list(part.path), "kind": "map", "keys": keys}
    kind = "text" if isinstance(part, TextChange) else "array"
    return {"path": list(part.path), "kind": kind, "delta": [_step(step) for step in part.delta]}


def _step(step: Keep | Insert | Delete) -> dict[str, Any]:
    match step:
        case Keep(count):
            return {"keep": count}
        case Insert(value):
            return {"insert": to_json(value)}
        case Delete(count):
            return {"delete": count}


def part_text(part: Part) -> str:
    """Format the change of one part as text: `body @12 +"hello" -3`."""
    path = "/".join(map(str, part.path))
    if isinstance(part, MapChange):
        said = (
            f"-{key}" if now is MISSING else f"{key} = {_shown(to_json(now))}" for key, (_, now) in part.keys.items()
        )
        return f"{path} {' '.join(said)}"
    return f"{path} {delta_text(part.delta)}"


def delta_text(delta: Delta) -> str:
    """Format a delta; positions are those of the text at that moment."""
    said, at, told = [], 0, -1
    for step in delta:
        if isinstance(step, Keep):
            at += step.count
            continue
        if told != at:
            said.append(f"@{at}")
        if isinstance(step, Insert):
            said.append(f"+{_shown(to_json(step.value))}")
            at += len(step.value)
        else:
            said.append(f"-{step.count}")
        told = at
    return " ".join(said)


def _shown(value: Any) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…({len(text)})"
