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
from typing import Annotated, Final

from msgspec import Meta

from nngkit.messages import Row, Rows

MOST_VALUES: Final = 65_536
MOST_OUTBOXES: Final = 65_536  # remembered by a receiver, the latest; 200 bytes of memory each


class OutboxEntries(Row, frozen=True, tag=1):
    """Message: `values` with the numbers `first`, `first` + 1 and so on."""

    outbox: Annotated[bytes, Meta(min_length=16, max_length=16)]
    first: Annotated[int, Meta(ge=0, lt=1 << 62)]
    values: Annotated[list[bytes], Meta(min_length=1, max_length=MOST_VALUES)]


ENTRIES: Final = Rows[OutboxEntries]("outbox message", OutboxEntries)


def encode_entries(outbox: bytes, first: int, values: Sequence[bytes]) -> bytes:
    """Return the message."""
    return ENTRIES.encode(OutboxEntries(outbox, first, list(values)))


def parse_entries(body: bytes, *, peer: str | None = None) -> OutboxEntries:
    """Decode a message. Raises BadMessage."""
    return ENTRIES.decode(body, peer, limit=len(body))


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
        entries = parse_entries(body, peer=peer)
        outbox, first, values = entries.outbox, entries.first, entries.values
        expected = self.positions.pop(outbox, 0)
        known = min(max(0, expected - first), len(values))
        self.duplicates += known
        if first > expected:
            self.missing += first - expected
        self.positions[outbox] = max(expected, first + len(values))
        if len(self.positions) > MOST_OUTBOXES:
            del self.positions[next(iter(self.positions))]
        return values[known:]
