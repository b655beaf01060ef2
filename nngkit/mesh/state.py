"""Decisions of a mesh node: accept, relay, ask, answer, give up, forget. Pure: no clock, no socket, no loop.

::

    state = MeshState("ada", epoch=1, now=0.0)
    state.link_up(7, now)                       # a neighbour has connected
    state.receive(7, frames, now)               # frames of one neighbour
    state.send([b"..."], now)                   # own messages
    if now >= state.wake_at:
        state.tick(now)
    effects = state.take()                      # what to deliver, relay and send

How a message travels: each node relays a new one to all neighbours but its sender (flooding), which takes the shortest
path and survives any cut that leaves one. What a full queue or a cut loses shows in the numbers, or in the digests that
neighbours exchange; a node asks one of them for it, and relays what comes as new. What no neighbour keeps any more is
given up and reported.

A number proves nothing by itself: any neighbour can send one in any origin's name. A message that is next is delivered,
and one further ahead is held, relayed, and what is missing before it is asked for. But messages are given up only as
far as their existence is *confirmed*, or a single forged number would have a node skip all that its origin sends later:

=======================================  ===========================================================================
the origin is a neighbour                by its own digest or message alone
it is not, and the link that brought     by the digest of that neighbour, or by two neighbours'
the last message in order stands
otherwise                                by any digest
=======================================  ===========================================================================

Digests say confirmed numbers only, so a forged one does not return as a confirmation; messages are relayed before, so
they are no neighbour's word. What is not confirmed within `patience` is dropped ("unconfirmed"). A message more than
`window` ahead of what is missing is not held, and one neighbour's claim that is more than `window` ahead of all others
is ignored until it is confirmed.

`Voices` says in whose name a neighbour may speak, and where this node may speak for others: messages, digests and
confirmations of an origin count only from a neighbour that may bring them. A request for messages is no such thing.

Invariants:

1. A number below `Stream.next` is never accepted: nothing is delivered twice.
2. Per stream, delivered and reported numbers follow each other without a hole, from the first one on.
3. A stream is forgotten only if the table is full and it has been idle for `forget`; a stream that is older than the
   node, or than `forget`, begins at its present end: a forgotten one cannot begin anew.
4. No number beyond the confirmed ones is given up.
5. Every table is capped: streams, kept and held bytes, claims (one for each link and stream that is behind).
6. What a neighbour says in a name that it may not use changes nothing but a counter of `Voices`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

from msgspec import UNSET

from nngkit.errors import BadMessage, ConfigError, TooLarge
from nngkit.mesh import wire
from nngkit.mesh.limits import (
    ANSWER_BYTES,
    ANSWERS_A_DIGEST,
    ASK_DELAY,
    ASK_MESSAGES,
    CLOCK_STEP,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_GIVEN_UP,
    MOST_WARNINGS,
    OVERHEAD,
    RECENT,
    SLACK,
    SLICE,
    SPEED,
    Effects,
    MeshLimits,
    Voices,
    size_of,
)
from nngkit.mesh.stream import Claim, Link, Stream
from nngkit.mesh.values import GapReason, MeshGap, MeshMessage, MeshStats
from nngkit.messages import MOST_NUMBER
from nngkit.silence import PERIOD, Silence


class MeshState:
    """State of one node. `epoch` must differ between the runs of an id: microseconds since 1970.

    `history`: begin older streams at what the first neighbour keeps, instead of at their present end. `voices`: without
    them every neighbour may speak for all.
    """

    def __init__(
        self,
        id: str,
        epoch: int,
        now: float,
        limits: MeshLimits | None = None,
        *,
        history: bool = False,
        voices: Voices | None = None,
    ) -> None:
        if not isinstance(id, str) or not id or not id.isprintable() or len(id.encode()) > wire.MOST_ORIGIN:
            raise ConfigError("id", f"{id!r} is not printable text of 1 to {wire.MOST_ORIGIN} bytes", id)
        if not 0 <= epoch <= MOST_NUMBER:
            raise ConfigError("epoch", f"{epoch!r} is not an integer from 0 to 2^53 - 1", epoch)
        self.id, self.epoch = id, epoch
        self.limits = limits or MeshLimits()
        self.history = history
        self._voices = voices
        self.started = now
        self.greeted = False  # a neighbour has told all of its streams: from here on, no stream is missed
        self.wake_at = now
        self._digest_at = self._check_at = self._checked = now
        self._silence: Silence[str] = Silence()
        self._key = wire.key_of(id, epoch)
        self._own = Stream(key=self._key, origin=id, epoch=epoch, next=1, born=now, changed=now)
        self._streams: dict[bytes, Stream] = {}  # without the own stream
        self._behind: dict[bytes, Stream] = {}
        self._links: dict[int, Link] = {}
        self._origins: dict[bytes, int] = {}  # links of neighbours by the key of their own stream
        self._order: deque[tuple[Stream, int]] = deque()  # kept messages of all streams, oldest first
        self._order_gone = 0  # of these, messages of forgotten streams
        self._kept_bytes = self._held_bytes = 0
        self._slice = 0
        self._full_until = now  # no stream may be forgotten before
        self._effects = Effects()
        self._warned: set[str] = set()
        self._count: dict[str, int] = {each.name: 0 for each in fields(MeshStats) if each.name != "refused"}

    # ---- what the shell does

    def take(self) -> Effects:
        """Return what is to be done since the last call."""
        effects = self._effects
        self._effects = Effects()
        return effects

    @property
    def sent(self) -> int:
        """Number of the last own message."""
        return self._own.head

    @property
    def stats(self) -> MeshStats:
        """The counters."""
        counted: dict[str, Any] = {
            **self._count,
            "streams": len(self._streams),
            "behind": len(self._behind),
            "kept_bytes": self._kept_bytes,
            "held_bytes": self._held_bytes,
        }
        return MeshStats(**counted)

    def position(self, origin: str, epoch: int) -> int | None:
        """Return the lowest number of a stream that is neither delivered nor given up; None for an unknown one."""
        stream = self._streams.get(wire.key_of(origin, epoch))
        return None if stream is None else stream.next

    def neighbour_ids(self) -> dict[int, str | None]:
        """Return the id of each link's neighbour, None before its first digest."""
        return {number: link.id for number, link in self._links.copy().items()}

    def link_up(self, link: int, now: float) -> None:
        """Greet a new neighbour: with the state of all streams."""
        if link in self._links:
            return
        self._links[link] = Link(now)
        others = self._streams.values() if self._carries(link) else ()
        lines = [self._line(stream, now) for stream in [self._own, *others] if stream.head]
        self._effects.sends += [(link, digest) for digest in self._digests(lines, whole=True)]

    def link_down(self, link: int, now: float) -> None:
        """Forget a neighbour that has left, and ask others for what it was asked for."""
        self._links.pop(link, None)
        self._origins = {key: number for key, number in self._origins.items() if number != link}
        for stream in self._behind.values():
            stream.claims.pop(link, None)
            if stream.asked == link:
                stream.asked = None
                self._ask_soon(stream, now)

    def send(self, bodies: Iterable[bytes], now: float) -> list[bytes]:
        """Number and keep own messages; return their frames, which go to all links."""
        own, frames = self._own, []
        if own.next == 1:
            own.born = now
        for body in bodies:
            frame = wire.data_frame(self._key, own.next, body)
            frames.append(frame)
            self._keep(own, own.next, frame)
            own.head = own.next
            own.next += 1
        own.changed = now
        self._count["sent"] += len(frames)
        return frames

    def receive(self, link: int, frames: Sequence[bytes], now: float) -> None:
        """Take in frames of one neighbour, whatever they are."""
        there = self._links.get(link)
        if there is not None:
            there.heard = now
        if self._voices is not None:
            frames = self._spoken(self._voices, link, frames)
        streams, relays, events, window = self._streams, self._effects.relays, self._effects.events, self.limits.window
        data, prefix = wire.DATA, wire.PREFIX
        delivered = duplicates = 0
        before = len(relays)
        for frame in frames:
            if not frame or frame[0] != data:
                self._control(link, frame, now)
                continue
            end = prefix + frame[1] if len(frame) > prefix else 0
            if not prefix < end <= len(frame):
                self._count["bad"] += 1
                continue
            key = frame[10:end]
            stream = streams.get(key)
            number = int.from_bytes(frame[2:10])
            if stream is None:
                stream = self._first_data(key, number, now)
                if stream is None:
                    continue
            if number < stream.next:
                duplicates += 1
                if stream.given_up and any(first <= number <= last for first, last in stream.given_up):
                    self._count["late"] += 1
                continue
            if number > stream.next or stream.head >= number:
                self._out_of_order(stream, link, number, frame, window, now)
                continue
            # the next one, and nothing is missing: nearly all messages
            stream.next = number + 1
            stream.head = number
            stream.changed = now
            stream.source = link
            if not stream.silent:
                events.append(MeshMessage(stream.origin, stream.epoch, number, frame[end:]))
                delivered += 1
            self._keep(stream, number, frame)
            relays.append((frame, link))
        self._count["delivered"] += delivered
        self._count["duplicates"] += duplicates
        self._count["relayed"] += len(relays) - before

    # ---- names

    def _spoken(self, voices: Voices, link: int, frames: Sequence[bytes]) -> list[bytes]:
        """Return the frames without the messages of origins for which the neighbour may not speak."""
        start, may, kept = wire.PREFIX, dict[bytes, bool](), []
        for frame in frames:
            if frame and frame[0] == wire.DATA and len(frame) > start:
                origin = frame[start : start + frame[1]]
                if not (may.get(origin) or voices.speaks(link, origin.decode(errors="replace"))):
                    continue  # each one is counted
                may[origin] = True
            kept.append(frame)
        return kept

    def _carries(self, link: int) -> bool:
        """Return True if this node may speak for others on a link: else the neighbour would refuse what it says."""
        return self._voices is None or self._voices.carries(link)

    # ---- data

    def _first_data(self, key: bytes, number: int, now: float) -> Stream | None:
        """Return a new stream for a message that is the first of its run; else None: a digest has to describe it."""
        if key == self._key:
            if number > self._own.head:
                self._clash()
            else:
                self._count["duplicates"] += 1
            return None
        try:
            origin, epoch = wire.read_key(key)
        except BadMessage:
            self._count["bad"] += 1
            return None
        if number != 1:
            self._count["early" if number else "bad"] += 1
            return None
        return self._new_stream(key, origin, epoch, next=1, born=now, now=now)

    def _new_stream(self, key: bytes, origin: str, epoch: int, *, next: int, born: float, now: float) -> Stream | None:
        if len(self._streams) >= self.limits.streams and not self._forget_one(now):
            self._count["refused_origins"] += 1
            self._warn("full", f"{len(self._streams)} streams are remembered (`streams`): new origins are refused")
            return None
        if any(
            known.origin == origin and known.epoch > epoch and known.born < born - CLOCK_STEP
            for known in self._streams.values()
        ):
            self._count["epochs_back"] += 1
            self._warn(
                origin,
                f"{origin!r} runs with an epoch before an earlier one: its clock went back, or two nodes have this id",
            )
        stream = self._streams[key] = Stream(
            key=key, origin=origin, epoch=epoch, next=next, born=born, changed=now, silent=origin == self.id
        )
        return stream

    def _clash(self) -> None:
        self._count["clashes"] += 1
        self._warn(
            "clash", f"a neighbour knows messages of {self.id!r} that this node has not sent: two nodes have one id"
        )

    def _warn(self, about: str, line: str) -> None:
        """Have the shell log a line, once for each subject."""
        if about not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(about)
            self._effects.warnings.append(line)

    def _forget_one(self, now: float) -> bool:
        """Forget the stream that has been idle longest, if that is long enough."""
        if now < self._full_until:
            return False
        oldest = min(self._streams.values(), key=lambda stream: stream.changed)
        idle_at = oldest.changed + 2 * self.limits.forget
        if now < idle_at:
            self._full_until = min(idle_at, now + 1.0)  # the search is not repeated for each frame of a flood
            return False
        self._kept_bytes -= size_of(oldest.kept)
        self._held_bytes -= size_of(oldest.held)
        self._order_gone += len(oldest.kept)
        oldest.kept.clear()
        if 2 * self._order_gone > len(self._order):  # small messages might never fill `buffer_bytes`, which drops them
            self._order = deque(one for one in self._order if one[1] in one[0].kept)
            self._order_gone = 0
        del self._streams[oldest.key]
        self._behind.pop(oldest.key, None)
        return True

    def _out_of_order(self, stream: Stream, link: int, number: int, frame: bytes, window: int, now: float) -> None:
        """Accept a message of a stream that misses others, if it is new and not too far ahead."""
        if number in stream.held:
            self._count["duplicates"] += 1
            return
        if number > self._plausible(stream, now):
            self._count["bad"] += 1
            return
        size = len(frame) + OVERHEAD
        first = number == stream.next
        if not first and number - stream.next >= window:
            self._count["ahead"] += 1
            if number > stream.head + window:
                return  # a digest has to say so
        elif not first and self._held_bytes + size > self.limits.buffer_bytes // 2:
            self._count["ahead"] += 1
        else:
            if number <= stream.head:
                self._count["repaired"] += 1
            stream.held[number] = frame
            self._held_bytes += size
            stream.changed = stream.progress = now
            self._effects.relays.append((frame, link))
        if number > stream.head:
            stream.say(number, now)
            if link not in stream.claims:
                stream.claims[link] = Claim(1, number, number, guessed=True)  # its digest corrects it
        if number > stream.sure and self._origins.get(stream.key) == link:
            stream.confirm(number, now)
        if first:
            stream.source = link
            self._deliver_held(stream, now)
        self._note(stream, now)

    def _deliver_held(self, stream: Stream, now: float) -> None:
        """Deliver the held messages that are next."""
        start = wire.PREFIX + len(stream.key) - 8
        for number, frame in stream.release():
            self._held_bytes -= len(frame) + OVERHEAD
            self._keep(stream, number, frame)
            if not stream.silent:
                self._effects.events.append(MeshMessage(stream.origin, stream.epoch, number, frame[start:]))
                self._count["delivered"] += 1
        stream.since = stream.progress = now

    def _keep(self, stream: Stream, number: int, frame: bytes) -> None:
        """Keep a delivered message for neighbours; drop the oldest ones beyond `buffer_bytes`."""
        stream.kept[number] = frame
        self._order.append((stream, number))
        self._kept_bytes += len(frame) + OVERHEAD
        while self._kept_bytes > self.limits.buffer_bytes:
            oldest, gone = self._order.popleft()
            dropped = oldest.kept.pop(gone, None)
            if dropped is None:
                self._order_gone -= 1
            else:
                self._kept_bytes -= len(dropped) + OVERHEAD

    def _note(self, stream: Stream, now: float) -> None:
        """Enter the stream among those that miss messages, or take it out."""
        if not stream.behind:
            if self._behind.pop(stream.key, None) is not None:
                stream.claims.clear()
                stream.asked = None
        elif stream.key not in self._behind:
            self._behind[stream.key] = stream
            stream.asked, stream.pause, stream.since = None, FIRST_PAUSE, now
            self._ask_soon(stream, now + ASK_DELAY)

    def _plausible(self, stream: Stream, now: float) -> int:
        return min(MOST_NUMBER, int((now - stream.born + SLACK) * SPEED))

    # ---- control

    def _control(self, link: int, frame: bytes, now: float) -> None:
        there = self._links.get(link)
        try:
            content = wire.control(frame)
        except (BadMessage, TooLarge):
            self._count["bad"] += 1
            return
        if there is None:
            return
        if isinstance(content, wire.Ask):
            self._answer(link, there, content, now)
        elif isinstance(content, wire.Digest):
            if self._voices is not None and not self._voices.speaks(link, content.id):
                return
            greeting = not there.greeted
            there.id, there.greeted = content.id, there.greeted or content.last
            self._note_origin(link, wire.key_of(content.id, content.epoch), now)
            if content.every is not UNSET:
                self._silence.expect(content.id, content.every)
            for line in content.lines:
                self._read_line(link, line, isinstance(content, wire.Answer), now)
                if greeting:
                    self._ask_new(link, line, now)
            self.greeted = self.greeted or content.last

    def _note_origin(self, link: int, key: bytes, now: float) -> None:
        """Note whose link this is. Of several that say the same the first one is, as long as it is heard."""
        before = self._origins.setdefault(key, link)
        if before != link and self._links[before].heard < now - 2 * self.limits.digest:
            self._origins[key] = link

    def _confirms(self, stream: Stream, link: int, head: int) -> bool:
        """Return True if the digest of this link is enough to confirm the numbers up to `head`."""
        origin = self._origins.get(stream.key)
        if origin is not None:
            return link == origin
        told = any(claim.head >= head and not claim.guessed for other, claim in stream.claims.items() if other != link)
        return stream.source == link or stream.source not in self._links or told

    def _read_line(self, link: int, line: wire.Line, answer: bool, now: float) -> None:
        key = wire.key_of(line.origin, line.epoch)
        if self._voices is not None and not self._voices.tells(link, line.origin):
            return
        if key == self._key:
            if line.head > self._own.head:
                self._clash()
            return
        stream = self._streams.get(key)
        if stream is None:
            if not line.head or self._origins.get(key, link) != link:
                return  # the origin is a neighbour: it says itself where its stream is
            stream = self._described(key, line, now)
            if stream is None:
                return
        stream.born = min(stream.born, now - line.age / 1000)
        if line.head > self._plausible(stream, now):
            self._count["bad"] += 1
            return
        confirmed = self._confirms(stream, link, line.head)
        if confirmed:
            stream.confirm(line.head, now)
        if line.head >= stream.next and (confirmed or line.head <= stream.head + self.limits.window):
            stream.claims[link] = Claim(line.floor, line.next, line.head)
            stream.say(line.head, now)
            self._note(stream, now)
        else:
            stream.claims.pop(link, None)
        if answer and stream.asked == link:
            stream.asked = None
            if stream.behind and stream.progress >= stream.ask_at - stream.pause:  # it brought something: go on at once
                stream.pause = FIRST_PAUSE
                self._ask_soon(stream, now)

    def _ask_new(self, link: int, line: wire.Line, now: float) -> None:
        """Ask at once for what a new neighbour has: it was sent before, so it is on no other way."""
        stream = self._behind.get(wire.key_of(line.origin, line.epoch))
        if stream is not None and stream.asked is None and link in stream.claims:
            self._ask_soon(stream, now)

    def _described(self, key: bytes, line: wire.Line, now: float) -> Stream | None:
        """Return a new stream that a digest describes. Where it begins: see invariant 3."""
        older = line.age / 1000 > min(now - self.started, self.limits.forget)
        start = 1 if not older else line.floor if self.history else line.head + 1
        return self._new_stream(key, line.origin, line.epoch, next=start, born=now - line.age / 1000, now=now)

    def _answer(self, link: int, there: Link, ask: wire.Ask, now: float) -> None:
        key = wire.key_of(ask.origin, ask.epoch)
        stream = self._own if key == self._key else self._streams.get(key)
        if stream is None or there.answers >= ANSWERS_A_DIGEST:
            return
        if stream is not self._own and not self._carries(link):
            return
        there.answers += 1
        frames = stream.answer(ask.ranges, ASK_MESSAGES, ANSWER_BYTES)
        end = wire.Answer(self.id, self.epoch, (self._line(stream, now),), every=self.limits.digest)
        frames.append(wire.CONTROL.encode(end))
        self._effects.sends += [(link, frame) for frame in frames]
        self._count["answered"] += len(frames) - 1

    # ---- time

    def tick(self, now: float) -> None:
        """Do what is due: a digest, silent links, asks, giving up. Sets `wake_at`."""
        if now >= self._digest_at:
            self._digest_at = now + self.limits.digest
            self._send_digest(now)
        if now >= self._check_at:
            self._check_at = now + PERIOD
            self._end_silent(now)
        self.wake_at = min(self._digest_at, self._check_at)
        for stream in list(self._behind.values()):
            self._pursue(stream, now)
            if stream.behind:
                self.wake_at = min(self.wake_at, stream.ask_at)

    def _end_silent(self, now: float) -> None:
        """End the links of neighbours whose digests have stopped."""
        known = {number: there.id for number, there in self._links.items() if there.id is not None}
        for number, neighbour in known.items():
            if self._links[number].heard > self._checked:
                seconds = self._silence.heard(number, neighbour, self._links[number].heard)
                if seconds is not None:
                    self._effects.heard.append((neighbour, seconds))
        self._checked = now
        self._effects.silent += self._silence.check(known, now)

    def _ask_soon(self, stream: Stream, at: float) -> None:
        stream.ask_at = at
        self.wake_at = min(self.wake_at, at)

    def _line(self, stream: Stream, now: float) -> wire.Line:
        age = int(max(0.0, now - stream.born) * 1000)
        return wire.Line(stream.origin, stream.epoch, stream.floor, stream.next, stream.confirmed, age)

    def _send_digest(self, now: float) -> None:
        """Describe the streams with recent changes, and some of the others in turn."""
        for there in self._links.values():
            there.answers = 0
        if not self._links:
            return
        recent = now - RECENT * self.limits.digest
        chosen = {key: stream for key, stream in self._streams.items() if stream.changed >= recent}
        start = self._slice % max(1, len(self._streams))
        chosen |= islice(self._streams.items(), start, start + SLICE)
        self._slice = start + SLICE
        own = [self._line(self._own, now)] if self._own.head else []
        lines = [*own, *(self._line(stream, now) for stream in chosen.values() if stream.head)]
        if self._voices is None or all(map(self._voices.carries, self._links)):
            self._effects.digests += self._digests(lines)
            return
        for link in self._links:
            told = self._digests(lines if self._voices.carries(link) else own)
            self._effects.sends += [(link, digest) for digest in told]

    def _digests(self, lines: Sequence[wire.Line], *, whole: bool = False) -> Iterator[bytes]:
        """Yield digests of these lines. `whole`: the lines are about all streams, which the last one says."""
        for begin in range(0, max(1, len(lines)), wire.MOST_LINES):
            end = begin + wire.MOST_LINES
            part = tuple(lines[begin:end])
            yield wire.CONTROL.encode(
                wire.Digest(self.id, self.epoch, part, whole and end >= len(lines), self.limits.digest)
            )

    def _pursue(self, stream: Stream, now: float) -> None:
        """Ask for what is missing, or give it up."""
        if not self._links:
            stream.since = now  # patience counts the time in which a neighbour could help
            stream.ask_at = now + LONGEST_PAUSE
            return
        if now < stream.ask_at:
            return
        if stream.doubt > stream.confirmed and now - stream.doubted >= self.limits.patience:
            self._drop_unconfirmed(stream, now)
            return
        idle = now - stream.since
        sure = stream.sure >= stream.next
        if sure and idle >= self.limits.patience:
            self._give_up(stream, min(stream.sure, min(stream.held, default=stream.head + 1) - 1), "patience", now)
            return
        ranges = tuple(stream.missing(wire.MOST_RANGES, self.limits.window))
        first = ranges[0][0]
        link = stream.provider(first, {number: there.heard for number, there in self._links.items()})
        if link is None:
            floor = stream.floor_of_all()
            if sure and floor is not None and idle >= 2 * self.limits.digest:  # each neighbour has said what it keeps
                self._give_up(stream, min(floor, *stream.held, stream.sure + 1) - 1, "gone", now)
                return
            stream.ask_at = now + self.limits.digest / 2
            return
        stream.asked = link
        stream.pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, stream.pause * 2))
        stream.ask_at = now + stream.pause
        self._count["asked"] += 1
        self._effects.sends.append((link, wire.CONTROL.encode(wire.Ask(stream.origin, stream.epoch, ranges))))

    def _drop_unconfirmed(self, stream: Stream, now: float) -> None:
        """Forget the messages beyond the confirmed ones, held or said to exist: if they do, they come again."""
        sure = stream.confirmed
        self._warn(
            f"doubt {stream.origin}",
            f"messages of {stream.origin!r} up to {stream.head} are dropped: {sure} is the last of which it or its"
            " neighbours know. Another node may send in its name",
        )
        for number in [number for number in stream.held if number > sure]:
            self._held_bytes -= len(stream.held.pop(number)) + OVERHEAD
        self._count["unconfirmed"] += stream.head - sure
        stream.head = stream.doubt = sure
        stream.claims = {link: claim for link, claim in stream.claims.items() if claim.head <= sure}
        stream.ask_at = now
        self._note(stream, now)

    def _give_up(self, stream: Stream, last: int, reason: GapReason, now: float) -> None:
        """Report the messages from `next` to `last` as missing, and go on after them."""
        first, stream.next = stream.next, last + 1
        stream.head = max(stream.head, last)
        stream.given_up = [*stream.given_up[1 - MOST_GIVEN_UP :], (first, last)]
        if not stream.silent:
            self._effects.events.append(MeshGap(stream.origin, stream.epoch, first, last, reason))
            self._count["gaps"] += last - first + 1
        self._deliver_held(stream, now)
        stream.changed = now
        stream.ask_at = now
        self._note(stream, now)
