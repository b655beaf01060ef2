"""Requests: one at a time, 64 pending, and 2,000; each library at both ends, in one run.

    python3 dev.py bench round_trips [--rounds N] [--seconds S] [--only TEXT] [--json]

The client is measured; ``other_us`` is the CPU of the server for each request, ``p50`` and ``p99`` are of at least
2,000 round trips. With one request at a time the servers block, except for "both ends" and nats-py's, which use the
same event loop as their client; so do the servers for many pending requests on one socket, where pynng's and
python-nng's have a context for each request. Every reply is compared with its request.
"Python's sockets" send the same bytes without a library: what two wake-ups and four system calls cost here. "REQ by
hand" adds frames and ids, before nngkit's Rep; "Req's promises by hand" also what a Req promises (`_bare.Promised`), in
the least Python that does so.
"""

from __future__ import annotations

from collections.abc import Iterable

import _measuring as bench
from _measuring import Group, Promise, Way, before, with_before

FLIGHT, LARGE_FLIGHT = 64, 2000
OURS = {
    "nngkit": ("_nngkit:ask", "_nngkit:reply"),
    "nngkit asyncio": ("_nngkit:aask_asyncio", "_nngkit:reply"),
    "nngkit trio": ("_nngkit:aask_trio", "_nngkit:reply"),
    "nngkit asyncio, both ends": ("_nngkit:aask_asyncio", "_nngkit:areply_asyncio"),
    "nngkit trio, both ends": ("_nngkit:aask_trio", "_nngkit:areply_trio"),
    "nngkit, a server of bare pynng": ("_nngkit:ask", "_pynng:reply"),
}
OTHERS = {
    "pynng": ("_pynng:ask", "_pynng:reply"),
    "pynng asyncio": ("_pynng:aask_asyncio", "_pynng:reply"),
    "pynng trio": ("_pynng:aask_trio", "_pynng:reply"),
    "pynng trio, both ends": ("_pynng:aask_trio", "_pynng:areply_trio"),
    "python-nng": ("_python_nng:ask", "_python_nng:reply"),
    "python-nng asyncio, both ends": ("_python_nng:ask_asyncio", "_python_nng:reply_asyncio"),
    "pyzmq": ("_zmq:ask", "_zmq:reply"),
    "pyzmq asyncio": ("_zmq:ask_asyncio", "_zmq:reply"),
    "pyzmq asyncio, both ends": ("_zmq:ask_asyncio", "_zmq:reply_asyncio"),
    "C": ("_floor:ask", "_floor:reply"),
    "Python's sockets": ("_bare:ask", "_bare:reply"),
}
TCP = {"Zenoh": ("_zenoh:ask", "_zenoh:reply"), "NATS": ("_nats:ask_asyncio", "_nats:reply_asyncio")}
MANY = {
    "nngkit asyncio": ("_nngkit:aask_many_asyncio", "_nngkit:areply_asyncio"),
    "nngkit trio": ("_nngkit:aask_many_trio", "_nngkit:areply_trio"),
    "pynng trio, contexts": ("_pynng:ask_many", "_pynng:reply_many"),
    "python-nng asyncio, contexts": ("_python_nng:ask_many_asyncio", "_python_nng:reply_many_asyncio"),
    "pyzmq asyncio": ("_zmq:ask_many_asyncio", "_zmq:reply_many_asyncio"),
    "NATS": ("_nats:ask_asyncio", "_nats:reply_asyncio"),
    "Python's sockets, asyncio": ("_bare:ask_many_asyncio", "_bare:reply"),
    "Python's sockets, trio": ("_bare:ask_many_trio", "_bare:reply"),
    "REQ by hand, asyncio": ("_bare:ask_framed_asyncio", "_nngkit:areply_asyncio"),
    "REQ by hand, trio": ("_bare:ask_framed_trio", "_nngkit:areply_asyncio"),
    "Req's promises by hand, asyncio": ("_bare:ask_promised_asyncio", "_nngkit:areply_asyncio"),
    "Req's promises by hand, trio": ("_bare:ask_promised_trio", "_nngkit:areply_asyncio"),
}


def p50(what: str, way: str, base: str, least: float, aim: float) -> Promise:
    return Promise(f"p50, {what}", way, base, least, aim, "p50_us")


ONE_PROMISES = (
    p50("blocking, vs before", "nngkit", before("nngkit"), 0.5, 0.4),
    p50("blocking, vs pynng", "nngkit", "pynng", 0.9, 0.7),
    p50("blocking, vs pyzmq", "nngkit", "pyzmq", 1.5, 1.2),
    p50("asyncio, both ends, vs zmq.asyncio", "nngkit asyncio, both ends", "pyzmq asyncio, both ends", 0.8, 0.6),
    p50("trio, both ends, vs zmq.asyncio", "nngkit trio, both ends", "pyzmq asyncio, both ends", 0.8, 0.6),
)
IN_FLIGHT = {FLIGHT: (4, 6), LARGE_FLIGHT: (6, 10)}


def ways(ours: dict[str, tuple[str, str]], rest: dict[str, tuple[str, str]], **task: object) -> tuple[Way, ...]:
    both = with_before(Way(name, *ends, "other", task) for name, ends in ours.items())
    return (*both, *(Way(name, *ends, "other", task) for name, ends in rest.items()))


def one_at_a_time(transport: str) -> Group:
    rest = OTHERS | TCP if transport == "tcp" else OTHERS
    promises = ONE_PROMISES if transport == "tcp" else ()
    return Group(f"one request at a time, {transport}, 16 B", ways(OURS, rest, transport=transport), promises)


def in_flight(transport: str, flight: int, without: Iterable[str] = ()) -> Group:
    without = {*without} if transport == "tcp" else {*without, "NATS"}
    chosen = {name: ends for name, ends in MANY.items() if name not in without}
    ours = {name: chosen.pop(name) for name in ("nngkit asyncio", "nngkit trio")}
    promises = tuple(
        Promise(f"{name.removeprefix('nngkit ')}, vs zmq.asyncio", name, "pyzmq asyncio", *IN_FLIGHT[flight])
        for name in ours
    )
    return Group(
        f"{flight:,} in flight, {transport}, 16 B",
        ways(ours, chosen, transport=transport, flight=flight),
        promises if transport == "tcp" else (),
    )


GROUPS = (
    one_at_a_time("tcp"),
    one_at_a_time("ipc"),
    in_flight("tcp", FLIGHT),
    in_flight("ipc", FLIGHT),
    in_flight("tcp", LARGE_FLIGHT, ["pynng trio, contexts"]),
    in_flight("ipc", LARGE_FLIGHT, ["pynng trio, contexts"]),
)

if __name__ == "__main__":
    bench.run("round_trips", GROUPS, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
