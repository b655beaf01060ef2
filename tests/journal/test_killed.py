"""A recorder, and `nngkit journal compact`, are killed repeatedly: each acknowledged record is stored, once.

8 kills of a recorder under load, and between them some of a compaction; set NNGKIT_KILLS=100 for more, or run
`python3 dev.py bench kills`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
import trio

from nngkit.journal.record import encode_headers, encode_origin
from nngkit.journal.writing.partition import Partition
from tests.journal.recorder_kills import Killed, Load, audit, load

RUNS = int(os.environ.get("NNGKIT_KILLS", "8"))


@pytest.mark.slow
@pytest.mark.timeout(60 + 15 * RUNS)
async def test_no_acknowledged_record_is_lost_or_stored_twice(tmp_path: Path) -> None:
    killed = Killed(tmp_path)
    chance = random.Random(time.time_ns())
    kills: list[int] = []
    compactions: list[bool] = []
    async with load(killed) as flow:
        for run in range(RUNS):
            if run % 2:
                compactions.append(await killed.kill_compaction(chance.random()))
            kills.append(await killed.kill_recorder(flow, chance))
        process = await killed.last(flow)
    process.send_signal(signal.SIGTERM)
    assert await trio.to_thread.run_sync(process.wait) == 128 + signal.SIGTERM
    assert kills == [-signal.SIGKILL] * RUNS
    assert sum(compactions) >= RUNS // 8, "most compactions ended before they were killed"

    found = audit(killed.journal, flow)
    sys.stdout.write(
        f"{RUNS} kills, and {sum(compactions)} of compactions: {found.acknowledged} acknowledged, {found.lost} lost, "
        f"{found.repeated} repeated, {found.doubled} doubled after deduplication\n"
        f"PULL: {len(flow.pushed)} pushed, {found.missing} lost\n"
    )
    assert found.wrong == ()
    assert (found.lost, found.doubled) == (0, 0)
    assert found.missing < RUNS * 5000, "more than the sockets and the kernel buffer for one peer"


@pytest.mark.parametrize(
    ("stored", "lost", "repeated", "doubled", "wrong"),
    [
        ((b"0-0", b"1-0"), 0, 0, 0, 0),
        ((b"0-0",), 1, 0, 0, 0),
        ((b"0-0", b"0-0", b"1-0"), 0, 1, 0, 0),
        ((b"0-0", b"0-0 with another id", b"1-0"), 0, 0, 1, 0),
        ((b"0-0", b"1-0", b"never sent"), 0, 0, 0, 1),
    ],
    ids=["complete", "lost", "repeated", "doubled", "not sent"],
)
def test_the_audit_counts_what_is_lost_and_doubled(
    stored: tuple[bytes, ...], lost: int, repeated: int, doubled: int, wrong: int, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    partition = Partition.open(journal)
    origin = encode_origin("orders", "rep", None)
    partition.log.append(
        [(None, id_.partition(b" with")[0], origin, encode_headers([("id", id_)]), 1_000) for id_ in stored]
    )
    partition.close()
    found = audit(journal, Load({b"0-0", b"1-0"}, []))
    assert (found.lost, found.repeated, found.doubled, len(found.wrong)) == (lost, repeated, doubled, wrong)
    assert found.acknowledged == 2
