"""Calls by name: their cost over bare sockets, beside NATS and Zenoh, and under kills, failovers and uneven providers.

    python3 dev.py bench calls [--rounds N] [--seconds S] [--only TEXT] [--json] [--long]

The first groups measure the client; the server is another process. Fault groups run once each: ``--long`` with the
numbers of the promises (1,000 kills, 200 failovers, 200 kills among 1,000 services, 10 minutes of loss), else with a
few, to see that they work. Loss and partitions need root, for network namespaces. ``failed``, ``across``, ``over_1_s``,
``false_downs`` and ``late`` are counts, and must be 0.
"""

from __future__ import annotations

import sys

import _measuring as bench
from _measuring import Group, Promise, Way

LONG = "--long" in sys.argv


def p50(what: str, way: str, base: str, least: float | None, aim: float | None) -> Promise:
    return Promise(f"p50, {what}", way, base, least, aim, "p50_us")


ONE = Group(
    "one call at a time, tcp, 16 B",
    (
        Way("Req, trio", "_calls:req", "_nngkit:areply_trio", "other"),
        Way("Client, trio", "_calls:ask_trio", "_nngkit:areply_trio", "other"),
        Way("Client, asyncio", "_calls:ask_asyncio", "_nngkit:areply_trio", "other"),
        Way("Client and Server, trio", "_calls:ask_trio", "_calls:serve", "other"),
        Way("Client and Server, cbor, trio", "_calls:ask_trio", "_calls:serve", "other", {"codec": "cbor"}),
        Way("NATS", "_nats:ask_asyncio", "_nats:reply_asyncio", "other"),
        Way("NATS micro", "_nats:ask_asyncio", "_nats:micro_asyncio", "other"),
        Way("Zenoh", "_zenoh:ask", "_zenoh:reply", "other"),
    ),
    (
        p50("Client vs Req, trio", "Client, trio", "Req, trio", 1.25, 1.1),
        p50("Client, asyncio vs trio", "Client, asyncio", "Client, trio", 1.5, 1.15),
    ),
)
FLIGHT = {"flight": 64}
MANY = Group(
    "64 in flight, tcp, 16 B",
    (
        Way("Req, trio", "_calls:req_many", "_nngkit:areply_trio", "other", FLIGHT),
        Way("Client's promises by hand, trio", "_calls:counted_many", "_nngkit:areply_trio", "other", FLIGHT),
        Way("Client, trio", "_calls:ask_many_trio", "_nngkit:areply_trio", "other", FLIGHT),
        Way("Client, asyncio", "_calls:ask_many_asyncio", "_nngkit:areply_trio", "other", FLIGHT),
        Way("Client and Server, trio", "_calls:ask_many_trio", "_calls:serve", "other", FLIGHT),
        Way(
            "Client and Server, cbor, trio", "_calls:ask_many_trio", "_calls:serve", "other", FLIGHT | {"codec": "cbor"}
        ),
        Way("NATS", "_nats:ask_asyncio", "_nats:reply_asyncio", "other", FLIGHT),
    ),
    (Promise("Client vs Req, trio", "Client, trio", "Req, trio", 0.8, 0.95),),
)
CROSSING = Group(
    "one question to a daemon at a time",
    (
        Way("DaemonClient, trio", "_calls:find_trio", "_calls:daemon", "other"),
        Way("DaemonClient, asyncio", "_calls:find_asyncio", "_calls:daemon", "other"),
    ),
    (p50("asyncio vs trio", "DaemonClient, asyncio", "DaemonClient, trio", None, None),),
)
UNEVEN = Group(
    "three providers, of which one takes twice and one four times as long",
    tuple(
        Way(policy, "_calls:uneven", task={"policy": policy, "rate": 900})
        for policy in ("random", "two-choices", "latency")
    ),
    (Promise("p99, two choices vs random", "two-choices", "random", 0.6, 0.4, "p99_ms"),),
)
KILLS = Group(
    "kills of daemons and providers under idempotent calls",
    (Way("Client", "_call_faults:kills", task={"kills": 1000 if LONG else 10, "seconds": 3600}),),
    (
        Promise("failed calls", "Client", None, 0, 0, "failed"),
        Promise("calls over 1 s", "Client", None, 0, 0, "over_1_s"),
    ),
    once=True,
)
FAILOVERS = Group(
    "crashes of the only provider in the preferred zone",
    (Way("Client", "_call_faults:failovers", task={"rounds": 200 if LONG else 3, "seconds": 3600}),),
    (
        Promise("failed calls", "Client", None, 0, 0, "failed"),
        Promise("calls across while a provider is up near", "Client", None, 0, 0, "across"),
        Promise("first call across, p99", "Client", None, 100, 30, "p99_ms"),
    ),
    once=True,
)
AMONG = Group(
    "one of 1,000 services killed, ten resolvers",
    (
        Way(
            "nngkit",
            "_presence:killed_of",
            task={"services": 1000 if LONG else 100, "resolvers": 10, "rounds": 200 if LONG else 3, "seconds": 3600},
        ),
    ),
    (Promise("last stale resolve, p99", "nngkit", None, 50, 20, "p99_ms"),),
    once=True,
)
CHANGES = Group(
    "a change of one of 1,000 services, with 50 resolvers",
    (
        Way(
            "a change",
            "_presence:changes",
            task={"services": 1000, "resolvers": 50, "rounds": 200, "seconds": 3600}
            if LONG
            else {"services": 100, "resolvers": 5, "rounds": 3, "seconds": 3600},
        ),
    ),
    (Promise("CPU of the daemon", "a change", None, 5000, 5000, "other_us"),),
    once=True,
)
EACH = {"rounds": 30 if LONG else 2, "resolvers": 1}
SIZES = (10, 100, 1000, 10_000) if LONG else (10,)
MOST = 1000  # services of the others: NATS micro has ten subscriptions for each
KILLED_OF = (
    ("nngkit", "_presence:killed_of"),
    ("Zenoh liveliness", "_zenoh:killed_of"),
    ("NATS micro", "_nats:killed_of_asyncio"),
)
PRESENCE = Group(
    "one of many services killed: known after",
    tuple(
        Way(name, killed_of, task={**EACH, "services": count, "seconds": 3600}, at=(count,), of="service")
        for count in SIZES
        for name, killed_of in KILLED_OF
        if count <= MOST or name == "nngkit"
    ),
    once=True,
)
LOST = Group(
    "lost replies and packets: services declared down that never were",
    (
        Way(
            "1,000 services, 5 % of replies lost, simulated",
            "_call_faults:lost_rounds",
            task={"services": 1000, "rounds": 10_000 if LONG else 100, "lost": 0.05},
        ),
        Way(
            "20 services, 30 % of packets lost",
            "_call_faults:lossy",
            task={"lost": 0.3, "lasts": 600 if LONG else 5, "seconds": 3600},
        ),
    ),
    (
        Promise("simulated", "1,000 services, 5 % of replies lost, simulated", None, 0, 0, "false_downs"),
        Promise("real sockets", "20 services, 30 % of packets lost", None, 1, 0, "false_downs"),
    ),
    once=True,
)
PARTITIONS = Group(
    "partitions, healed: time until the view is right",
    (
        Way(
            "20 services",
            "_call_faults:partitions",
            task={"rounds": 50 if LONG else 2, "interval": 2.0, "longest": 3.0, "seconds": 3600},
        ),
    ),
    (Promise("views later than 1 s and an interval", "20 services", None, 0, 0, "late"),),
    once=True,
)
GROUPS = (ONE, MANY, CROSSING, UNEVEN, KILLS, FAILOVERS, AMONG, CHANGES, PRESENCE, LOST, PARTITIONS)

if __name__ == "__main__":
    given = bench.options(__doc__, rounds=5, seconds=1.0)
    given.add_argument("--long", action="store_true", help="fault groups with the numbers of the promises; an hour")
    bench.run("calls", GROUPS, given.parse_args())
