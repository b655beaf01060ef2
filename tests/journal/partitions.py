"""Shared by the journal's tests: records, and partitions in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nngkit.errors import NotStored
from nngkit.journal.record import LogHeader, encode_headers, encode_origin, frame
from nngkit.journal.writing.log import Entry
from nngkit.journal.writing.partition import Partition
from nngkit.testing import eventually

SALT = 77
ORIGIN = encode_origin("topic", "pull", "tcp://127.0.0.1:1")


def entry(value: bytes, *, topic: str = "topic", timestamp: int = 1_000_000, key: bytes | None = None) -> Entry:
    return key, value, encode_origin(topic, "pull", "tcp://127.0.0.1:1"), b"", timestamp


def log_bytes(values: Iterable[bytes], *, first: int = 0, partition: int = 0) -> bytes:
    """Return the bytes of a complete log."""
    parts = [LogHeader(partition, SALT, first, 0).encode()]
    for offset, value in enumerate(values, first):
        headers = encode_headers([("n", b"%d" % offset)] if offset % 3 == 0 else None)
        key = None if offset % 2 else b"key"
        parts.append(frame(offset, offset * 1000, ORIGIN, key, headers, value, salt=SALT))
    return b"".join(parts)


def stored(partition: Partition, entries: list[Entry], timeout: float = 20.0) -> tuple[int, int]:
    """Append, and wait until the records are on disk. Raises NotStored."""
    told: list[tuple[int, int, NotStored | None]] = []
    partition.log.append(entries, lambda first, end, why: told.append((first, end, why)))
    eventually(lambda: told, timeout)
    first, end, why = told[0]
    if why is not None:
        raise why
    return first, end


def folder(journal: Path, partition: int = 0) -> Path:
    return journal / f"partition-{partition:05}"
