"""Journals for the tests of consumers."""

from collections.abc import Sequence
from pathlib import Path

from nngkit.journal import Recorder


async def write(folder: Path, values: Sequence[bytes], *, topic: str = "orders", partition: int = 0) -> None:
    """Record `values` in the journal at `folder`, sealed."""
    async with Recorder(folder, partition=partition) as recorder:
        await recorder.store(values, topic=topic, protocol="test")


def numbers(first: int, end: int) -> list[bytes]:
    """Return the values of consecutive records."""
    return [str(number).encode() for number in range(first, end)]
