"""Letters: messages from one node to another, up and down the tree. Each comes once, in order. Pure.

::

    letters = Letters(epoch)
    letters.send("b", "chat", b"for you", now)
    letters.receive("b", epoch, row, now)       # -> [Letter(...)]: those of `b` that are new and next
    letters.attached(now)                       # a new way to the host: send again what is not acknowledged
    letters.take()                              # -> [(to, row)]

The tree loses frames while it changes, so a letter is kept until its receiver has acknowledged it, and sent again in
order. Invariants:

1. A receiver that lives on takes each letter of a sender's run once, and in order; one that was restarted takes those
   that its earlier run has not acknowledged.
2. A letter that is not acknowledged for `patience` seconds is given up, with all before it, and counted.
3. Letters to one node, receivers, and runs of senders that are remembered, are capped. A receiver that has no letters
   to acknowledge is idle, and holds up no other: the one that is idle for longest is forgotten. If it is written to
   again, its numbers go on above all that any forgotten one was sent. So it takes no old letter for a new one, and does
   not wait for those between: the first number that is kept, which each letter carries, says that they do not come.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from msgspec import Meta

from nngkit.cluster.frames import Kind
from nngkit.cluster.log_clock import NEVER
from nngkit.errors import BadMessage, Full
from nngkit.messages import MOST_NUMBER, Natural, Row, Rows


class Envelope(Row, frozen=True, tag=0):
    """A letter on its way. `base`: the first number that its sender still keeps."""

    number: Annotated[int, Meta(ge=1, le=MOST_NUMBER)]
    base: Annotated[int, Meta(ge=1, le=MOST_NUMBER)]
    kind: Kind
    body: bytes


class Acknowledgement(Row, frozen=True, tag=1):
    """All letters of the receiver's run `epoch` up to `number` have arrived."""

    number: Natural
    epoch: Natural


Message: TypeAlias = Envelope | Acknowledgement
KINDS: Final = Rows[Message]("letter", Envelope, Acknowledgement)


@dataclass(frozen=True, kw_only=True)
class LetterLimits:
    """Limits of a node's letters. Times are in seconds."""

    waiting: int = 1024  # letters to one node that are not acknowledged
    again: float = 1.0  # time after which they are sent again
    patience: float = 30.0  # time after which a letter is given up
    receivers: int = 4096  # nodes with such letters, at a time; as many idle ones are remembered
    senders: int = 4096  # runs of senders that are remembered


class Letter(NamedTuple):
    """A letter that has arrived."""

    sender: str
    epoch: int
    number: int
    kind: str
    body: bytes


@dataclass(slots=True)
class _Outgoing:
    """Letters to one node that are not acknowledged: (number, sent at, kind, body)."""

    next: int
    waiting: deque[tuple[int, float, str, bytes]] = field(default_factory=deque)
    again_at: float = 0.0


class Letters:
    """Letters of one run of a node, in both directions."""

    def __init__(self, epoch: int, limits: LetterLimits | None = None) -> None:
        self._epoch = epoch
        self.limits = limits or LetterLimits()
        self.wake_at = NEVER
        self.given_up = 0
        self._own = 0
        self._out: dict[str, _Outgoing] = {}  # those with letters that are not acknowledged
        self._idle: OrderedDict[str, int] = OrderedDict()  # the others, and their next numbers
        self._unused = 1  # above all numbers that forgotten receivers were sent
        self._next: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._rows: list[tuple[str, list[Any]]] = []

    def take(self) -> list[tuple[str, list[Any]]]:
        """Return what is to be sent: receivers and rows, in order."""
        rows, self._rows = self._rows, []
        return rows

    def room(self, to: str) -> bool:
        """Return True if a letter to this node may be sent."""
        out = self._out.get(to)
        return len(self._out) < self.limits.receivers if out is None else len(out.waiting) < self.limits.waiting

    def unacknowledged(self, to: str) -> int:
        """Return the number of letters to this node that it has not acknowledged."""
        out = self._out.get(to)
        return 0 if out is None else len(out.waiting)

    def send(self, to: str, kind: str, body: bytes, now: float) -> int:
        """Send a letter; return its number. Raises Full."""
        out = self._out.get(to)
        if not self.room(to):
            raise Full(
                f"{len(self._out)} nodes have messages to acknowledge"
                if out is None
                else f"{len(out.waiting)} messages to {to!r} are not acknowledged"
            )
        if out is None:
            out = self._out[to] = _Outgoing(self._idle.pop(to, self._unused))
        number = out.next
        out.next += 1
        if not out.waiting:
            out.again_at = now + self.limits.again
            self.wake_at = min(self.wake_at, out.again_at)
        out.waiting.append((number, now, kind, body))
        self._rows.append((to, KINDS.pack(Envelope(number, out.waiting[0][0], kind, body))))
        return number

    def own(self) -> int:
        """Return the number of a letter of this node to itself, which needs no way."""
        self._own += 1
        return self._own

    def attached(self, now: float) -> None:
        """Send again, over a new way, what is not acknowledged."""
        for to, out in self._out.items():
            self._send_again(to, out, now)

    def tick(self, now: float) -> None:
        """Send again what has not been acknowledged in time; give up the oldest. Sets `wake_at`."""
        if now < self.wake_at:
            return
        self.wake_at = NEVER
        for to, out in list(self._out.items()):
            while out.waiting and out.waiting[0][1] + self.limits.patience <= now:
                out.waiting.popleft()
                self.given_up += 1
            if not out.waiting:
                self._rest(to)
                continue
            if out.again_at <= now:
                self._send_again(to, out, now)
            self.wake_at = min(self.wake_at, out.again_at)

    def _rest(self, to: str) -> None:
        """Note that a receiver has nothing to acknowledge; forget the one that is idle for longest."""
        self._idle[to] = self._out.pop(to).next
        if len(self._idle) > self.limits.receivers:
            self._unused = max(self._unused, self._idle.popitem(last=False)[1])

    def _send_again(self, to: str, out: _Outgoing, now: float) -> None:
        base = out.waiting[0][0]
        self._rows += [(to, KINDS.pack(Envelope(number, base, kind, body))) for number, _, kind, body in out.waiting]
        out.again_at = now + self.limits.again

    def receive(self, sender: str, epoch: int, row: list[Any], now: float) -> list[Letter]:
        """Take in a row from a node; return the letters that are new and next. Raises BadMessage."""
        match KINDS.parse(row, sender):
            case Envelope(number, base, kind, body):
                if base > number:
                    raise BadMessage("letter", f"number {number} is before {base}, the first that is kept", sender)
                return self._arrived(sender, epoch, number, base, kind, body)
            case Acknowledgement(number, run) if run == self._epoch:
                self._acknowledged(sender, number)
        return []

    def _arrived(self, sender: str, epoch: int, number: int, base: int, kind: str, body: bytes) -> list[Letter]:
        key = sender, epoch
        # from `base` on for a run that is new here, or one that has given up what was before
        expected = max(base, self._next.pop(key, base))
        taken = number == expected
        self._next[key] = expected + taken
        if len(self._next) > self.limits.senders:
            self._next.popitem(last=False)
        self._rows.append((sender, KINDS.pack(Acknowledgement(expected + taken - 1, epoch))))
        return [Letter(sender, epoch, number, kind, body)] if taken else []

    def _acknowledged(self, sender: str, number: int) -> None:
        out = self._out.get(sender)
        if out is None:
            return
        while out.waiting and out.waiting[0][0] <= number:
            out.waiting.popleft()
        if not out.waiting:
            self._rest(sender)
