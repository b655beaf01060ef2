"""Partitions with a given number of segments, sealed and planned. See journal_size.py."""

from __future__ import annotations

import pickle
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from _child import report
from nngkit.journal.files import folder_of, segment_name
from nngkit.journal.manifest import Manifest, check_journal, load_manifest, save_manifest
from nngkit.journal.record import encode_origin
from nngkit.journal.segments import Segment, Segments
from nngkit.journal.storage import open_storage
from nngkit.journal.writing.partition import Partition
from nngkit.testing import eventually

ROWS = 1000  # of each segment that has no file
PARTITIONS = 100
SEALED = 130  # in a measurement: two blocks
ORIGIN = encode_origin("topic", "pull", "tcp://127.0.0.1:1")


def _listed(journal: Path, partition: int, count: int) -> None:
    """Write the manifest of a partition with `count` segments."""
    storage = open_storage(journal)
    check_journal(storage, make=True)
    (journal / folder_of(partition)).mkdir()
    segments = (_segment(number * ROWS) for number in range(count))
    save_manifest(storage, Manifest(partition, "local", 0, count * ROWS, Segments(segments)))


def _segment(first: int) -> Segment:
    file = segment_name(first, first + ROWS)
    return Segment(file, first, first + ROWS, ROWS, 64 << 20, 0, first, first + ROWS - 1, {"topic": ROWS})


def seal(task: dict[str, Any]) -> None:
    """Record, seal, and list one segment after the other."""
    with tempfile.TemporaryDirectory() as folder:
        journal, count = Path(folder) / "journal", task["segments"]
        _listed(journal, 0, count)
        partition = Partition.open(journal, segment_bytes=1, salvage=True)
        begin = began = 0.0
        for number in range(1 + SEALED):  # the first one imports modules
            partition.log.append([(None, b"a message", ORIGIN, b"", number)])
            eventually(lambda number=number: partition.stats.segments == number + 1, 30)
            begin, began = begin or time.process_time(), began or time.perf_counter()
        cpu, took = time.process_time() - begin, time.perf_counter() - began
        partition.close()
        manifest = load_manifest(open_storage(journal), 0)
        assert manifest is not None
        assert len(manifest.segments) == count + 1 + SEALED
        report(per_second=SEALED / took, cpu_us=cpu / SEALED * 1e6)


def plan(task: dict[str, Any]) -> None:
    """Determine the end, or plan a scan, as the driver of a query does."""
    from nngkit.spark.reading.one import BatchReader, StreamReader
    from nngkit.spark.reading.options import ReadOptions

    with tempfile.TemporaryDirectory() as folder:
        journal, each = Path(folder) / "journal", task["segments"] // PARTITIONS
        for partition in range(PARTITIONS):
            _listed(journal, partition, each)
        columns = ("value",)
        path = {"path": str(journal)}
        streaming = StreamReader(ReadOptions.of(path, streaming=True), columns)
        start = {str(partition): 0 for partition in range(PARTITIONS)}
        took = []
        until = time.perf_counter() + task["seconds"]
        while time.perf_counter() < until or len(took) < 5:
            begin = time.perf_counter()
            if task["what"] == "end":
                end = streaming.latestOffset(start, streaming.getDefaultReadLimit())
            else:
                slices = BatchReader(ReadOptions.of(path, streaming=False), columns).partitions()
                sent = [pickle.dumps(one) for one in slices]
            took.append(time.perf_counter() - begin)
        if task["what"] == "end":
            assert set(end.values()) == {each * ROWS}
        else:
            ranges = [pickle.loads(one).value for one in sent]
            assert sum(one.end - one.start for one in ranges) == PARTITIONS * each * ROWS
        report(p50_ms=statistics.median(took) * 1e3, times=len(took))
