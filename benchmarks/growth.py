"""What a message costs as there are more peers, and more messages.

    python3 dev.py bench growth [--rounds N] [--seconds S] [--messages N] [--only TEXT] [--json]

Peers: a Pull that 1 to 1,000 Push peers saturate, each sending as much as is taken, and a Rep that 1 to 1,000 peers
ask, each again as soon as it has its answer. The peers are plain TCP sockets of one process (``_crowd.py``), which
cost so little that what is measured is the one socket that serves them; bare pynng is measured with the same peers.

Messages: one connection, nngkit at both ends, with and without batches; for each tenth of ``--messages`` the receiver's
CPU in it and the memory it has resident after it. ``--seconds`` is not about these. They are few unless asked for:
unbatched, 10 million take about a minute.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Way

PEERS = (1, 3, 10, 30, 100, 300, 1000)
STEPS = 10
PULL = {"nngkit Pull, recv_many": "_nngkit:pull_many", "pynng Pull0": "_pynng:pull"}
REP = {"nngkit Rep": "_nngkit:reply_measured", "pynng Rep0": "_pynng:reply_measured"}


def by_peers(what: str, contenders: dict[str, str], crowd: str) -> Group:
    ways = (
        Way(name, measured, crowd, task={"peers": count}, at=(count,), of="peer")
        for count in PEERS
        for name, measured in contenders.items()
    )
    return Group(f"{what}, tcp, 16 B", tuple(ways))


def by_messages(messages: int) -> Group:
    step = messages // STEPS
    ways = (
        Way(
            name,
            "_nngkit:pull_in_steps",
            "_nngkit:push_many",
            task={"messages": messages, "steps": STEPS, "many": 1024, "batch": batch},
            at=tuple(range(step, step * STEPS + 1, step)),
            of="message",
        )
        for name, batch in (("one by one", None), ("batched", True))
    )
    return Group(f"{messages:,} messages on one connection, tcp, 16 B", tuple(ways))


if __name__ == "__main__":
    parser = bench.options(__doc__, rounds=3, seconds=1.0)
    parser.add_argument("--messages", type=int, default=1_000_000, help="on one connection (default %(default)s)")
    given = parser.parse_args()
    groups = (
        by_peers("a Pull and its peers", PULL, "_crowd:push"),
        by_peers("a Rep and its peers", REP, "_crowd:ask"),
        by_messages(given.messages),
    )
    bench.run("growth", groups, given)
