"""A device between two ends: throughput, CPU of the device a message, added time, beside a direct connection.

    python3 dev.py bench devices [--rounds N] [--seconds S] [--only TEXT] [--json] [--long]

Three processes: sender, device, receiver. nngkit's device and NNG's `nng_device` stand between the same ends.
``device`` is the CPU of the device's process a message; "us CPU both" of all processes. For a direct connection the
latter is one receive and one send. ``--long``: 200 surveys instead of 10.
"""

from __future__ import annotations

import sys
from typing import Any

import _measuring as bench
from _measuring import Group, Promise, Way

LONG = "--long" in sys.argv
RATE = 50_000  # of the patterns that drop
MOST = 1.5


def one_way(kind: str, name: str, **task: Any) -> Group:
    task |= {"kind": kind}
    via = (("direct", ""), ("nngkit", "nngkit"), ("nng_device", "nng"))
    ways = tuple(Way(way, "_devices:receive", "_devices:send", "measured", task | {"via": via}) for way, via in via)
    if kind == "streamer":
        ways += tuple(
            Way(f"pyzmq, {way}", "_devices:receive_zmq", "_devices:send_zmq", "measured", task | {"via": via})
            for way, via in (("direct", ""), ("proxy", "zmq"))
        )
    promises = (
        Promise("CPU of the device vs a receive and a send", "nngkit", "direct", MOST, MOST, "device_us", "all_us"),
        *(() if kind in ("forwarder", "bus") else (Promise("rate vs nng_device", "nngkit", "nng_device", 1, 1),)),
    )
    return Group(name, ways, promises)


ONE_WAY = (
    one_way("streamer", "PUSH/PULL, tcp, 16 B, as fast as it goes"),
    one_way("streamer", "PUSH/PULL, tcp, 1 KiB, as fast as it goes", size=1024),
    one_way("pair1", "PAIR1, tcp, 16 B, as fast as it goes"),
    one_way("forwarder", "PUB/SUB, tcp, 16 B, 50,000/s", rate=RATE),
    one_way("bus", "BUS, tcp, 16 B, 50,000/s", rate=RATE),
)
FLIGHT = tuple(
    Group(
        f"REQ/REP, tcp, 8 B, {flight} in flight",
        tuple(
            Way(way, "_devices:ask", "_devices:reply", "measured", {"kind": "queue", "via": via, "flight": flight})
            for way, via in (("direct", ""), ("nngkit", "nngkit"), ("nng_device", "nng"))
        ),
        (
            Promise(
                "CPU of the device vs a request and a reply", "nngkit", "direct", MOST, MOST, "device_us", "all_us"
            ),
            Promise("rate vs nng_device", "nngkit", "nng_device", 1, 1),
        ),
    )
    for flight in (64, 256)
)
ONE = Group(
    "REQ/REP, tcp, 16 B, one by one",
    (
        *(
            Way(
                way,
                "_devices:ask_one_by_one",
                "_devices:reply_blocking",
                "measured",
                {"kind": "queue", "via": via},
            )
            for way, via in (("direct", ""), ("nngkit", "nngkit"), ("nng_device", "nng"))
        ),
        *(
            Way(
                f"pyzmq, {way}",
                "_devices:ask_one_by_one_zmq",
                "_devices:reply_zmq",
                "measured",
                {"kind": "queue", "via": via},
            )
            for way, via in (("direct", ""), ("proxy", "zmq"))
        ),
    ),
)
SURVEYS = Group(
    "SURVEY, tcp, 1,000 respondents, 200 ms",
    tuple(
        Way(
            way,
            "_devices:survey",
            "_devices:respond",
            "measured",
            {"kind": "survey", "via": via, "expected": 1000, "deadline": 0.2, "surveys": 200 if LONG else 10},
        )
        for way, via in (("direct", ""), ("nngkit", "nngkit"), ("nng_device", "nng"))
    ),
    (Promise("part of the responses", "nngkit", None, 1, 1, "part"),),
    once=True,
)
GROUPS = (*ONE_WAY, *FLIGHT, ONE, SURVEYS)

if __name__ == "__main__":
    given = bench.options(__doc__, rounds=5, seconds=1.0)
    given.add_argument("--long", action="store_true", help="with 200 surveys")
    bench.run("devices", GROUPS, given.parse_args())
