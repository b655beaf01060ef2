"""The extra `journal`: record, lose the manifest, rebuild it, read; merge segments; find damage, and read past it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import trio

from nngkit.errors import Damaged
from nngkit.journal import Recorder, read


def command(*arguments: str, code: int = 0) -> str:
    argv = [sys.executable, "-m", "nngkit", "journal", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.returncode == code, done.stderr
    return done.stdout


async def record(count: int) -> None:
    async with Recorder("j") as recorder:
        for number in range(count):
            recorder.put(b"%d" % number, topic="t", protocol="sub", headers={"n": b"1"})


for _ in range(9):
    trio.run(record, 10)
folder = Path("j/partition-00000")
(folder / "manifest.json").unlink()
assert "90 records" in command("rebuild-manifest", "j")
assert [int(each.value) for each in read("j", topics="t")] == 9 * list(range(10))
command("compact", "j")
for action in ("ls", "verify", "stats", "export"):
    command(action, "j")
command("export", "j", "--format", "parquet", "--output", "all.parquet")
listed = command("ls", "j", "--json").splitlines()
segment = next(path for path in folder.iterdir() if path.name in listed[0])
segment.write_bytes(segment.read_bytes()[:-50])
found = []
with contextlib.suppress(Damaged):
    found = list(read("j"))
assert not found, "the damage was not found"
command("verify", "j", code=1)
command("export", "j", "--skip-missing")
trio.run(record, 1)
