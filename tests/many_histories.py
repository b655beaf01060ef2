"""Many random histories of one simulator: prints what breaks, with its seed; exit code 1 if anything does.

::

    python -m tests.many_histories election 100000         # seeds from 0 on
    python -m tests.many_histories election 1 4711         # this one

For documents of peers: `python -m tests.documents.schedules`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tests.cluster import documents_network, endpoint_network, node_network, place_network, work_network
from tests.cluster.election_network import ElectionNetwork
from tests.protocols import mutating

MOST: Final = 10  # broken ones that are printed
EVENTS: Final = 40  # the last of a broken history of voters that are printed


def election(seed: int) -> None:
    """Play elections and commits; if that breaks, print its last events."""
    try:
        ElectionNetwork(seed).play()
    except Exception:
        again = ElectionNetwork(seed)
        again.trace = []
        with suppress(Exception):
            again.play()
        sys.stdout.writelines(f"{line}\n" for line in again.trace[-EVENTS:])
        raise


def sp(seed: int) -> None:
    """Parse 64 mutations of one stream of SP."""
    mutating.mutate(mutating.BATCH, seed)


HISTORIES: Final[dict[str, Callable[[int], object]]] = {
    "documents": documents_network.history,
    "election": election,
    "endpoints": endpoint_network.check,
    "nodes": node_network.history,
    "place": place_network.history,
    "sp": sp,
    "work": work_network.history,
}


def main() -> int:
    """Play them; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("simulator", choices=HISTORIES)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0, help="seed")
    given = parser.parse_args()
    broken, done, began = 0, 0, time.monotonic()
    while done < given.count and broken < MOST:
        seed = given.first + done
        done += 1
        try:
            HISTORIES[given.simulator](seed)
        except Exception:
            broken += 1
            sys.stdout.write(f"seed {seed}\n{traceback.format_exc(limit=-2)}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{done} histories in {time.monotonic() - began:.0f} s, {broken} broken\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
