"""Change a document to a given content, in one transaction with minimal edits.

::

    check(content)
    changed = bring(document, {"body": "hello", "rows": [{"name": "Ada"}]})

Texts are changed by code points, lists by items, maps by keys, as deep as there are shared types. New lists and maps
become shared types, so that others can edit their parts. A root missing from the content is emptied: roots cannot be
removed from a document.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, Final

from nngkit.cli.doc.differences import edits, matches
from nngkit.cli.doc.values import to_json
from nngkit.documents import Array, Document, Map, Text
from nngkit.documents.shared import check_root, prepared

KINDS: Final[dict[type, str]] = {str: "a text", list: "a list", dict: "a map"}


def check(content: Mapping[str, Any], have: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError if a document with content `have` cannot be changed to `content`."""
    for name, value in content.items():
        check_root(name)
        if type(value) not in KINDS:
            raise ValueError(f"{name!r} is {type(value).__name__}; a document has texts, lists and maps")
        if (old := have.get(name)) and value and type(old) is not type(value):
            raise ValueError(f"{name!r} is {KINDS[type(old)]} in the document, and {KINDS[type(value)]} here")
        prepared(value)


def bring(document: Document, content: Mapping[str, Any], have: Mapping[str, Any]) -> bool:
    """Change the document; return True if it changed. `have` is its content now (`document.plain()`)."""
    before = document.digest()
    with document.transaction(origin="import"):
        for name in sorted({*have, *content}):
            value = content.get(name) or type(have.get(name, ""))()
            if isinstance(value, str):
                if value or have.get(name):
                    set_text(document.text(name), value)
            elif isinstance(value, list):
                _array(document.array(name), value)
            else:
                _map(document.map(name), value)
    return document.digest() != before


def set_text(text: Text, new: str) -> None:
    """Change a text in minimal edits, from the end, so that earlier positions stay valid."""
    for at, deleted, inserted in reversed(edits(str(text), new)):
        text.splice(at, deleted, inserted)


def _fits(part: Any, value: Any) -> bool:
    """Return True if an existing shared type can be changed to the value."""
    kinds = ((Text, str), (Array, list), (Map, dict))
    return any(isinstance(part, shared) and isinstance(value, plain) for shared, plain in kinds)


def _into(part: Any, value: Any) -> None:
    if isinstance(part, Text):
        set_text(part, value)
    elif isinstance(part, Array):
        _array(part, value)
    else:
        _map(part, value)


def _map(shared: Map, values: dict[str, Any]) -> None:
    for key in [key for key in shared if key not in values]:
        del shared[key]
    for key, value in values.items():
        there = shared.get(key)
        if key in shared and _key(_plain(there)) == _key(value):
            continue
        if _fits(there, value):
            _into(there, value)
        else:
            shared[key] = _new(value, there)


def _array(shared: Array, values: list[Any]) -> None:
    old, new = [_key(value) for value in shared.plain()], [_key(value) for value in values]
    same = matches(old, new)
    pairs = [(-1, -1), *(same or []), (len(old), len(new))]
    for (i, j), (to_i, to_j) in reversed(list(itertools.pairwise(pairs))):
        i, j = i + 1, j + 1
        both = min(to_i - i, to_j - j)
        del shared[i + both : to_i]
        shared[i + both : i + both] = [_new(value) for value in values[j + both : to_j]]
        for step in reversed(range(both)):
            there, value = shared[i + step], values[j + step]
            if _fits(there, value):
                _into(there, value)
            else:
                shared[i + step] = _new(value, there)


def _plain(value: Any) -> Any:
    return value.plain() if isinstance(value, Text | Array | Map) else value


def _new(value: Any, instead: Any = None) -> Any:
    """Return the value as a shared type, unless it replaces a plain list or map."""
    if isinstance(instead, list | dict):
        return value
    if isinstance(value, dict):
        return Map({key: _new(each) for key, each in value.items()})
    if isinstance(value, list):
        return Array([_new(each) for each in value])
    return value


def _key(value: Any) -> str:
    """Return a key that is equal for equal values; 1 and True differ."""
    return json.dumps(to_json(value), sort_keys=True)
