"""Low load: 1,000 messages a second, and an idle connection, each library at both ends, in one run.

    python3 dev.py bench paced [--rounds N] [--seconds S] [--only TEXT] [--json]

At a rate: a message each millisecond, 16 B with its number and the time. ``cpu_us`` is the receiver's CPU a message,
``other_us`` that of the sender, its sleeping and a server included, ``all_us`` both; ``p50`` and ``p99`` are from
before the sending call to after the receiving one. Idle: one message, then nothing, while the receiver waits;
``idle_us`` is the CPU of both ends for each second.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way, before, with_before

RATE = 1000
OURS = {
    "nngkit": ("_nngkit:pull", "_nngkit:push"),
    "nngkit asyncio": ("_nngkit:apull_asyncio", "_nngkit:apush_asyncio"),
    "nngkit trio": ("_nngkit:apull_trio", "_nngkit:apush_trio"),
}
OTHERS = {
    "pynng": ("_pynng:pull", "_pynng:push"),
    "pyzmq": ("_zmq:pull", "_zmq:push"),
    "pyzmq asyncio": ("_zmq:pull_asyncio", "_zmq:push_asyncio"),
    "Zenoh": ("_zenoh:pull", "_zenoh:push"),
    "NATS": ("_nats:pull_asyncio", "_nats:push_asyncio"),
}
# Microseconds a second, a fiftieth of a percent of a CPU, that count as idle: pyzmq and bare pynng take 50 to 100,
# part of it for the measurement itself.
NONE = 200.0


def ways(**task: object) -> tuple[Way, ...]:
    return (
        *with_before(Way(name, *ends, task=task) for name, ends in OURS.items()),
        *(Way(name, *ends, task=task) for name, ends in OTHERS.items()),
    )


GROUPS = (
    Group(
        f"{RATE:,} messages a second, tcp, 16 B",
        ways(rate=RATE),
        (Promise("CPU a message, both ends, vs before", "nngkit", before("nngkit"), 0.7, 0.5, "all_us"),),
    ),
    Group(
        "an idle connection, tcp",
        ways(idle=True),
        tuple(Promise(f"{name}, CPU a second", name, None, NONE, NONE / 2, "idle_us") for name in OURS),
    ),
)

if __name__ == "__main__":
    bench.run("paced", GROUPS, bench.options(__doc__, rounds=5, seconds=2.0).parse_args())
