"""Pure modules decide in random histories as they decided when these were recorded.

Other tests say what must hold. The record notices that anything else has changed: a bound, a choice among equals, a
counter. As in test_histories.py, a difference is no error by itself: look at what has changed, and if it is meant,
write the record anew: `python -m tests.test_decisions`. The record has a digest for each PART steps, so that a
difference can be found: `python -m tests.test_decisions NAME` prints the steps of a history.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from tests.calls import decisions as calls
from tests.cli import decisions as cli
from tests.discovery import decisions as discovery
from tests.fanout import decisions as fanout
from tests.protocols import decisions as protocols
from tests.spark import decisions as spark

RECORD: Final = Path(__file__).parent / "decisions.json"
PART: Final = 50  # steps
SEEDS: Final = 3
HISTORIES: Final[tuple[Callable[[int], Iterator[Any]], ...]] = (
    calls.pool,
    calls.balance,
    discovery.registry,
    discovery.merged,
    discovery.question,
    discovery.chosen,
    fanout.partition,
    fanout.accounts,
    fanout.backlog,
    fanout.join,
    fanout.last_messages,
    fanout.received,
    fanout.mesh,
    fanout.stream,
    protocols.sp,
    protocols.websocket,
    protocols.scanned,
    protocols.topics,
    protocols.turns,
    protocols.races,
    protocols.silences,
    protocols.batch,
    spark.reads,
    spark.options,
    spark.causes,
    spark.recorded,
    spark.columns,
    spark.plots,
    spark.tables,
    spark.exports,
    spark.journal,
    cli.diagnoses,
    cli.edits,
    cli.rows,
    cli.changes,
    cli.traffic,
    cli.split,
    cli.codes,
    cli.rings,
    cli.heartbeats,
    cli.measured,
)
ALL: Final = {f"{play.__name__} {seed}": (play, seed) for play in HISTORIES for seed in range(SEEDS)}


def digests(name: str) -> list[str]:
    """Return the digest of each part of a history: of the digest before, and the steps."""
    play, seed = ALL[name]
    steps, found = play(seed), []
    digest = sha256()
    while part := list(islice(steps, PART)):
        for step in part:
            digest.update(repr(step).encode())
        found.append(digest.hexdigest()[:6])
    return found


@pytest.mark.parametrize("name", ALL)
def test_a_history_is_as_recorded(name: str) -> None:
    recorded, found = json.loads(RECORD.read_text())[name].split(), digests(name)
    same = next((i for i, pair in enumerate(zip(recorded, found, strict=False)) if len(set(pair)) > 1), None)
    assert same is None, f"differs in the steps from {same * PART} on"
    assert len(found) == len(recorded)


if __name__ == "__main__":
    if sys.argv[1:]:
        play, seed = ALL[sys.argv[1]]
        for number, step in enumerate(play(seed)):
            sys.stdout.write(f"{number} {step}\n")
    else:
        RECORD.write_text(json.dumps({name: " ".join(digests(name)) for name in ALL}, indent=1) + "\n")
