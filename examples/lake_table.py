"""A journal as a Delta table: published twice, and read as of an offset; small segments merged in between.

::

    python3 examples/lake_table.py   needs 'nngkit[journal,delta]'

prints::

    published: 7 segments, up to offset 14
    merged into 1 segment
    published: 1 segment in place of 7, up to offset 16
    the table has 16 records, and as of offset 14 it has 14
    first and last of them: reading 0, reading 13
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio

from nngkit.journal import Recorder, compact
from nngkit.lakehouse import export, open_table


async def record(journal: Path, numbers: range) -> None:
    """Record readings; leaving the recorder seals them into a segment."""
    async with Recorder(journal) as recorder:
        for number in numbers:
            recorder.put(f"reading {number}".encode(), topic="sensor", protocol="example")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal, table = Path(folder, "journal"), Path(folder, "lake", "readings")
        for number in range(7):  # eight and more are merged by the recorder, if it has the time
            trio.run(record, journal, range(2 * number, 2 * number + 2))
        done = export(journal, table, "delta")
        print(f"published: {done.added} segments, up to offset {done.offsets[0]}")
        trio.run(record, journal, range(14, 16))
        print(f"merged into {compact(journal).after} segment")
        done = export(journal, table, "delta")
        print(f"published: {done.added} segment in place of {done.removed}, up to offset {done.offsets[0]}")
        opened = open_table(table)
        rows, earlier = opened.arrow().to_table(), opened.arrow({0: 14}).to_table().sort_by("offset")
        print(f"the table has {rows.num_rows} records, and as of offset 14 it has {earlier.num_rows}")
        values = [value.decode() for value in earlier.column("value").to_pylist()]
        print(f"first and last of them: {values[0]}, {values[-1]}")


if __name__ == "__main__":
    main()
