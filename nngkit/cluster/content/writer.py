"""SharedWriter: the changes of one writer of a shared object, until they are safe. Pure.

::

    change -> waits -> sent to the host -> confirmed: in the content here -> kept, for a host that does not have it

A copy that takes the state of a new host may lose changes that it had: the writer then sends those again that it keeps,
its last `KEPT_CHANGES` and `KEPT_BYTES`. Older ones are counted in `lost`. Knows no time, and no message.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from nngkit.cluster.content.messages import FRAGMENT_LIMIT, MOST_ENTRIES
from nngkit.errors import Full, TooLarge

KEPT_BYTES, KEPT_CHANGES = 1 << 20, 1024  # kept after their confirmation: seconds of changes at a high rate
QUEUE_BYTES, QUEUE_CHANGES = 16 << 20, 65536  # that wait for the host; beyond, `change` raises Full
ENTRY: Final = 64  # bytes counted for a change beside its data
RUN_BYTES: Final = FRAGMENT_LIMIT  # of changes in one message, and sent by a writer before their confirmation


class SharedWriter:
    """Own changes by number.

    Attributes:
        written: Number of the last change.
        confirmed: Changes up to it are in the content.
        next: Change to send next.
        repeated: Changes that were confirmed, and sent again after a new host began without them.
        lost: Such changes that were not kept any more.
    """

    def __init__(self, name: str) -> None:
        self.written = self.confirmed = self.repeated = self.lost = 0
        self.next = 1
        self._name = name
        self._mine: OrderedDict[int, bytes] = OrderedDict()
        self._waiting_bytes = self._kept_bytes = 0

    def __getitem__(self, n: int) -> bytes:
        return self._mine[n]

    def change(self, fragment: bytes) -> int:
        """Add a change; return its number. Raises Full, TooLarge."""
        if len(fragment) > FRAGMENT_LIMIT:
            raise TooLarge(len(fragment), FRAGMENT_LIMIT)
        waiting = self.written - self.confirmed
        if waiting >= QUEUE_CHANGES or self._waiting_bytes + len(fragment) > QUEUE_BYTES:
            raise Full(f"shared object {self._name!r}: {waiting} changes wait for the host")
        self.written += 1
        self._mine[self.written] = fragment
        self._waiting_bytes += len(fragment) + ENTRY
        return self.written

    def batch(self) -> tuple[int, int, tuple[bytes, ...]] | None:
        """Return the number before the oldest change to confirm, and changes to send with the number of the first.

        None if the window is full, or all are sent.
        """
        after = max(self.confirmed, self._oldest - 1)
        on_way = sum(len(self._mine[n]) + ENTRY for n in range(after + 1, self.next))
        first, found = self.next, []
        while self.next <= min(self.written, after + MOST_ENTRIES):
            data = self._mine[self.next]
            on_way += len(data) + ENTRY
            if on_way > RUN_BYTES and self.next > after + 1:
                break
            found.append(data)
            self.next += 1
        return (after, first, tuple(found)) if found else None

    def again(self) -> None:
        """Send from the first change that is not confirmed."""
        self.next = max(self.confirmed + 1, self._oldest)

    def behind(self, last: int) -> None:
        """Send from the change after `last`, if the host can be right."""
        if self.confirmed <= last < self.next:
            self.next = max(last + 1, self._oldest)

    def confirm(self, n: int) -> None:
        """Record that changes up to `n` are in the content: fewer than before if that was replaced."""
        oldest = self._oldest
        if n < self.confirmed:
            self.lost += max(0, oldest - 1 - n)
            self.repeated += self.confirmed - max(n, oldest - 1)
            self.next = n + 1
        for number in range(max(oldest, min(n, self.confirmed) + 1), max(n, self.confirmed) + 1):
            size = len(self._mine[number]) + ENTRY
            self._kept_bytes += size if number <= n else -size
            self._waiting_bytes -= size if number <= n else -size
        self.confirmed = n
        self.next = max(self.next, n + 1, oldest)
        while oldest <= n and (n - oldest >= KEPT_CHANGES or self._kept_bytes > KEPT_BYTES):
            self._kept_bytes -= len(self._mine.pop(oldest)) + ENTRY
            oldest += 1

    @property
    def _oldest(self) -> int:
        return next(iter(self._mine), self.written + 1)
