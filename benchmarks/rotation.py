"""Rotation of a realm's key, and revocation, under load: peers of a room come and go all the time.

    python3 dev.py bench rotation [--only ROOM] [--json]

Discovery, calls, fan-out and consumers each have a server, peers that connect, are served once and leave, four at a
time, and an issuer. The realm's key is replaced in its three steps, each killed (SIGKILL) in the place of every rename
and made again; ``times`` is the number of kills. ``calls``: exchanges of the honest peers; ``failed`` of these, which
must be 0; the exit code is 1 otherwise. At the end a name is revoked at the issuer: ``cut`` is the time of its last
exchange after that.
"""

from __future__ import annotations

import sys

import _measuring as bench
from _measuring import Group, Promise, Way

ROOMS = ("discovery", "calls", "fan-out", "consumers")
GROUPS = tuple(
    Group(
        room,
        (Way(f"peers of {room}", "_rotating:rotate", task={"room": room, "seconds": 120.0}),),
        (
            Promise(f"{room}: failed", f"peers of {room}", None, 0, 0, "failed"),
            Promise(f"{room}: ms until cut", f"peers of {room}", None, 2000, 1500, "cut_ms"),
        ),
        once=True,
    )
    for room in ROOMS
)

if __name__ == "__main__":
    results = bench.run("rotation", GROUPS, bench.options(__doc__, rounds=1, seconds=1.0).parse_args())
    sys.exit(any(one["verdict"] == "MISSED" for each in results["groups"] for one in each["promises"]))
