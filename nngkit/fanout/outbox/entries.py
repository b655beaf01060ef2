"""Messages of an outbox, and the check for duplicates at the receiver. Pure; docs/wire.md has them as CDDL.

::

    message = [1, outbox: bstr .size 16, first: uint, [+ value: bstr]]       values first, first + 1, ...

An outbox sends in order and repeats what was not acknowledged, so a receiver needs one number for each outbox to
recognize a duplicate:

    >>> receiver = OutboxReceiver()
    >>> message = encode_entries(b"o" * 16, 0, [b"a", b"b"])
    >>> receiver.accept(message), receiver.accept(message)
    ([b'a', b'b'], [])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nngkit import envelope
from nngkit.errors import BadMessage

__all__ = ["OutboxEntries", "OutboxReceiver", "encode_entries", "parse_entries"]

ID_SIZE: Final = 16
MOST_VALUES: Final = 65_536
MOST_OUTBOXES: Final = 65_536  # remembered by a receiver, the latest; 200 bytes of memory each
_WHAT: Final = "outbox message"
_VERSION: Final = 1


class OutboxEntries(NamedTuple):
    """Decoded message: `values` with the numbers `first`, `first` + 1 and so on."""

    outbox: bytes
    first: int
    values: list[bytes]


def encode_entries(outbox: bytes, first: int, values: Sequence[bytes]) -> bytes:
    """Return the message."""
    return envelope.encode([_VERSION, outbox, first, list(values)])


def parse_entries(body: bytes, *, peer: str | None = None) -> OutboxEntries:
    """Decode a message. Raises BadMessage."""
    fields = envelope.decode(body, what=_WHAT, limit=len(body), peer=peer)
    match fields:
        case [1, bytes(outbox), int(first), list(values)] if len(outbox) == ID_SIZE and 0 <= first < 1 << 62:
            if not 1 <= len(values) <= MOST_VALUES or set(map(type, values)) != {bytes}:
                raise BadMessage(_WHAT, f"expected 1 to {MOST_VALUES} byte strings", peer)
            return OutboxEntries(outbox, first, values)
        case _:
            raise BadMessage(_WHAT, "expected [1, outbox, first, values]", peer)


class OutboxReceiver:
    """Drops duplicates. `positions`: the next number of each outbox; a receiver that restarts passes those it kept.

    `duplicates` counts dropped values; `missing` numbers jumped over, as after the loss of a folder.
    """

    def __init__(self, positions: Mapping[bytes, int] | None = None) -> None:
        self.positions: dict[bytes, int] = dict(positions or {})
        self.duplicates = 0
        self.missing = 0

    def accept(self, body: bytes, *, peer: str | None = None) -> list[bytes]:
        """Return the values of a message that are new, in order. Raises BadMessage."""
        outbox, first, values = parse_entries(body, peer=peer)
        expected = self.positions.pop(outbox, 0)
        known = min(max(0, expected - first), len(values))
        self.duplicates += known
        if first > expected:
            self.missing += first - expected
        self.positions[outbox] = max(expected, first + len(values))
        if len(self.positions) > MOST_OUTBOXES:
            del self.positions[next(iter(self.positions))]
        return values[known:]
