"""Rotation of a realm's key, renewal of passes and revocation, under load, killed half way, in every room.

    python3 dev.py bench rotation [--only ROOM] [--seconds N] [--pause N] [--json]

In each room peers stay connected and ask all the time, others connect, are served once and leave. `calls` has two
processes with 64 calls each in flight. Passes live for half a minute, so that they are renewed meanwhile. The realm's
key is replaced in its three steps. Each is killed (SIGKILL) in the place of every rename, and made again; while passes
take up what it has made, the issuer and one of the processes that serve are killed, and started again: ``times`` is the
number of kills, ``passes`` that of passes by which honest peers exchanged. At the end a name is revoked at the issuer.

``per_second``: exchanges of the honest peers during the rotation; ``still_per_second``: in the ``--seconds`` before it;
``joins``: connections a second for one exchange, of 40 that are tried in calls and 5 to 20 in other rooms. ``calls``:
all exchanges; ``failed`` of these, and edits that are ``lost``, must be 0: the exit code is 1 otherwise. ``max_ms``:
the longest exchange: it waits until the process that serves it, which was killed, has started again and was dialed.
``cut_ms``: from the revocation, right after an exchange of that name, to its last one. All rooms take four minutes.
"""

from __future__ import annotations

import sys

import _measuring as bench
from _measuring import Group, Promise, Way

ROOMS = ("discovery", "calls", "fan-out", "consumers", "mesh", "documents", "cluster")
LONGEST = 120.0  # seconds of a room


def group(room: str, still: float, pause: float) -> Group:
    """Return the measurement of a room. ``still``: seconds before the rotation."""
    way = f"peers of {room}"
    promises = [
        Promise(f"{room}: failed", way, None, 0, 0, "failed"),
        Promise(f"{room}: lost", way, None, 0, 0, "lost"),
        Promise(f"{room}: ms until cut", way, None, 2000, 1500, "cut_ms"),
    ]
    if room == "calls":
        promises += [
            Promise("calls: requests during the rotation", way, None, None, None),
            Promise("calls: during the rotation vs before it", way, way, None, None, over="still_per_second"),
        ]
    task = {"room": room, "seconds": LONGEST, "still": still, "pause": pause}
    return Group(room, (Way(way, "_rotating:rotate", task=task),), tuple(promises), once=True)


if __name__ == "__main__":
    parser = bench.options(__doc__, rounds=1, seconds=4.0)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds between exchanges, 10 times as many between joins (default 0)"
    )
    given = parser.parse_args()
    results = bench.run("rotation", [group(room, given.seconds, given.pause) for room in ROOMS], given)
    sys.exit(any(one["verdict"] == "MISSED" for each in results["groups"] for one in each["promises"]))
