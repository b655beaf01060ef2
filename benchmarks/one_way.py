"""One-way messages, each library at both ends, in one run: nngkit now and before, pynng, pyzmq, Zenoh, NATS, C on NNG.

    python3 dev.py bench one_way [--rounds N] [--seconds S] [--only TEXT] [--json]

The receiver is measured; ``other_us`` is the CPU of the other processes, servers included. "nngkit" is a call of
``send`` and of ``recv`` for each message, "many" uses lists of 256 and receives what is available. Senders saturate:
bare pynng, python-nng and C with a send buffer of 1,024, pyzmq and Zenoh with their own, NATS with up to 32,768
outstanding messages. Every message is numbered and compared. If both ends share a process (inproc), the sender is a
thread, and CPU is that of both.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way, before, with_before

SIZES = {16: "16 B", 1024: "1 KiB"}
OURS = {
    "nngkit": ("_nngkit:pull", "_nngkit:push"),
    "nngkit asyncio": ("_nngkit:apull_asyncio", "_nngkit:apush_asyncio"),
    "nngkit trio": ("_nngkit:apull_trio", "_nngkit:apush_trio"),
    "nngkit many": ("_nngkit:pull_many", "_nngkit:push_many"),
}
NNG = {
    "pynng": ("_pynng:pull", "_pynng:push"),
    "pynng asyncio": ("_pynng:apull_asyncio", "_pynng:push"),
    "pynng trio": ("_pynng:apull_trio", "_pynng:push"),
    "python-nng": ("_python_nng:pull", "_python_nng:push"),
    "python-nng asyncio": ("_python_nng:pull_asyncio", "_python_nng:push"),
}
ZMQ = {
    "pyzmq": ("_zmq:pull", "_zmq:push"),
    "pyzmq asyncio": ("_zmq:pull_asyncio", "_zmq:push_asyncio"),
}
TCP = {"Zenoh": ("_zenoh:pull", "_zenoh:push"), "NATS": ("_nats:pull_asyncio", "_nats:push_asyncio")}
FLOOR = {
    "C, one at a time": ("_floor:pull", "_floor:push"),
    "C, 64 posted": ("_floor:ring", "_floor:push"),
    "C, 64 posted, bare pynng sends": ("_floor:ring", "_pynng:push"),
}
PROMISES = (
    Promise("send and recv vs pyzmq", "nngkit", "pyzmq", 1, 1.3),
    Promise("send and recv vs Zenoh", "nngkit", "Zenoh", 2.5, 3.5),
    Promise("send and recv vs before", "nngkit", before("nngkit"), 6, 10),
    Promise("send and recv vs 64 posted in C, both ends C", "nngkit", "C, 64 posted", 4, 6),
    Promise("send and recv vs 64 posted in C, fed by pynng", "nngkit", "C, 64 posted, bare pynng sends", 4, 6),
    Promise("asend and arecv, asyncio, vs zmq.asyncio", "nngkit asyncio", "pyzmq asyncio", 8, 15),
    Promise("asend and arecv, trio, vs zmq.asyncio", "nngkit trio", "pyzmq asyncio", 8, 15),
    Promise("send_many and recv_many vs pyzmq", "nngkit many", "pyzmq", 1.5, 2.5),
)


def group(transport: str, size: int) -> Group:
    task = {"transport": transport, "size": size}
    ways = [*with_before(Way(name, *ends, task=task) for name, ends in OURS.items())]
    rest = NNG | ZMQ
    if transport == "tcp":
        rest |= TCP
    if transport != "inproc":
        rest |= FLOOR
    ways += [Way(name, *ends, task=task) for name, ends in rest.items()]
    return Group(f"{transport}, {SIZES[size]}", tuple(ways), PROMISES if (transport, size) == ("tcp", 16) else ())


def from_pynng(sender: str, how: str) -> Group:
    """Measure receivers with a sender of bare pynng."""
    ours = {
        "nngkit recv": "_nngkit:pull",
        "nngkit recv_many": "_nngkit:pull_many",
        "nngkit trio arecv": "_nngkit:apull_trio",
        "nngkit asyncio arecv": "_nngkit:apull_asyncio",
    }
    rest = {
        "pynng": "_pynng:pull",
        "pynng trio": "_pynng:apull_trio",
        "C, one at a time": "_floor:pull",
        "C, 64 posted": "_floor:ring",
    }
    ways = [*with_before(Way(name, measured, sender) for name, measured in ours.items())]
    ways += [Way(name, measured, sender) for name, measured in rest.items()]
    return Group(f"from bare pynng, {how}, tcp", tuple(ways))


GROUPS = (
    *(group(transport, size) for transport in ("tcp", "ipc", "inproc") for size in SIZES),
    from_pynng("_pynng:push", "with a send buffer"),
    from_pynng("_pynng:push_without_buffer", "without one"),
)

if __name__ == "__main__":
    bench.run("one_way", GROUPS, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
