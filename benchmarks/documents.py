"""Document synchronization: convergence time, its cost, and comparison with pycrdt-websocket.

    python3 dev.py bench documents [--rounds N] [--seconds S] [--only TEXT] [--json]

All peers are processes of their own, on loopback. "16 peers": each types three characters at random moments within
200 ms; the time is from the last of these edits until the last of the 16 has all, with 25 ms of delay each way and the
given loss of BUS messages. Digests are compared after each round; the bytes written to all connections in it are the
cost. "4|4": two halves are edited separately, then reconnected. ``times`` is the number of rounds; p99 of fewer than a
hundred is the maximum.

A late joiner opens a document that another peer holds; ``beyond`` is what it read beside the document, ``grown`` its
peak growth in memory. "8 viewers": one peer writes characters as fast as its loop allows, or 200 a second, and CPU is
that of all processes for each character delivered to a viewer. Both use the same pycrdt; nngkit's nine peers are a mesh
in which any may write, pycrdt-websocket's are a server and nine clients. The history is generated; three peers take
turns at it, and its final text is checked.
"""

from __future__ import annotations

from _store import DURABLE, LOADING

import _measuring as bench
from _measuring import Group, Promise, Way

LOSSES = (0.0, 0.1, 0.3)
PEERS = 16
FEWER = (4, 8)
DELAY = 0.025
DOCUMENT = 10_000_000
EDITS = 50_000
VIEWERS = 8
LONGER = 15  # times --seconds: enough rounds for a p99


def peers(loss: float, longer: int, count: int = PEERS) -> Way:
    task = {"others": count, "loss": loss, "delay": DELAY, "longer": longer}
    name = f"{loss:.0%} lost" if count == PEERS else f"{count} peers, {loss:.0%} lost"
    return Way(name, "_documents:converge", "_documents:take_part", task=task)


def groups(longer: int, edits: int) -> tuple[Group, ...]:
    converging = Group(
        f"{PEERS} peers, 25 ms each way: from the last edit to the same content",
        tuple(peers(loss, longer) for loss in LOSSES),
        (
            Promise("10 % lost: p99", "10% lost", None, 200, 150, "p99_ms"),
            Promise("30 % lost: p99", "30% lost", None, 400, 300, "p99_ms"),
            Promise("10 % lost: bytes, vs none", "10% lost", "0% lost", 3, 1.5, "wire_kib"),
            Promise("30 % lost: bytes, vs none", "30% lost", "0% lost", 3, 2, "wire_kib"),
        ),
    )
    # the same protocol and loss with less work for each CPU: the additional time of sixteen peers on few CPUs is CPU
    fewer = Group(
        "fewer peers, 25 ms each way: from the last edit to the same content",
        tuple(peers(loss, longer, count) for count in FEWER for loss in LOSSES[1:]),
    )
    split = {"others": 8, "delay": DELAY, "longer": longer}
    healing = Group(
        "a 4|4 partition, 25 ms each way: from its end to the same content",
        tuple(
            Way(f"{count} edits each", "_documents:heal", "_documents:take_part", task={**split, "edits": count})
            for count in (5, 40)
        ),
        # 300 ms plus the transfer, at least a round trip of 50 ms
        (
            Promise("5 edits each: p99", "5 edits each", None, 350, 300, "p99_ms"),
            Promise("40 edits each: p99", "40 edits each", None, 350, 300, "p99_ms"),
        ),
    )
    whole = Group(
        "durable updates, a whole peer",
        tuple(Way(f"{n:,} in flight", "_documents:durable", task={"writers": n}) for n in (1, 64, 1024)),
        (Promise("durable edits a second", "1,024 in flight", None, 10_000, 20_000),),
    )
    stored = Group(
        DURABLE.name,
        DURABLE.ways,
        (Promise("durable updates a second", DURABLE.ways[-1].name, None, 10_000, 20_000),),
    )
    task = {"document": DOCUMENT}
    joining = Group(
        "a document of 10 MB, and a peer that joins late",
        (Way("joined", "_documents:join_late", "_documents:hold", "other", task=task),),
        (
            Promise("from `open` to the same digest", "joined", None, 300, 200, "p50_ms"),
            Promise("read beside the document", "joined", None, 2, 0.1, "beyond_mib"),
        ),
    )
    return (
        converging,
        fewer,
        healing,
        stored,
        whole,
        LOADING,
        joining,
        viewers("as fast as it goes", 0),
        viewers("200 characters a second", 200),
        Group(
            f"a history of {edits:,} edits, 3 peers that take turns of {TURN}",
            (
                Way(
                    "replayed",
                    "_documents:replay",
                    "_documents:take_part",
                    task={"others": 3, "edits": edits, "turn": TURN},
                ),
            ),
        ),
    )


TURN = 500


def viewers(how: str, rate: int) -> Group:
    nngkit, other = "nngkit", "pycrdt-websocket"
    figure, least, aim = ("p99_ms", 1.0, 0.5) if rate else ("per_second", 2.0, 4.0)
    return Group(
        f"{VIEWERS} viewers, {how}",
        (
            Way(nngkit, "_documents:deliver", "_documents:take_part", task={"others": VIEWERS + 1, "rate": rate}),
            Way(
                other,
                "_ywebsocket:deliver",
                "_ywebsocket:take_part_asyncio",
                task={"others": VIEWERS + 2, "rate": rate},
            ),
        ),
        (
            Promise(f"{'p99' if rate else 'deliveries'} vs pycrdt-websocket", nngkit, other, least, aim, figure),
            Promise("CPU a delivery vs pycrdt-websocket", nngkit, other, 1.0, 0.5, "cpu_us"),
        ),
    )


if __name__ == "__main__":
    parser = bench.options(__doc__, rounds=3, seconds=2.0)
    parser.add_argument("--edits", type=int, default=EDITS, help="of the history (default %(default)s)")
    parser.add_argument("--longer", type=int, default=LONGER, help="times --seconds of rounds (default %(default)s)")
    given = parser.parse_args()
    bench.run("documents", groups(given.longer, given.edits), given)
