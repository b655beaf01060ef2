"""Connections by passes, beside plain ones, CURVE of ZeroMQ and TLS of NNG, in one run.

    python3 dev.py bench trust [--rounds N] [--seconds S] [--only TEXT] [--json]

One way the receiver is measured, with requests and connections the client; ``other_us`` is the CPU at the other end.
With a pass both ends prove their names; with CURVE the listener proves its key; pynng's sender verifies the listener's
certificate, and for a connection the listener the sender's too. A hostile peer has a tenth of a CPU (hostile.py has the
same without a pass).
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

PLAIN, PASS, CURVE, TLS = ({"transport": transport} for transport in ("tcp", "pass", "curve", "tls"))


def ways(listens: str, ours: tuple[str, str], theirs: tuple[str, str], **task: object) -> tuple[Way, ...]:
    return (
        Way("nngkit, a pass", *ours, listens, task | PASS),
        Way("nngkit, plain", *ours, listens, task | PLAIN),
        Way("pyzmq, CURVE", *theirs, listens, task | CURVE),
        Way("pyzmq, plain", *theirs, listens, task | PLAIN),
    )


ONE_WAY = ("_nngkit:pull", "_nngkit:push"), ("_zmq:pull", "_zmq:push")
LARGE = 1 << 20
UNDISTURBED = "undisturbed, by a pass"
HOSTILE = {
    "silent": "1,000 silent connections",
    "hellos": "connections without TLS",
    "flood": "requests without TLS",
    "shakes": "handshakes that are left",
}
SERVICES = {"services": 1000, "rounds": 3, "seconds": 3600}

_CONNECTIONS = "nngkit, a pass, connections", "pynng, TLS, connections"

GROUPS = (
    Group(
        "one way, 16 B",
        ways("measured", *ONE_WAY),
        (
            Promise("a pass vs plain", "nngkit, a pass", "nngkit, plain", 0.7, 0.95),
            Promise("a pass vs CURVE", "nngkit, a pass", "pyzmq, CURVE", 2, 3),
        ),
    ),
    Group(
        "one way, 1 MiB",
        (
            *ways("measured", *ONE_WAY, size=LARGE),
            Way("pynng, TLS", "_pynng:pull", "_pynng:push", "measured", TLS | {"size": LARGE}),
        ),
        (Promise("a pass vs TLS of NNG", "nngkit, a pass", "pynng, TLS", 2.5, 4),),
    ),
    Group(
        "one request at a time, 16 B",
        ways("other", ("_nngkit:ask", "_nngkit:reply"), ("_zmq:ask", "_zmq:reply")),
        (Promise("p50, a pass vs plain", "nngkit, a pass", "nngkit, plain", None, None, "p50_us"),),
    ),
    Group(
        "a Publisher to 1,000 subscribers of 20 classes, a message of 16 B",
        tuple(
            Way(name, "_classes:publish", "_classes:subscribe", "measured", PASS | {"policy": policy, "seconds": 5.0})
            for name, policy in (("with a policy", True), ("without", False))
        ),
        (Promise("CPU of the publisher, with vs without", "with a policy", "without", 1.2, 1.05, "cpu_us"),),
    ),
    Group(
        "one request at a time, 16 B, a pass and plain in turns",
        (Way("nngkit, a pass in turns", "_trusted:ask_both", "_trusted:reply_to_both", "other", PASS),),
        (Promise("p50 over plain", "nngkit, a pass in turns", None, 25, 12, "more_us"),),
    ),
    Group(
        "a connection, with one request",
        (
            Way("nngkit, a pass, connections", "_nngkit:connect", "_nngkit:reply", "other", PASS),
            Way("nngkit, plain, connections", "_nngkit:connect", "_nngkit:reply", "other", PLAIN),
            Way("pynng, TLS, connections", "_pynng:connect", "_pynng:reply", "other", TLS | {"mutual": True}),
            Way("pynng, plain, connections", "_pynng:connect", "_pynng:reply", "other", PLAIN),
        ),
        (
            Promise("CPU that dials", "nngkit, a pass, connections", None, 4000, 2500, "cpu_us"),
            Promise("CPU that listens", "nngkit, a pass, connections", None, 4000, 2500, "other_us"),
            Promise("CPU vs TLS of NNG", *_CONNECTIONS, None, None, "all_us"),
        ),
    ),
    Group(
        "requests by a pass beside a hostile peer, 16 B",
        (
            Way(UNDISTURBED, "_nngkit:ask", "_nngkit:reply", "other", PASS),
            *(
                Way(what, "_nngkit:ask", "_nngkit:reply_attacked", "other", PASS | {"hostile": kind})
                for kind, what in HOSTILE.items()
            ),
        ),
        tuple(Promise(f"p99, {what}", what, UNDISTURBED, 3, 2, "p99_us") for what in HOSTILE.values()),
    ),
    Group(
        "1,000 services, whose daemon is killed and started again",
        tuple(
            Way(name, "_reconnecting:known_again", task=SERVICES | by)
            for name, by in (("services by a pass", PASS), ("services, plain", PLAIN))
        ),
        (
            Promise("seen down", "services by a pass", None, 0, 0, "false_downs"),
            Promise("known again, a pass vs plain", "services by a pass", "services, plain", None, None, "p50_ms"),
        ),
        once=True,
    ),
    Group(
        "a decision of a policy",
        (Way("1,000 roles", "_trusted:decide", task={"roles": 1000}),),
        (Promise("CPU of a call", "1,000 roles", None, 1, 0.3, "cpu_us"),),
    ),
)

if __name__ == "__main__":
    bench.run("trust", GROUPS, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
