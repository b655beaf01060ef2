"""Numbers of published messages, and what a subscriber has missed of them. Pure: no clock, no socket, no loop.

A publisher stamps each message with its id, the epoch of its run, a number, and the time: in a trailer after topic and
body, so that any SUB still matches the topic (docs/wire.md). Numbers run over all topics, from 1, without a hole. A
publisher sends every message to every subscriber, so a hole in the numbers is a loss, whatever topics are wanted.
Heartbeats say the last number: a missing tail shows without a further message. Numbers that a subscriber has no right
to are told as withheld before the next message that it gets.

`Accounts` has an account for each publisher, and turns stamped messages into events, in order.

A run is known by its epoch, the publisher's clock at its start. Clocks go back, so epochs do not order runs: a run that
was never heard is a newer one, and one that another has followed is over. It returns only if the newer one says nothing
between two of its heartbeats: then the newer one's messages were the ones that came late.

Invariants (tests/fanout/test_lag.py):

1. From the first number of an account on: delivered + withheld + missed - late = the numbers up to the highest one
   known.
2. No number is delivered twice.
3. A message of a run that another has followed is refused, and counted.
4. A number that arrives after it was reported as missing is delivered as late; `missed` keeps it, `late` counts it.
5. Memory is capped: accounts, and for each the ranges in which late messages are recognized.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from nngkit.errors import BadMessage, TooLarge
from nngkit.headers import MOST_PACKED, pack_headers, unpack_headers

MAGIC: Final = b"nkL\x01"
MAGIC_HEADERS: Final = b"nkL\x02"
"""Last bytes of a message with headers: they stand before the trailer, as CBOR, and their size, u32, after them."""
_MAGICS: Final = frozenset((MAGIC, MAGIC_HEADERS))
_TRAILER: Final = struct.Struct(">8sQQQ4s")  # publisher, epoch, number, stamp, magic
TRAILER_SIZE: Final = _TRAILER.size
"""Bytes that the trailer adds to a message."""
HEARTBEAT: Final = b"\x00nngkit.heartbeat\x00"
"""Topic of heartbeats. They repeat the number of the last message."""
WITHHELD: Final = b"\x00nngkit.withheld\x00"
"""Topic of messages that say which numbers the receiver has no right to: from that of the body to their own."""
_FIRST: Final = struct.Struct(">Q")
_SIZE: Final = struct.Struct(">I")
MOST_ADDED: Final = TRAILER_SIZE + MOST_PACKED + _SIZE.size
"""Bytes that trailer and headers add to a message at most."""

MOST_PUBLISHERS: Final = 1024
"""Accounts of one subscriber; over it, the one whose publisher has said nothing for longest is forgotten."""
MOST_RANGES: Final = 64
MOST_RUNS: Final = 4
"""Runs of one publisher that are known to be over: the messages of an older one are no longer on their way."""
MOST_TOPIC: Final = 4095
"""Bytes of a topic: its length has the upper 12 bits of the stamp. The lower 52 last until 2112."""
_TIME_BITS: Final = 52
_TIME: Final = (1 << _TIME_BITS) - 1
MOST_SEQUENCE: Final = 2**63 - 1

GapReason = Literal["lost", "slow"]
Refusal = Literal["no number", "bad number", "duplicate", "earlier run", "over cap"]


class Published(NamedTuple):
    """A message: topic and body as they were published, without the trailer.

    data        both in one, as they were sent
    publisher   its id, 8 bytes
    epoch       start of its run, microseconds since 1970
    number      of the message in that run, from 1, over all topics
    time        of publication, microseconds since 1970, by the publisher's clock
    late        it was reported as missing before
    topic_size  bytes of `data` that are the topic; 0 from a publisher of an older version, which does not tell
    headers     None if it was published without; also in a snapshot, which keeps none
    """

    data: bytes
    publisher: bytes
    epoch: int
    number: int
    time: int
    late: bool = False
    topic_size: int = 0
    headers: dict[str, str | bytes] | None = None

    @property
    def topic(self) -> bytes:
        """The topic."""
        return self.data[: self.topic_size]

    @property
    def body(self) -> bytes:
        """The body."""
        return self.data[self.topic_size :]


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages that are not delivered: `count` of the numbers `first` to `last`, both included.

    `reason`: "lost" - they did not arrive; which topics they had is not known. "slow" - they arrived, and the program
    read too slowly.
    """

    publisher: bytes
    epoch: int
    first: int
    last: int
    count: int
    reason: GapReason = "lost"


class Restarted(NamedTuple):
    """A publisher has begun a new run. Of the run `before` its messages up to `last` are accounted for."""

    publisher: bytes
    epoch: int
    before: int
    last: int


class Heartbeat(NamedTuple):
    """A publisher's last number, and what it says about itself. A gap that it shows precedes it."""

    publisher: bytes
    epoch: int
    number: int
    time: int
    body: bytes


Event = Published | Gap | Restarted | Heartbeat


def stamp(time: int, topic_size: int) -> int:
    """Return time and length of the topic in one number."""
    return topic_size << _TIME_BITS | time


def published(data: bytes, publisher: bytes, epoch: int, number: int, stamp: int) -> Published:
    """Return a message as it is in a snapshot."""
    return Published(data, publisher, epoch, number, stamp & _TIME, False, stamp >> _TIME_BITS)


def pack_trailer(publisher: bytes, epoch: int, number: int, stamp: int, magic: bytes = MAGIC) -> bytes:
    """Return the trailer of a message. `magic`: MAGIC_HEADERS if `sized_headers` is before it."""
    return _TRAILER.pack(publisher, epoch, number, stamp, magic)


def sized_headers(headers: dict[str, str | bytes]) -> bytes:
    """Return headers as they stand before a trailer."""
    packed = pack_headers(headers)
    return packed + _SIZE.pack(len(packed))


def read_trailer(message: bytes) -> tuple[bytes, int, int, int] | None:
    """Return publisher, epoch, number and time of a message; None if it has no trailer."""
    if not has_trailer(message):
        return None
    publisher, epoch, number, stamp, _ = _TRAILER.unpack_from(message, len(message) - TRAILER_SIZE)
    return publisher, epoch, number, stamp & _TIME


def has_trailer(message: bytes) -> bool:
    """Return True for a message of a Publisher."""
    return message[-4:] in _MAGICS and len(message) >= TRAILER_SIZE


def data_size(message: bytes) -> int:
    """Return the bytes of topic and body of a message with a trailer."""
    length = len(message) - TRAILER_SIZE
    if message[-4:] == MAGIC_HEADERS:
        length -= _SIZE.size
        return max(0, length - (_SIZE.unpack_from(message, length)[0] if length >= 0 else 0))
    return length


def _headers_before(message: bytes, length: int) -> tuple[int, dict[str, str | bytes]] | None:
    """Return the bytes of topic and body, and the headers between them and the trailer; None if it has none."""
    end = length - _SIZE.size
    if end < 0 or message[-4:] != MAGIC_HEADERS:
        return None
    start = end - _SIZE.unpack_from(message, end)[0]
    if start < 0:
        return None
    try:
        return start, unpack_headers(message[start:end])
    except (BadMessage, TooLarge):
        return None


def number_and_topic(message: bytes) -> tuple[int, bytes | None]:
    """Return number and topic of a message with a trailer; None in place of the topic of a heartbeat and its like."""
    length = data_size(message)
    _, _, number, stamp, _ = _TRAILER.unpack_from(message, len(message) - TRAILER_SIZE)
    return number, message[: min(length, stamp >> _TIME_BITS)] if message[0] or not length else None


def pack_withheld(publisher: bytes, epoch: int, first: int, last: int) -> bytes:
    """Return the message that says that `first` to `last` are withheld."""
    return WITHHELD + _FIRST.pack(first) + pack_trailer(publisher, epoch, last, 0)


COUNTED: Final = ("delivered", "late", "missed", "withheld")


class Account:
    """Numbers of one publisher's run. `next`: the lowest that was neither delivered nor reported as missing.

    over      earlier runs by their epochs; their late messages are no longer recognized
    returned  run in `over` whose heartbeat was the last that was heard of this publisher
    """

    __slots__ = ("epoch", "next", "over", "publisher", "ranges", "returned", *COUNTED)

    def __init__(self, publisher: bytes, epoch: int, next: int) -> None:
        self.publisher = publisher
        self.epoch = epoch
        self.next = next
        self.delivered = self.missed = self.late = self.withheld = 0
        self.ranges: list[tuple[int, int]] = []  # reported as missing, ascending; over a cap the oldest are forgotten
        self.over: OrderedDict[int, Account] = OrderedDict()
        self.returned: int | None = None

    def skip(self, until: int) -> Gap | None:
        """Report the numbers below `until` as missing; None if none is."""
        first = self.next
        if until <= first:
            return None
        self.missed += until - first
        self.ranges.append((first, until - 1))
        if len(self.ranges) > MOST_RANGES:
            del self.ranges[0]
        self.next = until
        return Gap(self.publisher, self.epoch, first, until - 1, until - first)

    def fill(self, number: int) -> bool:
        """Remove `number` from the missing ones; return True if it was among them."""
        for index, (first, last) in enumerate(self.ranges):
            if first <= number <= last:
                parts = ((first, number - 1), (number + 1, last))
                self.ranges[index : index + 1] = [part for part in parts if part[0] <= part[1]]
                self.late += 1
                self.delivered += 1
                return True
        return False


class Accounts:
    """Accounts of the publishers that a subscriber hears. `refused` counts messages by Refusal.

    A publisher that is heard for the first time begins with the number that is heard.
    """

    def __init__(self) -> None:
        self.refused: dict[Refusal, int] = dict.fromkeys(get_args(Refusal), 0)
        self._accounts: dict[bytes, Account] = {}
        self._silent: OrderedDict[bytes, None] = OrderedDict()  # their publishers, those first that are so for longest
        self._gone = Account(b"", 0, 1)  # counts of accounts and runs that are forgotten
        self._forgotten: list[bytes] = []

    def total(self, count: str) -> int:
        """Return one of COUNTED of all publishers and their runs, also of forgotten ones."""
        runs = [run for account in self._accounts.values() for run in (account, *account.over.values())]
        return sum(getattr(run, count) for run in (self._gone, *runs))

    def forgotten(self) -> list[bytes]:
        """Return the publishers that have no account any more, each once."""
        gone, self._forgotten = self._forgotten, []
        return [publisher for publisher in dict.fromkeys(gone) if publisher not in self._accounts]

    def get(self, publisher: bytes) -> Account | None:
        """Return the account of a publisher."""
        return self._accounts.get(publisher)

    def all(self) -> list[Account]:
        """Return the accounts, those first that began first."""
        return list(self._accounts.values())

    def begin(self, publisher: bytes, epoch: int, next: int) -> None:
        """Begin at a number, as after a snapshot: earlier ones are duplicates. Without effect in another run."""
        account = self._accounts.get(publisher)
        if account is None:
            self._open(publisher, epoch, next)
        elif account.epoch == epoch and account.next < next:
            account.next = next

    def receive(self, messages: Sequence[bytes]) -> list[Event]:
        """Return the events of received messages, in order."""
        events: list[Event] = []
        accounts, unpack = self._accounts, _TRAILER.unpack_from
        for message in messages:
            end = length = len(message) - TRAILER_SIZE
            headers = None
            if length < 0 or message[-4:] != MAGIC:
                if (found := _headers_before(message, length)) is None:
                    self.refused["no number"] += 1
                    continue
                end, headers = found
            publisher, epoch, number, stamp, _ = unpack(message, length)
            account = accounts.get(publisher)
            data = message[:end]
            told = Published(data, publisher, epoch, number, stamp & _TIME, False, stamp >> _TIME_BITS, headers)
            if account is not None and account.next == number and account.epoch == epoch and message[0]:
                account.next = number + 1
                account.delivered += 1
                account.returned = None
                events.append(told)
            else:
                self._unusual(told, account, events)
        return events

    def _unusual(self, message: Published, account: Account | None, events: list[Event]) -> None:
        """Account for a message that does not follow the one before it."""
        data, publisher, epoch, number, time, *_ = message
        heartbeat, first = data.startswith(HEARTBEAT), _first_withheld(data)
        if not (0 if heartbeat else 1) <= number <= MOST_SEQUENCE or not (first is None or 1 <= first <= number):
            self.refused["bad number"] += 1
            return
        if account is None:
            account = self._open(publisher, epoch, number + (heartbeat or first is not None))
        elif epoch == account.epoch:
            account.returned = None
        elif epoch in account.over and not (heartbeat and account.returned == epoch):
            self.refused["earlier run"] += 1
            if heartbeat:
                account.returned = epoch
            return
        else:
            events.append(Restarted(publisher, epoch, account.epoch, account.next - 1))
            account = self._follow(account, epoch)
        if (gap := account.skip(number + heartbeat if first is None else first)) is not None:
            events.append(gap)
        if first is not None:
            account.withheld += max(0, number + 1 - account.next)
            account.next = max(account.next, number + 1)
        elif heartbeat:
            self._silent.move_to_end(publisher)
            events.append(Heartbeat(publisher, epoch, number, time, data[len(HEARTBEAT) :]))
        elif number == account.next:
            account.next += 1
            account.delivered += 1
            events.append(message)
        elif account.fill(number):
            events.append(message._replace(late=True))
        else:
            self.refused["duplicate"] += 1

    def _follow(self, before: Account, epoch: int) -> Account:
        """Return the account of a run that follows another. It begins with 1, so its missing messages are known."""
        over, before.over = before.over, OrderedDict()
        before.ranges.clear()
        account = over.pop(epoch, None) or Account(before.publisher, epoch, 1)
        over[before.epoch] = before
        if len(over) > MOST_RUNS:
            self._forget(over.popitem(last=False)[1])
        account.over, account.returned = over, None
        self._accounts[before.publisher] = account
        return account

    def _open(self, publisher: bytes, epoch: int, next: int) -> Account:
        if len(self._accounts) >= MOST_PUBLISHERS:
            silent = self._accounts.pop(self._silent.popitem(last=False)[0])
            self._forgotten.append(silent.publisher)
            for run in (silent, *silent.over.values()):
                self._forget(run)
            self.refused["over cap"] += 1
        account = self._accounts[publisher] = Account(publisher, epoch, next)
        self._silent[publisher] = None
        return account

    def _forget(self, run: Account) -> None:
        for count in COUNTED:
            setattr(self._gone, count, getattr(self._gone, count) + getattr(run, count))


def _first_withheld(data: bytes) -> int | None:
    """Return the first number that a message tells as withheld; None if it is another message."""
    if not data.startswith(WITHHELD):
        return None
    return _FIRST.unpack(data[len(WITHHELD) :])[0] if len(data) == len(WITHHELD) + _FIRST.size else 0
