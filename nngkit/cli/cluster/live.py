"""`nngkit cluster status|tree`: once, or with `--watch` redrawn on a terminal; elsewhere printed at each change."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec.structs import replace

from nngkit.cli.streams.line_writer import LineWriter, printed, to_stdout
from nngkit.cli.streams.output import coloured, columns, cut, json_line, utc, wants_colour
from nngkit.errors import Broken, TimedOut

if TYPE_CHECKING:
    from nngkit.cluster import ClusterStatus, ClusterTree, Member

CLEAR: Final = "\033[H\033[J"
QUEUE: Final = 16 << 20  # bytes queued for a slow reader
BOLD, GREEN, RED = "1", "32", "31"


async def show(node: Member, arguments: argparse.Namespace) -> None:
    """Print the state or the tree. Raises TimedOut, Broken; with `--watch` only if the first answer fails."""
    lines = to_stdout(QUEUE)
    terminal = sys.stdout is not None and sys.stdout.isatty() and not arguments.json
    live = arguments.watch and terminal
    colour = wants_colour(sys.stdout)
    async with printed(lines):
        fields, text = await _look(node, arguments, colour)
        before: Any = None
        fresh = True
        while True:
            if live:
                _draw(lines, text, fresh)
            elif fields != before:
                lines.put(json_line({"time": utc(time.time()), **fields}) if arguments.json else "\n".join(text))
            before = fields
            await lines.finish(math.inf)  # a stalled terminal gets the newest text next, not all of them
            if not arguments.watch:
                return
            await trio.sleep(arguments.interval)
            try:
                fields, text = await _look(node, arguments, colour)
                fresh = True
            except (TimedOut, Broken):
                fresh = False  # the cluster elects a host, or this node looks for a parent


def _draw(lines: LineWriter, text: list[str], fresh: bool) -> None:
    width, height = shutil.get_terminal_size()
    stale = "" if fresh else "  (no host answers: last known state)"
    rows = [f"{utc(time.time())}{stale}", *text]
    if len(rows) >= height:
        rows = [*rows[: max(1, height - 2)], f"... and {len(rows) - max(1, height - 2)} more lines"]
    lines.put(CLEAR + "\n".join(cut(row, width) for row in rows))


async def _look(node: Member, arguments: argparse.Namespace, colour: bool) -> tuple[dict[str, Any], list[str]]:
    """Ask the host; return the answer as JSON has it, and as lines."""
    tree = without(await node.tree(arguments.timeout), node.id)
    if arguments.action == "tree":
        status = await node.status(arguments.timeout) if arguments.watch and not arguments.json else None
        return tree.as_dict(), tree_lines(tree, status, colour)
    status = await node.status(arguments.timeout)
    depth = max((member.depth for member in tree.members), default=0)
    status = replace(status, members=len(tree.members), depth=depth)
    return status.as_dict(), status_lines(status, colour)


def without(tree: ClusterTree, id: str) -> ClusterTree:
    """Return the tree without a node that has no children: that of the command."""
    return replace(tree, members=tuple(member for member in tree.members if member.id != id))


def head(status: ClusterStatus, colour: bool) -> str:
    """Return the first line of the state."""
    grants = "" if status.grants else coloured("  grants no work: it has no majority of the voters", RED, colour)
    host = coloured(f"host {status.host}", BOLD, colour)
    members = f"{status.members} member{'' if status.members == 1 else 's'}"
    return f"{status.cluster}  {host} of term {status.term}  {members}, depth {status.depth}{grants}"


def status_lines(status: ClusterStatus, colour: bool) -> list[str]:
    """Format the state: the host, a table of the voters, a table of the jobs."""
    lines = [head(status, colour)]
    if status.voters:
        rows = [
            (one.id, one.address, coloured(*(("connected", GREEN) if one.connected else ("away", RED)), colour))
            for one in status.voters
        ]
        lines += ["", *columns(("VOTER", "ADDRESS", "STATE"), rows, colour).splitlines()]
    counts = [
        (one.kind or "all", *map(str, (one.waiting, one.running, one.done, one.failed, one.dead, one.cancelled)))
        for one in status.jobs
    ]
    if counts:
        names = ("JOBS", "WAITING", "RUNNING", "DONE", "FAILED", "DEAD", "CANCELLED")
        lines += ["", *columns(names, counts, colour).splitlines()]
    if status.refused:
        lines += ["", "refused: " + ", ".join(f"{count} {code}" for code, count in sorted(status.refused.items()))]
    return lines


def tree_lines(tree: ClusterTree, status: ClusterStatus | None, colour: bool) -> list[str]:
    """Format the tree, the host in bold; `status` adds a line on the cluster and its jobs above."""
    lines = list(tree.lines())
    if lines:
        lines[0] = coloured(lines[0], BOLD, colour)
    if status is None:
        return lines
    jobs = ""
    if status.jobs:
        every = status.jobs[0]
        jobs = f"jobs: {every.waiting} waiting, {every.running} running, {every.done} done"
    return [head(replace(status, members=len(tree.members)), colour), jobs, "", *lines]
