"""Speed in one table: nngkit beside other libraries and beside itself before, on a quiet machine and on a busy one.

    python3 dev.py bench speed [--rounds N] [--seconds S] [--only TEXT] [--json]

The ways are those of the other benchmarks, which have more of them. Each group is measured twice: as the machine is,
and beside a process that computes without pause on one core, as the cost of a wake-up depends on that. "Before" is
commit 6c545f5, which left reading and writing of descriptors to NNG. The table at the end has a row for each ratio,
those first in which nngkit is furthest behind. Of single requests and calls and of CPU less is better, of all others
more. Seven rounds take about 20 minutes.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import batching
import calls
import growth
import large
import one_way
import paced
import publishing
import round_trips
import transports
from _page import both_kinds

import _contenders
import _measuring as bench
from _measuring import Group, Promise, before, beside_busy, with_before

BEFORE = "6c545f5"
ASYNCIO, TRIO, ZMQ = "nngkit asyncio, both ends", "nngkit trio, both ends", "pyzmq asyncio, both ends"
CLIENT, HAND = "Client, trio", "Client's promises by hand, trio"
SERVED, CODED, REQ = "Client and Server, trio", "Client and Server, cbor, trio", "Req, trio"
SAME = {"per_second": (0.95, 1.1), "idle_us": (1.05, 0.9)}  # as before, the second at most


def part(group: Group, *promises: Promise, name: str = "") -> Group:
    """Return a group with the ways that the promises compare."""
    wanted = {name for each in promises for name in (each.way, each.base)}
    ways = tuple(way for way in group.ways if way.name in wanted)
    return replace(group, name=name or group.name, ways=ways, promises=promises)


def of_before(group: Group, what: str, *names: str, figure: str = "per_second") -> Group:
    """Return a group with ways of nngkit alone, each beside the same one before."""
    ours = [way for way in group.ways if way.name in names]
    promises = (
        Promise(f"{what}, {way.name}, of before", way.name, before(way.name), *SAME[figure], figure) for way in ours
    )
    return replace(group, name=f"{what}: {group.name}", ways=tuple(with_before(ours)), promises=tuple(promises))


def requests(least: float, aim: float) -> Group:
    """Return the group of single requests, with what is asked of their p50 beside pyzmq."""

    def p50(what: str, way: str, base: str, least: float | None = None, aim: float | None = None) -> Promise:
        return Promise(f"request, p50, {what}", way, base, least, aim, "p50_us")

    return part(
        round_trips.one_at_a_time("tcp"),
        p50("blocking, of before", "nngkit", before("nngkit"), 0.4, 0.28),
        p50("blocking, of pynng", "nngkit", "pynng", 0.8, 0.6),
        p50("blocking, of pyzmq", "nngkit", "pyzmq", least, aim),
        p50("blocking, of python-nng", "nngkit", "python-nng"),
        p50("blocking, of Zenoh", "nngkit", "Zenoh"),
        p50("blocking, of Python's sockets", "nngkit", "Python's sockets"),
        Promise("request, CPU of the client, of before", "nngkit", before("nngkit"), 0.4, 0.28, "cpu_us"),
        Promise("request, CPU of the server, of before", "nngkit", before("nngkit"), 0.4, 0.28, "other_us"),
        p50("asyncio at both ends, of zmq.asyncio", ASYNCIO, ZMQ, 0.75, 0.55),
        p50("asyncio at both ends, of python-nng", ASYNCIO, "python-nng asyncio, both ends"),
        p50("asyncio at both ends, of NATS", ASYNCIO, "NATS"),
        p50("trio at both ends, of zmq.asyncio", TRIO, ZMQ, 1.2, 0.85),
    )


def in_flight(flight: int, *others: tuple[str, str]) -> Group:
    """Return the group of many pending requests; ``others``: a loop, and what nngkit is compared with there."""
    what = f"{flight:,} requests in flight"
    return part(
        round_trips.in_flight("tcp", flight),
        *(
            Promise(f"{what}, {loop}, of zmq.asyncio", f"nngkit {loop}", "pyzmq asyncio", 4, 6)
            for loop in ("asyncio", "trio")
        ),
        *(Promise(f"{what}, {loop}, of {other}", f"nngkit {loop}", other) for loop, other in others),
    )


def by_hand(flight: int) -> Group:
    """Return the group of many pending requests beside the least Python that keeps what a Req promises."""
    what, group = f"{flight:,} requests in flight", round_trips.in_flight("tcp", flight)
    return part(
        group,
        *(
            Promise(f"{what}, {loop}, {said}", way, base)
            for loop in ("asyncio", "trio")
            for said, way, base in (
                ("Req's promises by hand, of zmq.asyncio", f"Req's promises by hand, {loop}", "pyzmq asyncio"),
                ("of Req's promises by hand", f"nngkit {loop}", f"Req's promises by hand, {loop}"),
            )
        ),
        name=f"{group.name}, beside Req's promises by hand",
    )


def sized(transport: str, size: int, least: float, aim: float) -> Group:
    name = f"{large.SIZES[size]}, {transport}"
    return part(
        large.group(transport, size),
        Promise(f"{name}, of pyzmq, which copies", "nngkit", "pyzmq", least, aim),
        Promise(f"{name}, of python-nng", "nngkit", "python-nng"),
        Promise(f"{name}, of Python's sockets", "nngkit", "Python's sockets"),
        name=name,
    )


COMPARED = (
    part(
        calls.ONE,
        Promise("call by name, p50, Client and Server of a bare Req", SERVED, REQ, 1.25, 1.1, "p50_us"),
        Promise("call by name, p50, the same with cbor", CODED, REQ, 1.5, 1.3, "p50_us"),
        Promise("call by name, p50, Client and Server of NATS micro", SERVED, "NATS micro", figure="p50_us"),
    ),
    part(
        calls.MANY,
        Promise("64 calls in flight, Client and Server of a bare Req", SERVED, REQ, 0.85, 0.95),
        Promise("64 calls in flight, Client and Server of NATS", SERVED, "NATS"),
        name="64 calls in flight, tcp, 16 B",
    ),
    in_flight(
        round_trips.FLIGHT,
        ("asyncio", "python-nng asyncio, contexts"),
        ("asyncio", "NATS"),
        ("trio", "pynng trio, contexts"),
    ),
    in_flight(round_trips.LARGE_FLIGHT),
    by_hand(round_trips.FLIGHT),
    by_hand(round_trips.LARGE_FLIGHT),
    part(
        calls.MANY,
        Promise("64 calls in flight, Client's promises by hand of a bare Req", HAND, REQ),
        Promise("64 calls in flight, Client of its promises by hand", CLIENT, HAND),
        name="64 calls in flight, tcp, 16 B, beside a Client's promises by hand",
    ),
    of_before(one_way.group("tcp", 16), "one-way", "nngkit", "nngkit asyncio", "nngkit trio", "nngkit many"),
    of_before(batching.group("tcp", 16), "batches", "nngkit blocking, one at a time", "nngkit blocking, many"),
    of_before(transports.ws(16, True), "ws", "nngkit"),
    of_before(growth.both_ends(), f"{growth.MANY:,} connections", "nngkit, recv"),
    of_before(paced.GROUPS[1], "idle CPU", "nngkit", figure="idle_us"),
    part(
        publishing.group(16),
        Promise("PUB to 8, delivered, of before", "nngkit", before("nngkit"), *SAME["per_second"]),
        Promise("PUB to 8, delivered, of pyzmq", "nngkit", "pyzmq", 1, 1.5),
        Promise("PUB to 8, delivered, of python-nng", "nngkit", "python-nng"),
    ),
    sized("tcp", 1 << 16, 0.75, 1),
    sized("ipc", 1 << 16, 0.65, 1.2),
    sized("tcp", 1 << 20, 1.2, 1.5),
    sized("ipc", 1 << 20, 0.9, 1.5),
)
GROUPS = (
    requests(1.5, 0.9),
    beside_busy(requests(1.0, 0.7)),
    *(each for group in COMPARED for each in (group, beside_busy(group))),
)

if __name__ == "__main__":
    given = bench.options(__doc__, rounds=7, seconds=0.3).parse_args()
    _contenders.BEFORE = BEFORE
    found = bench.run("speed", GROUPS, given)
    if not given.json and not given.beside:
        sys.stdout.write("\n" + "\n".join(both_kinds(found["groups"])) + "\n")
