"""`nngkit discover --watch`: a table on a terminal, redrawn at each change; elsewhere the lines of `nngkit watch`."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import time
from typing import Final

import trio

from nngkit.cli.discovery.following import Following, following
from nngkit.cli.discovery.watch import print_changes
from nngkit.cli.streams.line_writer import LineWriter, printed, to_stdout
from nngkit.cli.streams.output import columns, cut, span, state_text, utc, wants_colour
from nngkit.cli.streams.signals import until_signal
from nngkit.cli.streams.stderr import say

CLEAR: Final = "\033[H\033[J"
REDRAW: Final = 1.0  # seconds: the column FOR counts them
QUIET: Final = 0.05  # seconds without a change before a redraw
QUEUE: Final = 1 << 20  # bytes of tables queued for a slow terminal


async def show_live(arguments: argparse.Namespace) -> int:
    """Show the providers until a signal; return the exit code."""
    if arguments.json or sys.stdout is None or not sys.stdout.isatty():
        return await print_changes(arguments)
    lines = to_stdout(QUEUE)
    colour = wants_colour(sys.stdout)

    async def work() -> None:
        async with printed(lines), following(arguments, _say, lambda event: None) as follow:
            while True:
                await _draw(follow, lines, colour)
                with trio.move_on_after(REDRAW):
                    await follow.settled(QUIET)

    return await until_signal(work)


async def _draw(follow: Following, lines: LineWriter, colour: bool) -> None:
    width, height = shutil.get_terminal_size()
    text = table(follow, time.monotonic(), time.time(), width, height - 1, colour)
    lines.put(f"{CLEAR}{text}")
    await lines.finish(math.inf)  # a stalled terminal gets the newest table next, not all of them


def table(follow: Following, now: float, wall: float, width: int, height: int, colour: bool) -> str:
    """Format the view: a line of counts, and as many providers as fit. Lines have `width` characters at most."""
    rows = follow.view.rows()
    usable = sum(map(len, follow.view.usable().values()))
    stale = "" if follow.fresh else "  (no daemon answers: last known state)"
    head = f"{utc(wall)}  {len(rows)} providers, {usable} usable{stale}"
    fits = max(0, height - 2)
    shown = rows if len(rows) <= fits else rows[: max(0, fits - 1)]
    cells = [
        (
            event.name,
            event.provider.address,
            state_text(event.new, colour),
            span(now - since),
            event.reason.value,
            event.provider.zone or "-",
            str(event.provider.priority),
            str(event.provider.weight),
        )
        for event, since in shown
    ]
    names = ("NAME", "ADDRESS", "STATE", "FOR", "REASON", "ZONE", "PRIORITY", "WEIGHT")
    text = [head, *columns(names, cells, colour).splitlines()]
    if len(shown) < len(rows):
        text.append(f"... and {len(rows) - len(shown)} more")
    return "\n".join(cut(line, width) for line in text)


def _say(text: str) -> None:
    say("nngkit discover", text)
