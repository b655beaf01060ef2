"""Standard input as chunks and lines, and bytes to standard output, by threads: the event loop never blocks on them.

Not through sys.stdin and sys.stdout: a thread blocked in their locks would keep the process from ending.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import trio

from nngkit.cli.streams.line_writer import write_to

CHUNK: Final = 65_536  # bytes: what a pipe of Linux holds


async def chunks() -> AsyncGenerator[bytes, None]:
    """Yield standard input as it comes, to its end."""
    while some := await trio.to_thread.run_sync(os.read, 0, CHUNK, abandon_on_cancel=True):
        yield some


async def lines_of(source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the lines in `source` without their ends; the last one may lack it."""
    begun: list[bytes] = []
    async with aclosing(source):
        async for some in source:
            *lines, rest = some.split(b"\n")
            for line in lines:
                yield b"".join([*begun, line]).removesuffix(b"\r")
                begun.clear()
            if rest:
                begun.append(rest)
    if begun:
        yield b"".join(begun)


async def write_all(data: bytes) -> None:
    """Write to standard output by a thread, which is abandoned if cancelled. Raises OSError."""
    await trio.to_thread.run_sync(write_to, 1, data, abandon_on_cancel=True)
