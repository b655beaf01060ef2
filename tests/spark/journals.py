"""Journals for tests, written through the journal's own partitions."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nngkit.journal.record import encode_headers, encode_origin
from nngkit.journal.writing.partition import Partition
from tests.spark.rows import at, micros


def entry(record: dict[str, Any], number: int) -> tuple[bytes | None, bytes, bytes, bytes, int]:
    headers = record.get("headers")
    return (
        record.get("key"),
        record.get("value", f"{number}".encode()),
        encode_origin(record.get("topic", "t"), record.get("protocol", "sub"), record.get("peer", "tcp://10.0.0.1:1")),
        encode_headers(headers.items()) if headers else b"",
        micros(record.get("timestamp", at(number))),
    )


def append(partition: Partition, records: Sequence[dict[str, Any]], first: int = 0) -> None:
    """Append records and wait until they are on disk."""
    done = threading.Event()
    partition.log.append([entry(each, first + number) for number, each in enumerate(records)], lambda *_: done.set())
    assert done.wait(20)


def write(folder: Path, count: int, partition: int = 0, topics: Sequence[str] = ("t",), first: int = 0) -> None:
    """Write and seal `count` records: their value and time in seconds are their number, topics alternate."""
    records = [{"topic": topics[number % len(topics)]} for number in range(count)]
    with opened(folder, partition) as part:
        append(part, records, first)


@contextmanager
def opened(folder: Path, partition: int = 0, **options: Any) -> Iterator[Partition]:
    part = Partition.open(folder, partition, **options)
    try:
        yield part
    finally:
        part.close()
