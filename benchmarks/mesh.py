"""A mesh that forwards: networks whose links are cut, memory over many messages, the cost of a hop.

    python3 dev.py bench mesh [--messages N] [--rounds N] [--seconds S] [--only TEXT] [--json]

"20 nodes, cut": simulated networks of 20 nodes and 40 links, 12 of which are cut while all nodes send; each message has
to come once to each node that still has a path. ``times`` is the number of networks, ``calls`` of delivered messages;
``copies`` are received for each delivered one. "Deliveries": one such network, whose links are cut and healed, with
1 MiB for repairs in each node; ``failed`` counts the messages that were given up. "Messages over two hops" pass through
the states of three nodes without sockets; memory is that of all three, with 16 MiB each for repairs. "Hops": a sender
as fast as the last node's backpressure lets it; the nodes in between are in the sender's process. "20 nodes, tcp": all
nodes in one process; each delivered message counts, and times are from `send` to the program of each receiver.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

STEPS = 10
HOPS = (1, 2, 4)


def groups(messages: int) -> tuple[Group, ...]:
    step = messages // STEPS
    cuts = Group("20 nodes, 40 links, 12 cut, simulated", (Way("exactly once", "_mesh:survive_cuts"),))
    steps = tuple(range(step, step * STEPS + 1, step))
    task = {"messages": messages, "steps": STEPS, "size": 100}
    endured = Group(
        f"{messages:,} deliveries among 20 nodes, 12 of 40 links cut at any time, simulated",
        (Way("mesh, cut and healed", "_mesh:endure_cuts", task=task, at=steps, of="message"),),
    )
    memory = Group(
        f"{messages:,} messages over two hops, 100 B, without sockets",
        (Way("mesh", "_mesh:pass_in_steps", task=task, at=steps, of="message"),),
    )
    hops = Group(
        "hops, tcp, 100 B",
        (
            *(
                Way(f"mesh, {n} hop{'s' * (n > 1)}", "_mesh:read", "_mesh:write", task={"size": 100, "hops": n})
                for n in HOPS
            ),
            Way("a bare Bus, 1 hop", "_mesh:read_bus", "_mesh:write_bus", task={"size": 100}),
        ),
        (Promise("1 hop vs a bare Bus", "mesh, 1 hop", "a bare Bus, 1 hop", 0.1, 0.3),),
    )
    whole = Group(
        "20 nodes, 40 links, tcp, 100 B, in one process",
        tuple(
            Way(name, "_mesh:all_nodes", task={"size": 100, "paced": paced, "burst": burst})
            for name, paced, burst in (("as fast as it goes", False, 64), ("1,000 messages/s", True, 10))
        ),
    )
    return cuts, endured, memory, hops, whole


if __name__ == "__main__":
    parser = bench.options(__doc__, rounds=3, seconds=2.0)
    parser.add_argument(
        "--messages", type=int, default=10_000_000, help="in the two groups about memory (default %(default)s)"
    )
    given = parser.parse_args()
    bench.run("mesh", groups(given.messages), given)
