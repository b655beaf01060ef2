"""CBOR encoding and decoding with limits. Pure: bytes and values, no clock, no socket.

The types on the wire are those of JSON plus byte strings::

    null  bool  int (64 bits and a sign)  float  text  bytes  [array]  {text: value}

Everything else is refused: tags (a tag is code that runs in the reader), indefinite lengths, `undefined`, simple
values, map keys other than text, duplicate keys, nesting deeper than 32, bytes after the value.

    >>> decode(encode({"v": 1, "name": "answer"}), what="reply")
    {'v': 1, 'name': 'answer'}

Bytes from a peer are hostile until `decode` has accepted them, and values until `nngkit.messages` has read them.

Reason for the limits: with its defaults cbor2 took 11 s for 300 KB of colliding integer keys, and follows tags into
dates, fractions, regular expressions and cycles (measured, cbor2 6.2.1). With the limits, every hostile case in
tests/test_envelope.py is refused in milliseconds, and honest messages cost no more than with the defaults.
"""

from __future__ import annotations

from typing import Any, Final

import cbor2

from nngkit.cbor import REFUSED, decode_one, innermost
from nngkit.errors import BadMessage, TooLarge

CONTROL_LIMIT: Final = 64 * 1024
"""Bytes of a control message: 64 providers in one reply fit easily, and the worst 64 KiB decode in milliseconds."""
MAX_DEPTH: Final = 32
"""Depth of nested containers; ours nest 4 deep. `_check` recurses, so this also bounds the Python stack."""
_INT_LOW, _INT_HIGH = -(2**64), 2**64 - 1  # range of CBOR integers without a tag
_SHOWN = 120  # characters of a peer's text that an error repeats

_LEAVES: Final[frozenset[type]] = frozenset((str, bytes, float, bool, type(None)))  # all their values are allowed
_READ: Final[frozenset[type]] = _LEAVES | {int}  # integers decoded without tags are within 64 bits


def encode(value: object, *, limit: int | None = None, depth: int = 0) -> bytes:
    """Return `value` as CBOR, with equal bytes for equal values (sorted keys, shortest numbers).

    `limit`: bytes beyond which it raises TooLarge, because the reader would refuse them. `depth`: of the containers
    around it. Tuples are written as arrays. Raises TypeError or ValueError for values that `decode` would refuse: an
    error of the caller, not of a peer.
    """
    _check(value, depth)
    data: bytes = cbor2.dumps(value, canonical=True)
    if limit is not None and len(data) > limit:
        raise TooLarge(len(data), limit)
    return data


def decode(data: bytes, *, what: str, limit: int = CONTROL_LIMIT, peer: str | None = None, depth: int = 0) -> Any:
    """Return the one value in `data`, which must use all of its bytes. `what` and `peer` go into the error.

    `depth`: of the containers around it.

    Raises TooLarge over `limit` bytes, BadMessage for everything that the module docstring excludes.
    """
    if len(data) > limit:
        raise TooLarge(len(data), limit, peer)
    try:
        value = decode_one(data, max_depth=MAX_DEPTH - depth)
        _check(value, depth, _READ)
    except REFUSED as error:
        raise BadMessage(what, shown(innermost(error)), peer) from error
    return value


def _check(value: object, depth: int, leaves: frozenset[type] = _LEAVES) -> None:
    """Raise TypeError or ValueError unless `value` is of the types that may be on the wire.

    `leaves` need no further check: most items are leaves, and a call for each would cost more than all the rest.
    """
    kind = type(value)
    if kind in _LEAVES:
        return
    if kind is int:
        if not _INT_LOW <= value <= _INT_HIGH:  # type: ignore[operator]
            raise ValueError("integer over 64 bits")
    elif depth >= MAX_DEPTH:
        raise ValueError(f"maximum container nesting depth ({MAX_DEPTH}) exceeded")
    elif kind is list or kind is tuple:
        if leaves.issuperset(map(type, value)):  # type: ignore[call-overload]
            return
        for item in value:  # type: ignore[attr-defined]
            kind = type(item)
            if kind in leaves or (kind is int and _INT_LOW <= item <= _INT_HIGH):
                continue
            if kind is list and depth + 1 < MAX_DEPTH and leaves.issuperset(map(type, item)):
                continue
            _check(item, depth + 1, leaves)
    elif kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) is not str:
                raise TypeError(f"map key must be text, not {type(key).__name__}")
            kind = type(item)
            if not (kind in leaves or (kind is int and _INT_LOW <= item <= _INT_HIGH)):
                _check(item, depth + 1, leaves)
    else:
        raise TypeError(f"type {kind.__name__} is not supported")


def shown(text: object) -> str:
    """Return a peer's text for an error or a log: one line, printable, at most 120 characters."""
    line = str(text)[: _SHOWN + 1]
    if not line.isprintable():
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)
    return line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."


def is_address(text: str) -> bool:
    """Return True if a peer's text can be an address: printable, and with a space only in a path (ipc, inproc)."""
    return text.isprintable() and (" " not in text or text.startswith(("ipc://", "inproc://")))


def as_map(value: object, *, what: str, peer: str | None = None) -> dict[str, Any]:
    """Return `value`, which must be a map. Raises BadMessage."""
    if type(value) is not dict:
        raise BadMessage(what, f"{_named(value)} instead of a map", peer)
    return value


def check_version(fields: dict[str, Any], ours: int, *, what: str, peer: str | None = None) -> None:
    """Check the peer's protocol version, the field `v`: 1 to `ours`. BadMessage for a newer one names both."""
    if "v" not in fields:
        raise BadMessage(what, "field 'v' is missing", peer)
    theirs = fields["v"]
    if type(theirs) is not int:
        raise BadMessage(what, f"field 'v' must be int, not {_named(theirs)}", peer)
    if theirs < 1:
        raise BadMessage(what, "field 'v' is out of range", peer)
    if theirs > ours:
        raise BadMessage(what, f"version {theirs} is newer than the supported version {ours}", peer)


def _named(value: object) -> str:
    return "null" if value is None else type(value).__name__
