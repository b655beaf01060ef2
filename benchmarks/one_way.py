"""One-way messages: nngkit beside bare pynng, pyzmq and C on NNG, in one run.

    python3 dev.py bench one_way [--rounds N] [--seconds S] [--only TEXT] [--json]

The receiver is measured. On NNG the same sender saturates it: bare pynng, blocking, with a send buffer of 1,024; pyzmq
has its own. Where the two ends share a process (inproc) the sender is a thread of it, and CPU is that of both.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

SIZES = {16: "16 B", 1024: "1 KiB", 65536: "64 KiB", 1 << 20: "1 MiB"}
NNG = {
    "nngkit recv": "_nngkit:pull",
    "nngkit recv_many": "_nngkit:pull_many",
    "the same with NNG's own threads": "_nngkit:pull_many_with_more_threads",
    "nngkit trio arecv": "_nngkit:pull_trio",
    "nngkit asyncio arecv": "_nngkit:pull_asyncio",
    "nngkit trio arecv_many": "_nngkit:pull_many_trio",
    "pynng": "_pynng:pull",
    "pynng trio": "_pynng:pull_trio",
    "pynng asyncio": "_pynng:pull_asyncio",
}
ZMQ = {"pyzmq": "_zmq:pull", "pyzmq asyncio": "_zmq:pull_asyncio"}
FLOOR = {"C, one at a time": "_floor:pull", "C, 64 posted": "_floor:ring"}
SMALL = (
    Promise("async receive vs pynng trio", "nngkit trio arecv", "pynng trio", 12, 25),
    Promise("async receive vs pynng asyncio", "nngkit asyncio arecv", "pynng asyncio", 12, 25),
    Promise("async receive, item by item, vs zmq.asyncio", "nngkit asyncio arecv", "pyzmq asyncio", 1.4, 2.5),
    Promise("arecv_many vs 64 posted in C", "nngkit trio arecv_many", "C, 64 posted", 0.35, 0.5),
    Promise("recv_many vs pynng", "nngkit recv_many", "pynng", 3, 6),
)
LENT = {"nngkit recv, copy=False": "_nngkit:pull_lent", "nngkit recv, 4 MiB ahead": "_nngkit:pull_far_ahead"}
LARGE = (
    Promise("recv vs pynng", "nngkit recv", "pynng", 0.9, 1.2),
    Promise("recv vs pyzmq", "nngkit recv", "pyzmq", 0.9, 1.2),
    Promise("recv, copy=False, vs pyzmq", "nngkit recv, copy=False", "pyzmq", 0.9, 1.2),
)


def group(transport: str, size: int) -> Group:
    task = {"transport": transport, "size": size}
    nng = NNG | LENT if size >= 65536 else NNG
    ways = [Way(name, way, "_pynng:push", task=task) for name, way in nng.items()]
    ways += [Way(name, way, "_zmq:push", task=task) for name, way in ZMQ.items()]
    if transport != "inproc":
        ways += [Way(name, way, "_pynng:push", task=task) for name, way in FLOOR.items()]
    promises = (SMALL if size == 16 else LARGE if size >= 65536 else ()) if transport == "tcp" else ()
    return Group(f"{transport}, {SIZES[size]}", tuple(ways), promises)


def unsaturated() -> Group:
    """A sender without a send buffer: a hand-over between threads for each message, whoever receives."""
    ways = [
        Way(name, NNG.get(name) or FLOOR[name], "_pynng:push_without_buffer")
        for name in ("nngkit recv", "nngkit trio arecv", "pynng", "pynng trio", "C, one at a time", "C, 64 posted")
    ]
    ways.append(Way("nngkit at both ends", NNG["nngkit trio arecv"], "_nngkit:push"))
    return Group("tcp, 16 B, a sender without buffer", tuple(ways))


GROUPS = (*(group(transport, size) for transport in ("tcp", "ipc", "inproc") for size in SIZES), unsaturated())

if __name__ == "__main__":
    bench.run("one_way", GROUPS, bench.options(__doc__, rounds=3, seconds=1.0).parse_args())
