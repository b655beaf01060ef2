"""Changed inputs for everything that reads bytes of peers, passes, policies: only nngkit's errors come out.

    python3 dev.py bench fuzz [--inputs 10000000] [--seed N] [--only TEXT] [--json]

Valid samples are changed in one to four places: bits, bytes, parts that are missing, repeated or of another sample,
and, in CBOR, single values. ``refused``: inputs that raised an error of nngkit; ``escaped``: any other error, which is
printed with its input, or an honest peer that is served no more; ``grown_mib``: peak memory after the first tenth.
"""

from __future__ import annotations

import sys

import _measuring as bench
from _measuring import Group, Promise, Way

MOST = 64.0  # MiB
SHARES = {  # of the inputs: a handshake takes a millisecond, a message ten microseconds
    "messages": 0.395,
    "policies": 0.05,
    "pass files": 0.02,
    "invitations": 0.04,
    "names of certificates": 0.1,
    "signatures": 0.02,
    "questions to the issuer": 0.005,
    "replies of the issuer": 0.005,
    "handshakes": 0.005,
    "mesh": 0.15,
    "registry": 0.1,
    "voter": 0.1,
    "consumers": 0.01,
}


def group(name: str, targets: tuple[str, ...], inputs: int, seed: int) -> Group:
    """Return the group of some targets."""

    def way(target: str) -> Way:
        task = {"target": target.replace(" ", "_"), "inputs": max(20, int(inputs * SHARES[target])), "seed": seed}
        return Way(target, "_fuzz:consumers" if target == "consumers" else "_fuzz:run", task=task | {"seconds": 7200.0})

    promises = [
        promise
        for each in targets
        for promise in (
            Promise(f"{each}: escaped", each, None, 0, 0, "escaped"),
            Promise(f"{each}: MiB grown", each, None, MOST, MOST, "grown_mib"),
        )
    ]
    return Group(name, tuple(map(way, targets)), tuple(promises), once=True)


def main() -> int:
    """Run the benchmark; return its exit code: 1 if an error escapes or memory grows."""
    parser = bench.options(__doc__, rounds=1, seconds=0.0)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the changes (default %(default)s)")
    given = parser.parse_args()
    names = tuple(SHARES)
    groups = (
        group("messages of peers", names[:1], given.inputs, given.seed),
        group("trust", names[1:9], given.inputs, given.seed),
        group("states, with a hostile peer beside an honest one", names[9:], given.inputs, given.seed),
    )
    done = bench.run("fuzz", groups, given)
    missed = [one["what"] for each in done["groups"] for one in each["promises"] if one["verdict"] == "MISSED"]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
