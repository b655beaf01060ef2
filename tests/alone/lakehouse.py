"""The extras `iceberg` and `delta`: a journal whose manifest was lost is exported as a table, twice, and read."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from nngkit.journal import Recorder, rebuild_manifest
from nngkit.lakehouse import export, open_table

kind = sys.argv[1]


async def record() -> None:
    async with Recorder("j") as recorder:
        recorder.put(b"value", topic="t", protocol="sub")


for added in range(1, 3):
    trio.run(record)
    Path("j/partition-00000/manifest.json").unlink()
    rebuild_manifest("j")
    assert export("j", "t", kind).offsets == {0: added}
assert len(open_table("t").paths()) == 2
