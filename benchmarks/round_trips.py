"""Requests: one at a time, 64 in flight, and 2,000; nngkit beside bare pynng, pyzmq and C on NNG, in one run.

    python3 dev.py bench round_trips [--rounds N] [--seconds S] [--only TEXT] [--json]

One at a time, over 10,000 round trips and more: on NNG the same server answers all (bare pynng, blocking), so that only
the client differs; "both ends" has nngkit's and pynng's own, under trio. In flight on one socket, each has its own
server: pynng's has a context for each request.
"""

from __future__ import annotations

from collections.abc import Iterable

import _measuring as bench
from _measuring import Group, Promise, Way

FLIGHT, LARGE_FLIGHT = 64, 2000
ONE = {
    "nngkit": ("_nngkit:ask", "_pynng:reply"),
    "nngkit trio": ("_nngkit:ask_trio", "_pynng:reply"),
    "nngkit asyncio": ("_nngkit:ask_asyncio", "_pynng:reply"),
    "pynng": ("_pynng:ask", "_pynng:reply"),
    "pynng trio": ("_pynng:ask_trio", "_pynng:reply"),
    "pynng asyncio": ("_pynng:ask_asyncio", "_pynng:reply"),
    "pyzmq": ("_zmq:ask", "_zmq:reply"),
    "pyzmq asyncio": ("_zmq:ask_asyncio", "_zmq:reply"),
    "C": ("_floor:ask", "_pynng:reply"),
    "both ends nngkit trio": ("_nngkit:ask_trio", "_nngkit:reply_trio"),
    "both ends pynng trio": ("_pynng:ask_trio", "_pynng:reply_trio"),
}
MANY = {
    "nngkit trio": ("_nngkit:ask_many_trio", "_nngkit:reply_trio"),
    "nngkit asyncio": ("_nngkit:ask_many_asyncio", "_nngkit:reply_trio"),
    "pynng trio, contexts": ("_pynng:ask_many", "_pynng:reply_many"),
    "pyzmq asyncio": ("_zmq:ask_many", "_zmq:reply_many"),
}


def one_at_a_time(transport: str) -> Group:
    ways = [Way(name, way, other, "other", {"transport": transport}) for name, (way, other) in ONE.items()]
    promises = (
        Promise("async p50 vs pynng trio", "nngkit trio", "pynng trio", 0.85, 0.6, "p50_us"),
        Promise("async p50 vs pynng, blocking", "nngkit trio", "pynng", 1.8, 1.2, "p50_us"),
    )
    return Group(f"one request at a time, {transport}, 16 B", tuple(ways), promises if transport == "tcp" else ())


def in_flight(transport: str, flight: int, names: Iterable[str] = MANY) -> Group:
    task = {"transport": transport, "flight": flight}
    ways = [Way(name, *MANY[name], "other", task) for name in names]
    promises = (
        Promise("vs pynng's contexts", "nngkit trio", "pynng trio, contexts", 4, 5),
        Promise("vs zmq.asyncio", "nngkit trio", "pyzmq asyncio", 1.6, 2),
    )
    asked = (transport, flight) == ("ipc", FLIGHT)
    return Group(f"{flight:,} in flight, {transport}, 16 B", tuple(ways), promises if asked else ())


GROUPS = (
    one_at_a_time("tcp"),
    one_at_a_time("ipc"),
    in_flight("ipc", FLIGHT),
    in_flight("tcp", FLIGHT),
    in_flight("ipc", LARGE_FLIGHT, ("nngkit trio", "pyzmq asyncio")),
)

if __name__ == "__main__":
    bench.run("round_trips", GROUPS, bench.options(__doc__, rounds=3, seconds=1.0).parse_args())
