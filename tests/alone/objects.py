"""The extra `objects`: a journal in a bucket, its manifest lost and rebuilt."""

from __future__ import annotations

import sys

import trio

from nngkit.journal import Recorder, read, rebuild_manifest
from nngkit.journal.storage import open_storage

uri = sys.argv[1]


async def record() -> None:
    async with Recorder(uri, spool="spool") as recorder:
        recorder.put(b"value", topic="t", protocol="sub")


trio.run(record)
open_storage(uri).remove("partition-00000/manifest.json")
assert rebuild_manifest(uri, spool="spool").adopted
assert [each.value for each in read(uri)] == [b"value"]
