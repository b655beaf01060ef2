"""Published messages as a gateway's streams have them, and what it keeps of them. Pure.

An entry is a message, or what is told in the place of missing ones. Its id is that of the message: the publisher, the
start of its run and the number there, so that a client resumes by it at any gateway that follows the publisher::

    id: 6c1f0a77e2b3d904.1764288000123456.42
    data: {"topic":"weather.ny","body":"4"}

    event: gap
    data: {"publisher":"6c1f0a77e2b3d904","first":43,"last":44,"count":2,"reason":"lost"}

A body that is not UTF-8 is base64, and `"encoding":"base64"` says so. Over WebSocket an entry is one text message: the
same object with `"id"`, or with `"event"`.
"""

from __future__ import annotations

import base64
import re
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final

import msgspec
from wsproto.frame_protocol import CloseReason, FrameProtocol

from nngkit.fanout.numbered.lag import Gap, Published, Restarted

OVERHEAD: Final = 500  # bytes that Python needs for an entry beside its data
_FRAMES: Final = FrameProtocol(client=False, extensions=[])  # a server's frames are not masked: equal for all clients
GOING_AWAY: Final = bytes(_FRAMES.close(CloseReason.GOING_AWAY, "the gateway ends; connect again"))
"""The last frame of a WebSocket whose gateway ends (RFC 6455, 7.4.1: code 1001)."""
_NUMBER: Final = re.compile("[0-9]{1,19}")
_encode: Final = msgspec.json.encode


class Entry:
    """One event. `topic`: None for what concerns all; `event`: "" for a message; `size`: bytes in memory, about."""

    def __init__(self, topic: bytes | None, id: str, event: str, fields: dict[str, Any]) -> None:
        self.topic = topic
        self.id = id
        self.event = event
        self._data = _encode(fields)
        self.number = 1  # of the messages of its topic, as far as the feed remembers
        self.size = OVERHEAD + 3 * len(self._data)  # as it is, as an event and as a frame

    @cached_property
    def sse(self) -> bytes:
        """The event of a text/event-stream."""
        named = f"id: {self.id}\n" if self.id else ""
        event = f"event: {self.event}\n" if self.event else ""
        return f"{named}{event}data: ".encode() + self._data + b"\n\n"

    @cached_property
    def frame(self) -> bytes:
        """The frame of a WebSocket."""
        named = _encode({"event": self.event} if self.event else {"id": self.id})
        return bytes(_FRAMES.send_data((named[:-1] + b"," + self._data[1:]).decode(), fin=True))


def of_message(message: Published) -> Entry:
    """Return the entry of a message."""
    fields: dict[str, Any] = {"topic": message.topic.decode(errors="replace")}
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields |= {"body": base64.b64encode(message.body).decode(), "encoding": "base64"}
    numbered = f"{message.publisher.hex()}.{message.epoch}.{message.number}"
    return Entry(message.topic, numbered, "", fields)


def of_gap(gap: Gap) -> Entry:
    """Return what is told in the place of messages that the gateway has not got."""
    fields = {"publisher": gap.publisher.hex(), "first": gap.first, "last": gap.last, "count": gap.count}
    return Entry(None, f"{gap.publisher.hex()}.{gap.epoch}.{gap.last}", "gap", {**fields, "reason": gap.reason})


def of_restart(restart: Restarted) -> Entry:
    """Return what is told when a publisher has begun anew."""
    return Entry(None, "", "restarted", {"publisher": restart.publisher.hex(), "epoch": restart.epoch})


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Caps on what a gateway keeps: `messages` and `bytes` for clients that resume, `topics` with a last message."""

    messages: int = 10_000
    bytes: int = 32 << 20
    topics: int = 10_000


class Feed:
    """The newest entries in order, and the last message of each topic; both capped, the oldest are forgotten."""

    def __init__(self, limits: FeedLimits) -> None:
        self._limits = limits
        self._entries: deque[Entry] = deque()
        self._first = 0  # how many came before the entries
        self._bytes = 0
        self._places: dict[str, int] = {}  # of ids, in the order of all entries
        self._last: OrderedDict[bytes, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Bytes of the entries, about."""
        return self._bytes

    def add(self, entry: Entry) -> None:
        """Take in an entry."""
        if entry.id:
            self._places[entry.id] = self._first + len(self._entries)
        self._entries.append(entry)
        self._bytes += entry.size
        if entry.topic is not None:
            before = self._last.pop(entry.topic, None)
            if before is not None:
                entry.number = before.number + 1
            self._last[entry.topic] = entry
            if len(self._last) > self._limits.topics:
                self._last.popitem(last=False)
        while len(self._entries) > self._limits.messages or self._bytes > self._limits.bytes:
            gone = self._entries.popleft()
            self._bytes -= gone.size
            if self._places.get(gone.id) == self._first:
                del self._places[gone.id]
            self._first += 1

    def last(self) -> list[Entry]:
        """Return the last message of each topic, in the order of their publication."""
        return list(self._last.values())

    def newest(self, most: int) -> list[Entry]:
        """Return the last message of each of the topics that had one most recently, at most `most`."""
        return list(islice(reversed(self._last.values()), most))

    def after(self, id: str) -> list[Entry]:
        """Return what came after the entry with this id; if it is not kept, a gap in the place of what is missing.

        The gap counts what is missing if an older message of the same run is known to be so; else everything that is
        kept follows it.
        """
        place = self._places.get(id)
        if place is not None:
            return list(islice(self._entries, place - self._first + 1, None))
        run, _, number = id.rpartition(".")
        publisher = run.partition(".")[0][:16]
        kept = list(self._entries)
        numbers = list(_numbers(kept, f"{run}.")) if _NUMBER.fullmatch(number) else []
        later = [each for each in numbers if each > int(number)]
        if numbers and not later:
            return [entry for entry in kept if not _is_before(entry, f"{run}.", int(number))]
        fields: dict[str, Any] = {"publisher": publisher if publisher.isalnum() else "", "reason": "forgotten"}
        if later:
            first, last = int(number) + 1, min(later) - 1
            if first > last:
                return kept
            fields |= {"first": first, "last": last, "count": last - first + 1}
        return [Entry(None, "", "gap", fields), *kept]


def _numbers(entries: list[Entry], run: str) -> Iterator[int]:
    return (int(entry.id[len(run) :]) for entry in entries if entry.id.startswith(run))


def _is_before(entry: Entry, run: str, number: int) -> bool:
    return entry.id.startswith(run) and int(entry.id[len(run) :]) <= number
