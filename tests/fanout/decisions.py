"""Histories of the pure modules of fanout, for test_decisions.py."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from nngkit.fanout.durable.partition import ANY, Limits, Partition
from nngkit.fanout.numbered.backlog import Backlog, HighWater, Policy
from nngkit.fanout.numbered.joining import Join
from nngkit.fanout.numbered.keeping import Keep, LastMessages
from nngkit.fanout.numbered.lag import HEARTBEAT, Accounts, Gap, Heartbeat, Published, Restarted, pack_trailer, stamp
from nngkit.fanout.outbox.entries import OutboxReceiver, encode_entries
from nngkit.mesh.limits import MeshLimits
from nngkit.mesh.state import MeshState
from nngkit.mesh.stream import Claim, Stream
from nngkit.mesh.wire import CONTROL, Answer, Ask, Digest, Line, data_frame, key_of


def partition(seed: int) -> Iterator[Any]:
    """Play deliveries, settlements and deadlines of one partition. Times are multiples of 1/8 s: many meet a bound."""
    rng, now = Random(seed), 0.0
    made = Partition(Limits(ack_wait=2.0, max_deliver=(3, None, 2)[seed], max_ack_pending=(12, 30, 12)[seed]), 5)
    for _ in range(400):
        first = rng.randrange(max(0, made.cursor - 15), made.cursor + 3)
        runs = [(first, rng.randrange(1, 6)), (made.cursor - 1, rng.randrange(1, 4))][: rng.choice((1, 1, 2))]
        kind = rng.choice(("deliver", "deliver", "again", "settle", "retry", "extend", "release", "expire"))
        said: Any = None
        match kind:
            case "deliver":
                count = min(rng.randrange(6), made.room)
                offsets = made.unsettled(
                    [each for each in range(made.cursor, made.cursor + count) if rng.random() < 0.8]
                )
                made.deliver(offsets, behind=made.cursor + count, now=now, session=rng.choice(("a", "b", ANY)))
                said = list(offsets)
            case "again":
                said = made.again(rng.randrange(1, 5), now=now, session=rng.choice("ab"))
            case "settle":
                end = rng.choice((None, made.cursor + 2, made.cursor + 40))
                said = made.settle(runs, session=rng.choice(("a", "b", None)), end=end)
            case "retry":
                said = made.retry(runs, now=now, delay=rng.choice((0.0, 0.5)), session=rng.choice("ab"))
            case "extend":
                said = made.extend(runs, now=now, session=rng.choice("ab"))
            case "release":
                said = made.release(rng.choice("ab"), range(first, first + 4))
            case "expire":
                said = made.expire(now)
        counted = made.settled, made.redelivered, made.given_up, made.floor, made.cursor, made.room, made.ready
        flying = sorted(made.in_flight(), key=repr)
        yield kind, said, counted, made.due(), made.below(first), sorted(made.ahead), flying
        now += rng.choice((0.0, 0.125, 0.5, 2.0))


def accounts(seed: int) -> Iterator[Any]:
    """Play messages of publishers that are restarted, whose messages are lost, late, doubled, or without a number."""
    rng = Random(seed)
    made = Accounts()
    for step in range(500):
        publisher, epoch = (
            rng.choice((b"publish1", b"publish2")),
            rng.choice((*[1 + step // 100] * 6, step // 100, 2 + step // 100)),
        )
        number = max(-1, step % 100 // 4 + rng.choice((0, 0, 1, 1, 2, 3, -1, -3))) + 1
        topic = rng.choice((b"", b"px."))
        data = rng.choice((topic + b"body", HEARTBEAT + b"told", b"\0", b""))
        frame = data + pack_trailer(publisher, epoch, number, stamp(step, len(topic)))
        match rng.randrange(30):
            case 0:
                frame = frame[rng.randrange(-50, -1) :]
            case 1:
                made.begin(publisher, epoch, number + 2)
        events = made.receive([frame] * rng.choice((1, 1, 1, 2)))
        yield [*map(event_of, events)], sorted(made.refused.items()), [
            (one.publisher, one.epoch, one.next, one.delivered, one.missed, one.late, one.ranges, list(one.over))
            for one in made.all()
        ]  # fmt: skip


def event_of(event: Any) -> Any:
    """Return an event as plain values."""
    match event:
        case Gap(publisher, epoch, first, last, count, reason):
            return "gap", publisher, epoch, first, last, count, reason
        case Published():
            return "message", *event, event.topic, event.body
    return type(event).__name__, *event


def backlog(seed: int) -> Iterator[Any]:
    """Play events that come faster than they are read."""
    policies: tuple[Policy, ...] = ("report", "resync", "raise")
    for high in (HighWater(6, None, None, 1.0), HighWater(None, 900, 4.0, None), HighWater(4, 1100, 2.0, 0.5)):
        rng, now, number = Random(seed), 0.0, 0
        made = Backlog(high, policies[seed])
        for _ in range(150):
            if rng.random() < 0.5:
                events: list[Any] = []
                for _ in range(rng.randrange(4)):
                    number += rng.choice((1, 1, 2))
                    publisher = rng.choice((b"publish1", b"publish2"))
                    events += [
                        (Published(bytes(rng.choice((1, 40))), publisher, 1, number, 0)),
                        Gap(publisher, 1, number, number + 1, 2),
                        Heartbeat(publisher, 1, number, 0, b""),
                        Restarted(publisher, 2, 1, number),
                    ][: rng.choice((1, 1, 1, 4))]
                gives_up = made.put(events, now, forced=rng.random() < 0.1)
                yield gives_up, len(made), made.dropped, *made.lag(now)
                if gives_up and rng.random() < 0.7:
                    yield made.clear(), made.dropped, *made.lag(now)
            else:
                yield [event and event_of(event) for event in [made.take(now) for _ in range(rng.randrange(5))]]
            now += rng.choice((0.0, 0.125, 0.5, 1.0))


def join(seed: int) -> Iterator[Any]:
    """Play joins of a journal and live messages, of which both have lost some."""
    rng = Random(seed)
    for _ in range(60):
        made = Join(rng.choice((3, 10)))
        counts = {"p": 0, "q": 3}
        sent = []
        for _ in range(24):
            counts[source := rng.choice("ppq")] += 1
            sent.append((source, counts[source], b"%s%d" % (source.encode(), counts[source])))
        kept = [each for each in sent if rng.random() < 0.9]
        heard = [each for each in sent[rng.randrange(12) :] if rng.random() < 0.9]
        while kept and rng.random() < 0.9:
            size = rng.randrange(1, 6)
            made.hold(heard[:size])
            found = made.recorded(kept[: rng.choice((size, 2 * size, 0))])
            yield found, made.held, made.dropped, made.caught_up(), sorted(made.positions.items()), made.duplicates
            heard, kept = heard[size:], kept[size:]
        yield made.finish(), made.caught_up(), made.duplicates, made.live(heard), sorted(made.positions.items())
        yield made.live(sent), made.duplicates


def last_messages(seed: int) -> Iterator[Any]:
    """Play messages of a few topics with small caps."""
    rng = Random(seed)
    made = LastMessages(Keep(topics=(3, 100, 1)[seed], bytes=(1000, 60, 60)[seed]))
    for number in range(200):
        topic = rng.choice((b"a", b"b", b"c", b"d"))
        made.note(topic, number, number + 1, topic * rng.choice((1, 10, 20, 30, 60, 61)))
        yield made.rows(), len(made), made.forgotten


def received(seed: int) -> Iterator[Any]:
    """Play the messages of outboxes that repeat and lose some."""
    rng = Random(seed)
    made = OutboxReceiver({b"0" * 16: 5})
    for step in range(200):
        outbox, first = rng.choice((b"0", b"1", b"2")) * 16, max(0, step // 3 + rng.randrange(-4, 3))
        values = [b"%d" % number for number in range(first, first + rng.randrange(1, 4))]
        yield made.accept(encode_entries(outbox, first, values)), made.duplicates, made.missing, list(
            made.positions.items()
        )  # fmt: skip


def mesh(seed: int) -> Iterator[Any]:
    """Play one node, with small limits, whose neighbours send any messages, digests and asks."""
    rng, now = Random(seed), 10.0
    limits = MeshLimits(buffer_bytes=6000, window=8, digest=0.5, patience=3.0, streams=3, forget=4.0)
    made = MeshState("me", 5, now, limits, history=seed == 1)
    highest: dict[tuple[str, int], int] = {}
    for step in range(500):
        link, origin, epoch = rng.randrange(3), rng.choice(("a", "a", "b", "me", "c", "d")), rng.choice((7, 7, 7, 3, 9))
        here = highest.get((origin, epoch), 0)
        number = max(0, here + rng.choice((1, 1, 1, 1, 2, 3, 0, -1, -3, 9)))
        floor = max(1, here - rng.randrange(4))
        line = Line(
            origin, epoch, floor, max(floor, here), max(floor, here) + rng.randrange(4), rng.choice((0, 500, 9000))
        )
        match rng.choices(
            ("data", "digest", "ask", "bad", "up", "down", "send", "absurd"), (9, 4, 2, 0.3, 1, 0.3, 1, 0.2)
        )[0]:
            case "data":
                highest[origin, epoch] = max(here, min(number, here + 3))
                made.receive(link, [data_frame(key_of(origin, epoch), number, bytes(rng.choice((1, 300))))], now)
            case "digest":
                name = f"n{link}"
                last, every = rng.random() < 0.5, rng.choice((0.5, 2.0))
                kind = rng.choice((Digest, Answer))
                made.receive(link, [CONTROL.encode(kind(name, 1, (line,), last, every))], now)
            case "ask":
                mine, at = (("me", 5), made.sent) if rng.random() < 0.3 else ((origin, epoch), here)
                first = max(1, at - rng.randrange(6))
                ranges = ((first, first + rng.randrange(3)), (first + 5, first + 9))
                made.receive(link, [CONTROL.encode(Ask(*mine, ranges))], now)
            case "bad":
                key = rng.choice((key_of("x" * 65, 1), key_of("\n", 1), b"12345678\xff", key_of("e", (1 << 53) + 1)))
                made.receive(
                    link, [rng.choice((b"", b"\xd1", b"\xa0", data_frame(key, 1, b""), b"\xd1\x09" + bytes(17)))], now
                )
            case "up":
                made.link_up(link, now)
            case "down":
                made.link_down(link, now)
            case "send":
                made.send([b"mine"] * rng.randrange(3), now)
            case "absurd":
                made.receive(link, [data_frame(key_of(origin, epoch), 1 << 50, b"")], now)
        if step % 3 == 0:
            made.tick(now)
        effects = made.take()
        yield made.stats, made.wake_at, made.sent, made.greeted, made.neighbour_ids(), made.position(origin, epoch)
        yield effects.events, [(len(frame), to) for frame, to in effects.relays], effects.sends, effects.digests
        yield effects.silent, effects.heard, effects.warnings
        now += rng.choice((0.0, 0.0, 0.03125, 0.25, 0.5, 1.0))


def stream(seed: int) -> Iterator[Any]:
    """Ask streams of which some messages are kept, held or missing."""
    rng = Random(seed)
    for _ in range(200):
        start = rng.randrange(1, 9)
        made = Stream(key=b"k", origin="a", epoch=1, next=start, born=0.0, changed=1.0)
        made.kept = {number: b"%d" % number for number in range(max(1, start - rng.randrange(4)), start)}
        made.held = {number: bytes(number) for number in rng.sample(range(start, start + 12), rng.randrange(6))}
        made.head = max([start - 1, *made.held]) + rng.choice((0, 0, 1, 3))
        made.claims = {
            link: Claim(floor := rng.randrange(1, 12), floor + rng.randrange(4), floor + 3 + rng.randrange(9))
            for link in range(rng.randrange(4))
        }
        made.asked = rng.choice((None, 0, 1))
        first = rng.randrange(1, 14)
        heard = {link: float(rng.randrange(3)) for link in range(3)}
        yield made.floor, made.behind, made.ask_at, made.since, made.floor_of_all(), made.provider(first, heard)
        yield (
            list(made.missing(rng.randrange(1, 4), rng.choice((3, 8, 100)))),
            list(made.frames(first, first + rng.randrange(9))),
        )
        yield made.answer([(first, first + 2), (1, 40)], rng.randrange(1, 5), rng.choice((0, 1, 5, 12, 100)))
        yield made.release(), made.next, made.head, sorted(made.held)
