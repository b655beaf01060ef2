"""A canvas: two draw at once, one takes a stroke back, and both have the same picture; it is written as an SVG.

::

    python3 examples/canvas.py [FILE.svg]

prints::

    2 strokes, the same for both: yes
    undone by ada: the red one, and not what bob drew

A stroke is a map with a colour and a list of points, in the order in which they were drawn. Undo takes back our own
edits only. Without FILE.svg nothing is written.
"""

import sys
from pathlib import Path

import trio

from nngkit.documents import Document, DocumentPeer, Map


def draw(doc: Document, colour: str, *points: tuple[int, int]) -> None:
    doc.array("strokes").append(Map({"colour": colour, "points": [list(point) for point in points]}))


def svg(doc: Document) -> str:
    lines = [
        f'<polyline fill="none" stroke-width="3" stroke="{stroke["colour"]}" '
        f'points="{" ".join(f"{x},{y}" for x, y in stroke["points"])}"/>'
        for stroke in doc.array("strokes")
    ]
    return "\n".join(['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">', *lines, "</svg>"]) + "\n"


async def main() -> str:
    async with DocumentPeer(listen="tcp://127.0.0.1:0") as a, DocumentPeer(dial=a.address) as b:
        ada, bob = a.open("canvas"), b.open("canvas")
        await bob.joined(10)
        undo = ada.undo(ada.array("strokes"), window=0.0)  # 0.0: each stroke by itself
        draw(ada, "blue", (10, 10), (50, 30), (90, 10))
        draw(ada, "red", (10, 50), (90, 50))
        draw(bob, "green", (10, 90), (50, 70), (90, 90))
        undo.undo()
        with trio.fail_after(10):
            while ada.digest() != bob.digest() or len(ada.array("strokes")) != 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
        colours = sorted(stroke["colour"] for stroke in ada.array("strokes"))
        print(f"{len(colours)} strokes, the same for both: {'yes' if svg(ada) == svg(bob) else 'NO'}")
        print("undone by ada: the red one, and not what bob drew" if colours == ["blue", "green"] else colours)
        return svg(ada)


picture = trio.run(main)
if len(sys.argv) > 1:
    Path(sys.argv[1]).write_text(picture)
