"""A render farm: workers in a tree of processes draw the tiles of a picture; some are killed while they draw.

::

    python3 examples/render_farm.py

prints::

    a picture of 300 x 200 points in 96 tiles, and 6 workers in a tree
    3 of them were killed while they drew, and came back
    96 tiles, none missing, and the same picture as drawn alone: yes

and with ``--png picture.png`` writes the picture: a part of the Mandelbrot set, drawn by plain Python. ``--workers N``,
``--kills N`` and ``--points N`` (columns) make a larger farm.

The main process is the host and submits a job for each tile; `map` yields the tiles in order. A worker does one at a
time and joins below the host or below another worker, two at most below each. A tile whose worker dies is drawn by
another one. Nothing but the host needs to be known to a worker.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from multiprocessing.process import BaseProcess as Process
from pathlib import Path

import trio

from nngkit.cluster import Host, JobRun, Member

TILES = 12, 8  # columns and rows of tiles
DEPTH = 60  # iterations for the darkest points
CENTRE, WIDTH = -0.7436 + 0.1318j, 0.012  # of the complex plane
LIGHT = 1 - 0.12j  # direction that the hues follow
SEED = 7  # of the kills
PATIENCE = 20.0  # seconds for one tile


# ---- the picture -----------------------------------------------------------------------------------------------------


def tile(columns: int, rows: int, number: int) -> bytes:
    """Return the points of a tile as RGB, row by row."""
    across, down = TILES
    x0, x1 = columns * (number % across) // across, columns * (number % across + 1) // across
    y0, y1 = rows * (number // across) // down, rows * (number // across + 1) // down
    return b"".join(colour(columns, rows, x, y) for y in range(y0, y1) for x in range(x0, x1))


def colour(columns: int, rows: int, x: int, y: int) -> bytes:
    point = CENTRE + WIDTH * complex((x - columns / 2) / columns, (y - rows / 2) / columns)
    z, steps = 0j, 0
    while steps < DEPTH and abs(z) < 4:
        z, steps = z * z + point, steps + 1
    if steps == DEPTH:
        return b"\x10\x14\x1c"
    warm = steps / DEPTH
    side = (z * LIGHT.conjugate()).real > 0
    return bytes((int(40 + 215 * warm), int(60 + 130 * warm * (1.3 if side else 0.8)), int(90 + 100 * (1 - warm))))


def assemble(columns: int, rows: int, tiles: list[bytes]) -> bytes:
    """Return the whole picture from its tiles, row by row."""
    across, down = TILES
    found = bytearray()
    for row in range(down):
        height = rows * (row + 1) // down - rows * row // down
        widths = [columns * (each + 1) // across - columns * each // across for each in range(across)]
        for line in range(height):
            for column, width in enumerate(widths):
                found += tiles[row * across + column][3 * width * line : 3 * width * (line + 1)]
    return bytes(found)


def png(columns: int, rows: int, points: bytes) -> bytes:
    """Return a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + points[at : at + 3 * columns] for at in range(0, len(points), 3 * columns))
    head = struct.pack("!IIBBBBB", columns, rows, 8, 2, 0, 0, 0)  # 8 bits, RGB
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


# ---- the farm --------------------------------------------------------------------------------------------------------


PROCESSES = multiprocessing.get_context("forkserver")  # a worker begins with what the server has imported: at once


async def work(host: str, name: str) -> None:
    """Run one worker, until it is killed, or the program that started it has ended."""
    node = Member("farm", dial=host, listen="tcp://127.0.0.1:0", id=name, fanout=2)

    @node.work("tile")
    def draw(job: JobRun) -> bytes:  # a plain function: it runs in a thread, and the node goes on
        return tile(**json.loads(job.payload))

    parent = multiprocessing.parent_process()
    async with node:
        while parent is not None and parent.is_alive():  # noqa: ASYNC110 - no event for it
            await trio.sleep(1)


class Farm:
    """The worker processes."""

    def __init__(self, host: str, count: int) -> None:
        self.host = host
        self.killed = 0
        self.processes = {name: self.start(name) for name in (f"worker-{number}" for number in range(1, count + 1))}

    def start(self, name: str) -> Process:
        process = PROCESSES.Process(target=trio.run, args=(work, self.host, name), daemon=True)
        process.start()
        return process

    def kill(self, rng: random.Random) -> None:
        """Kill a worker with SIGKILL, and start it again."""
        name = rng.choice(sorted(self.processes))
        self.processes[name].kill()
        self.processes[name] = self.start(name)
        self.killed += 1

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()


def scenes(columns: int, rows: int) -> Iterator[bytes]:
    for number in range(TILES[0] * TILES[1]):
        yield json.dumps({"columns": columns, "rows": rows, "number": number}).encode()


async def main(options: argparse.Namespace) -> int:
    columns, rows = options.points, options.points * 2 // 3
    count, rng = TILES[0] * TILES[1], random.Random(SEED)
    print(f"a picture of {columns} x {rows} points in {count} tiles, and {options.workers} workers in a tree")
    async with Host("farm", listen="tcp://127.0.0.1:0", id="host", fanout=2) as host:
        farm = Farm(host.address, options.workers)
        try:
            tiles: list[bytes] = []
            began = time.monotonic()
            async for points in host.map("tile", scenes(columns, rows), in_flight=count, tries=20, timeout=PATIENCE):
                tiles.append(points)
                if farm.killed < options.kills and len(tiles) * (options.kills + 1) > count * (farm.killed + 1):
                    farm.kill(rng)
                if options.progress:
                    print(f"\r{len(tiles)} tiles, {time.monotonic() - began:.1f} s", end="", file=sys.stderr)
        finally:
            farm.end()
    print(f"{farm.killed} of them were killed while they drew, and came back")
    picture = assemble(columns, rows, tiles)
    alone = assemble(columns, rows, [tile(columns, rows, number) for number in range(count)])
    same = picture == alone
    print(f"{len(tiles)} tiles, none missing, and the same picture as drawn alone: {'yes' if same else 'no'}")
    if options.png is not None:
        options.png.write_bytes(png(columns, rows, picture))
    return 0 if same else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw a picture with processes, some of which are killed.")
    parser.add_argument("--png", type=Path, help="write the picture there")
    parser.add_argument("--workers", type=int, default=6, help="processes (%(default)s)")
    parser.add_argument("--kills", type=int, default=3, help="how many of them are killed (%(default)s)")
    parser.add_argument("--points", type=int, default=300, help="columns of the picture (%(default)s)")
    parser.add_argument("--progress", action="store_true", help="say on stderr how far it is")
    sys.exit(trio.run(main, parser.parse_args()))
