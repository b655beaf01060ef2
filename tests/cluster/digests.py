"""Print a digest of all messages of some histories of each simulator: `python -m tests.cluster.digests`.

With any PYTHONHASHSEED it prints the same, else the seed of a broken history would not bring it back: see
`test_reproducible.py`. (Endpoints are not among them: trio runs the tasks of a turn in random order.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from tests.cluster import documents_network, election_network, place_network, work_network

SENDERS: dict[str, tuple[tuple[Any, str], ...]] = {
    "documents": ((documents_network.Cluster, "unicast"), (documents_network.Cluster, "broadcast")),
    "election": ((election_network.ElectionNetwork, "send"),),
    "place": ((place_network.Link, "send"),),
    "work": ((work_network.Link, "carry"), (work_network.Cluster, "to_host"), (work_network.Cluster, "from_host")),
}
HISTORIES: dict[str, Callable[[int], object]] = {
    "documents": documents_network.history,
    "election": lambda seed: election_network.ElectionNetwork(seed).play(),
    "place": place_network.history,
    "work": work_network.history,
}
COUNT = {"documents": 20, "election": 5, "place": 5, "work": 5}


def digest_of(name: str) -> str:
    """Return the digest of the arguments of all sends, and the number of these."""
    digest, count = sha256(), 0

    def noting(send: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: object, *arguments: object) -> Any:
            nonlocal count
            count += 1
            plain = [getattr(each, "name", getattr(each, "id", each)) for each in arguments]
            digest.update(repr(plain).encode())
            return send(self, *arguments)

        return noted

    for owner, method in SENDERS[name]:
        setattr(owner, method, noting(getattr(owner, method)))
    for seed in range(COUNT[name]):
        HISTORIES[name](seed)
    return f"{name} {count} {digest.hexdigest()}"


if __name__ == "__main__":
    for each in HISTORIES:
        sys.stdout.write(f"{digest_of(each)}\n")
