"""A canvas that two peers draw on concurrently, point by point; the result is an SVG.

::

    python3 examples/canvas.py

prints::

    ada drew a roof of 3 points, grace a wall of 5 and a sun
    ada took the sun back, and both see the same
    <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100" fill="none">
      <polyline points="10,50 50,15 90,50" stroke="crimson" stroke-width="3"/>
      <polyline points="20,50 20,90 80,90 80,50 20,50" stroke="steelblue" stroke-width="2"/>
    </svg>

`--svg FILE` writes it to a file. A stroke is a map in the array `strokes`; its points are a nested array, so a stroke
grows at the other peer while it is being drawn. The position of the pen is awareness state, which is not stored.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import quoteattr

import trio

from nngkit.documents import Array, Document, DocumentPeer, Map

PATIENCE = 15  # seconds
ROOF = ((10, 50), (50, 15), (90, 50))
WALL = ((20, 50), (20, 90), (80, 90), (80, 50), (20, 50))
SUN = ((85, 10), (90, 15), (85, 20))


async def draw(canvas: Document, name: str, colour: str, width: int, points: Iterable[tuple[int, int]]) -> None:
    """Draw a stroke, one point at a time."""
    strokes = canvas.array("strokes")
    strokes.append(Map({"name": name, "colour": colour, "width": width, "points": Array()}))
    mine = strokes[-1]  # stays valid when others append
    for point in points:
        mine["points"].append(list(point))
        canvas.awareness.local = {"user": name, "pen": list(point)}
        await trio.sleep(0.002)
    canvas.awareness.local = None


def svg(canvas: Document) -> str:
    """Return the picture, with strokes sorted by name: the order of concurrent ones is arbitrary."""
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100" fill="none">']
    for stroke in sorted(canvas.array("strokes").plain(), key=lambda stroke: str(stroke["name"])):
        points = " ".join(f"{x},{y}" for x, y in stroke["points"])
        colour, width = quoteattr(str(stroke["colour"])), int(stroke["width"])
        lines.append(f'  <polyline points="{points}" stroke={colour} stroke-width="{width}"/>')
    return "\n".join([*lines, "</svg>"])


async def until_alike(one: Document, other: Document) -> None:
    with trio.fail_after(PATIENCE):
        while one.digest() != other.digest():  # noqa: ASYNC110 - there is no event for equality
            await trio.sleep(0.01)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write the picture to FILE")
    arguments = parser.parse_args()
    async with (
        DocumentPeer(listen="tcp://127.0.0.1:0", name="ada") as ada,
        DocumentPeer(dial=ada.address, name="grace") as grace,
    ):
        one, other = ada.open("house"), grace.open("house")
        await other.joined(PATIENCE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(draw, one, "roof", "crimson", 3, ROOF)
            nursery.start_soon(draw, other, "wall", "steelblue", 2, WALL)
            nursery.start_soon(draw, other, "sun", "gold", 4, SUN)
        await until_alike(one, other)
        points = {stroke["name"]: len(stroke["points"]) for stroke in one.array("strokes")}
        print(f"ada drew a roof of {points['roof']} points, grace a wall of {points['wall']} and a sun")
        strokes = one.array("strokes")
        del strokes[[stroke["name"] for stroke in strokes].index("sun")]
        await until_alike(one, other)
        print("ada took the sun back, and both see the same")
        print(svg(other))
        if arguments.svg is not None:
            arguments.svg.write_text(f"{svg(other)}\n")


trio.run(main)
