"""CBOR decoding with every tag refused: the one list of tags that cbor2 would decode by itself.

`nngkit.envelope` and `nngkit.protocols.batch` read bytes from peers through `decode_one`. A tag is code that runs in
the reader, so none is accepted. Pure: no clock, no socket; imports no module of nngkit.
"""

from __future__ import annotations

import io
from typing import Any, Final, NoReturn

import cbor2

REFUSED: Final = (cbor2.CBORError, ValueError, TypeError, OverflowError, MemoryError)
"""Errors of `decode_one` for bytes that it does not accept."""

# Every tag that cbor2 6.2 decodes by itself; `tag_hook` sees only the others. tests/test_envelope.py sends all tags up
# to 65535, so it fails when a release of cbor2 adds one.
_KNOWN_TAGS = (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799)


def _deny(*_: object) -> NoReturn:
    raise ValueError("tags are not allowed")


_DENIED = dict.fromkeys(_KNOWN_TAGS, _deny)


def decode_one(data: bytes, *, max_depth: int) -> Any:
    """Return the one value in `data`, which must use all of its bytes. Raises one of `REFUSED`.

    `max_depth` bounds nested containers. Indefinite lengths and duplicate keys are refused.
    """
    stream = io.BytesIO(data)
    decoder = cbor2.CBORDecoder(
        stream,
        tag_hook=_deny,
        semantic_decoders=_DENIED,
        max_depth=max_depth,
        allow_indefinite=False,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
    )
    value = decoder.decode()
    if (used := stream.tell()) != len(data):
        raise ValueError(f"{len(data) - used} bytes after the value")
    return value


def innermost(error: BaseException) -> str:
    """Return the text of the innermost cause: cbor2 wraps errors inside containers."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return str(error) or type(error).__name__
