"""Cost of a message as the number of peers grows.

    python3 dev.py bench growth [--rounds N] [--seconds S] [--only TEXT] [--json]

Peers: a Pull that 1 to 1,000 Push peers saturate, and a Rep with 1 to 1,000 clients, each sending its next request as
soon as it has its reply. The peers are plain TCP sockets of one process (``_crowd.py``), whose cost is negligible
beside that of the measured socket; bare pynng is measured with the same peers, and pyzmq with peers that speak ZMTP.
Idle: the resident memory of a Pull for each connection that has sent one message and been silent since.
"""

from __future__ import annotations

import _measuring as bench
from _child import RUN_IN
from _measuring import Group, Promise, Way, with_before

PEERS = (1, 3, 10, 30, 100, 300, 1000)
MANY = 1000  # connections of the groups with a fixed number
PULL = {
    "nngkit Pull, recv": ("_nngkit:pull_crowd", "_crowd:push"),
    "nngkit Pull, recv_many": ("_nngkit:pull_crowd_many", "_crowd:push"),
    "pynng Pull0": ("_pynng:pull_crowd", "_crowd:push"),
    "pyzmq PULL": ("_zmq:pull_crowd", "_crowd:push_zmtp"),
}
REP = {
    "nngkit Rep": ("_nngkit:reply_measured", "_crowd:ask"),
    "pynng Rep0": ("_pynng:reply_measured", "_crowd:ask"),
}
BOTH = {
    "nngkit, recv": ("_nngkit:pull_crowd", "_nngkit:push_crowd"),
    "nngkit, recv_many": ("_nngkit:pull_crowd_many", "_nngkit:push_crowd"),
    "pynng": ("_pynng:pull_crowd", "_pynng:push_crowd"),
    "pyzmq": ("_zmq:pull_crowd", "_zmq:push_crowd"),
}
HOLD = {
    "nngkit Pull": ("_nngkit:hold_crowd", "_crowd:rest"),
    "pynng Pull0": ("_pynng:hold_crowd", "_crowd:rest"),
    "pyzmq PULL": ("_zmq:hold_crowd", "_crowd:rest_zmtp"),
}


def by_peers(what: str, contenders: dict[str, tuple[str, str]]) -> Group:
    def way(name: str, count: int) -> Way:
        # longer with more peers: pyzmq has a queue for each, filled while they connect, which has to be read first
        task = {"peers": count, "run_in": RUN_IN + count / 1000}
        return Way(name, *contenders[name], task=task, at=(count,), of="peer")

    ways: list[Way] = []
    for count in PEERS:
        for name in contenders:
            ways += with_before([way(name, count)]) if name.startswith("nngkit") else [way(name, count)]
    return Group(f"{what}, tcp, 16 B", tuple(ways))


def both_ends() -> Group:
    """Measure a Pull and its peers of the same library: sockets of one process that send in turn."""
    ours = ("nngkit, recv", "nngkit, recv_many")
    task = {"peers": MANY, "run_in": 1.0}
    ways = {name: Way(name, *ends, task=task) for name, ends in BOTH.items()}
    chosen = (*with_before(ways.pop(name) for name in ours), *ways.values())
    promises = tuple(Promise(f"{name}, vs pyzmq", name, "pyzmq", 1.2, 2) for name in ours)
    return Group(f"a Pull and {MANY:,} Push, each library at both ends, tcp, 16 B", chosen, promises)


def idle() -> Group:
    task = {"peers": MANY}
    ways = [Way(name, *ends, task=task) for name, ends in HOLD.items()]
    promise = Promise("memory of an idle connection", "nngkit Pull", None, 12, 8, "idle_kib")
    return Group(f"{MANY:,} idle connections, tcp", (*with_before(ways[:1]), *ways[1:]), (promise,))


if __name__ == "__main__":
    groups = (
        by_peers("a Pull and its peers", PULL),
        both_ends(),
        idle(),
        by_peers("a Rep and its peers", REP),
    )
    bench.run("growth", groups, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
