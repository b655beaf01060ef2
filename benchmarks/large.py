"""Large messages, each library at both ends, in one run.

    python3 dev.py bench large [--rounds N] [--seconds S] [--only TEXT] [--json]

The receiver is measured; ``other_us`` is the CPU at the other end. 17 different messages are sent repeatedly, so they
come from memory rather than from a cache. Only the length and the number of each are compared. pyzmq copies at both
ends, as its calls do by default; with copy=False, an option of the earlier nngkit, the receiver got NNG's own memory.
"""

from __future__ import annotations

from dataclasses import replace

import _measuring as bench
from _measuring import Group, Promise, Way, before, with_before

SIZES = {1 << 16: "64 KiB", 1 << 20: "1 MiB"}
OURS = {
    "nngkit": ("_nngkit:pull", "_nngkit:push"),
    "nngkit, 4 MiB ahead": ("_nngkit:pull_far_ahead", "_nngkit:push"),
    "nngkit asyncio": ("_nngkit:apull_asyncio", "_nngkit:apush_asyncio"),
}
LENT = Way(before("nngkit, copy=False"), "_nngkit:pull_lent", "_nngkit:push", before=True)
OTHERS = {
    "pynng": ("_pynng:pull", "_pynng:push"),
    "python-nng": ("_python_nng:pull", "_python_nng:push"),
    "pyzmq": ("_zmq:pull", "_zmq:push"),
    "pyzmq asyncio": ("_zmq:pull_asyncio", "_zmq:push_asyncio"),
    "C, 64 posted": ("_floor:ring", "_floor:push"),
    "Python's sockets": ("_bare:pull", "_bare:push"),
}
TCP = {"Zenoh": ("_zenoh:pull", "_zenoh:push"), "NATS": ("_nats:pull_asyncio", "_nats:push_asyncio")}
SHARED = ("Zenoh, shared memory", *TCP["Zenoh"])  # Zenoh's default on one machine: no TCP
PROMISES = (
    Promise("vs before", "nngkit", before("nngkit"), 1.3, 2),
    Promise("vs pyzmq", "nngkit", "pyzmq", 1, 1.5),
)


def group(transport: str, size: int) -> Group:
    task = {"transport": transport, "size": size}
    rest = OTHERS | TCP if transport == "tcp" else OTHERS
    ways = (
        *with_before(Way(name, *ends, task=task) for name, ends in OURS.items()),
        replace(LENT, task=task),
        *(Way(name, *ends, task=task) for name, ends in rest.items()),
    )
    if transport == "tcp":
        ways += (Way(*SHARED, task={**task, "shared_memory": True}),)
    return Group(f"{transport}, {SIZES[size]}", ways, PROMISES)


GROUPS = tuple(group(transport, size) for transport in ("tcp", "ipc") for size in SIZES)

if __name__ == "__main__":
    bench.run("large", GROUPS, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
