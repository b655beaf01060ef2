"""Output of the demo: a live board on a terminal, plain lines in a pipe or without ``rich``.

Both have one interface: ``say`` a line of the story, ``refresh`` periodically, ``finish`` with the checks. Colours
follow NO_COLOR (through rich), and a dumb terminal, or one without UTF-8, gets plain ASCII lines.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol

from _demo.board import PACE, Board, Row, State
from _demo.check import Check
from _demo.cluster_board import ClusterBoard

SPAN = 15.0  # seconds of the timeline at first; a longer demo compresses it
BARS = "▁▂▃▄▅▆▇█"
MOST_LINES = 14  # lines of the story below the board

STYLE = {
    State.STARTING: "cyan",
    State.UP: "green",
    State.KILLED: "red",
    State.FROZEN: "yellow",
    State.LEAVING: "magenta",
}


ROLES = {"host": "bold green", "member": "green", "killed": "red"}


class Screen(Protocol):
    """Interface of a screen."""

    def say(self, at: float, who: str, what: str, style: str = "") -> None: ...

    def refresh(self, now: float) -> None: ...

    def finish(self, checks: list[Check], seconds: float) -> None: ...

    def close(self) -> None: ...


def best_screen(board: Board) -> Screen:
    """Return the live board if the terminal supports it."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and encoding == "utf8":
        try:
            return Pretty(board)
        except ImportError:
            print("demo: plain lines, as rich is not installed: pip install 'nngkit[pretty]'", file=sys.stderr)
    return Plain()


def figure(check: Check) -> tuple[str, str]:
    """Return measurement and bound as text."""
    word = "at least" if check.least else "at most"
    return _number(check.measured, check.unit), f"{word} {_number(check.bound, check.unit)}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "never"
    return {"s": f"{value:.3f} s", "%": f"{value:.0f} %"}.get(unit, f"{value:.0f}")


def _sum(checks: list[Check], seconds: float) -> str:
    failed = sum(not check.ok for check in checks)
    result = f"{failed} of {len(checks)} checks failed" if failed else f"all {len(checks)} checks hold"
    return f"{result}, {seconds:.1f} s"


class Plain:
    """A line for each event."""

    def say(self, at: float, who: str, what: str, style: str = "") -> None:
        print(f"{at:6.2f} s  {who:<9} {what}", flush=True)

    def refresh(self, now: float) -> None:
        pass

    def finish(self, checks: list[Check], seconds: float) -> None:
        print()
        for check in checks:
            measured, bound = figure(check)
            print(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<36} {measured:>9}   ({bound})")
        print(f"\n{_sum(checks, seconds)}", flush=True)

    def close(self) -> None:
        pass


class Nothing(Plain):
    """No output, for ``--json``: main prints the result."""

    def say(self, at: float, who: str, what: str, style: str = "") -> None:
        pass

    def finish(self, checks: list[Check], seconds: float) -> None:
        pass


class Pretty:
    """A live table: a row for each provider with its calls as a timeline, the story below it."""

    def __init__(self, board: Board) -> None:
        from rich.console import Console
        from rich.live import Live

        self.board = board
        self.lines: list[tuple[float, str, str, str]] = []
        self.console = Console(highlight=False)
        # no redirection of other output, and no refresh thread
        self.live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self.live.start()

    def say(self, at: float, who: str, what: str, style: str = "") -> None:
        self.lines.append((at, who, what, style))
        self.refresh(self.board.started + at)

    def refresh(self, now: float) -> None:
        self.live.update(self._picture(now), refresh=True)

    def close(self) -> None:
        self.live.stop()

    def finish(self, checks: list[Check], seconds: float) -> None:
        from rich.table import Table
        from rich.text import Text

        self.close()
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for check in checks:
            measured, bound = figure(check)
            style = "green" if check.ok else "bold red"
            table.add_row(
                Text("✓" if check.ok else "✗", style),
                check.name,
                Text(measured, style, justify="right"),
                Text(bound, "dim"),
            )
        good = all(check.ok for check in checks)
        self.console.print()
        self.console.print(table)
        self.console.print()
        self.console.print(Text(_sum(checks, seconds), "bold green" if good else "bold red"))

    def _picture(self, now: float) -> Any:
        from rich.box import ROUNDED
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        board = self.board
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        for column in ("provider", "state"):
            table.add_column(column, no_wrap=True, width=8)
        table.add_column("calls", justify="right", width=5)
        cells = max(16, self.console.width - 4 - 9 - 9 - 6)
        seconds = max(SPAN, now - board.started) / cells
        table.add_column(f"calls, {cells * seconds:.0f} s", no_wrap=True, width=cells)
        for row in board.rows.values():
            answered = sum(each.ok for each in row.tries)
            table.add_row(
                row.label, Text(row.state, STYLE[row.state]), str(answered), self._timeline(row, now, cells, seconds)
            )
        head = Text.assemble(
            (f"{board.calls}", "bold"),
            " calls by name, ",
            (f"{board.failed} failed", "bold red" if board.failed else "green"),
            f", one every {PACE * 1000:.0f} ms",
        )
        panel = Panel(
            Group(head, Text(), table, *self._cluster(board.cluster, now, cells, seconds)),
            box=ROUNDED,
            title="nngkit: found, called, killed and dropped",
            subtitle=f"▄ answered  × no answer  ─ absent  {now - board.started:4.1f} s",
            border_style="dim",
            width=self.console.width,
        )
        rows = len(board.rows) + (len(board.cluster.nodes) + 3 if board.cluster.nodes else 0)
        room = max(3, min(MOST_LINES, self.console.height - rows - 8))  # Live cannot scroll
        story = [self._line(*line) for line in self.lines[-room:]]
        return Group(panel, *story)

    def _cluster(self, cluster: ClusterBoard, now: float, cells: int, seconds: float) -> list[Any]:
        """Return the second act: the nodes of the cluster, and the jobs that each has done."""
        from rich.table import Table
        from rich.text import Text

        if not cluster.nodes:
            return []
        new = cluster.new_host()
        head = Text.assemble((f"{len(cluster.answers)}", "bold"), " jobs by a cluster, host: ")
        head.append(cluster.host or "none", "bold green")
        if cluster.killed is not None:
            words = f"{new[0] - cluster.killed[0]:.2f} s after {cluster.killed[2]} was killed" if new else "killed"
            head.append(f", {words}", "bold yellow")
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
        for width in (8, 8, 5, cells):
            table.add_column(width=width, no_wrap=True, justify="right" if width == 5 else "left")
        for node in cluster.nodes.values():
            bars = self._bars(node.done, node.died, now, cells, seconds)
            table.add_row(node.name, Text(node.role, ROLES.get(node.role, "cyan")), str(len(node.done)), bars)
        return [Text(), head, Text(), table]

    def _bars(self, done: list[float], died: float | None, now: float, cells: int, seconds: float) -> Any:
        """Return the jobs of a node as a timeline."""
        from rich.text import Text

        counts = [0] * cells
        for at in done:
            counts[min(cells - 1, max(0, int((at - self.board.started) / seconds)))] += 1
        most = max(1, *counts)
        text = Text()
        for cell, count in enumerate(counts):
            middle = self.board.started + (cell + 0.5) * seconds
            if count:
                text.append(BARS[min(len(BARS) - 1, int(count / most * len(BARS)))], "green")
            else:
                text.append("─" if died is not None and died < middle <= now else " ", "dim red")
        return text

    def _line(self, at: float, who: str, what: str, style: str) -> Any:
        from rich.text import Text

        text = Text.assemble((f"{at:6.2f} s  ", "dim"), (f"{who:<9} ", "bold"), (what, style))
        text.truncate(self.console.width, overflow="ellipsis")
        return text

    def _timeline(self, row: Row, now: float, cells: int, seconds: float) -> Any:
        from rich.text import Text

        start = self.board.started
        answered, unanswered = [0] * cells, [0] * cells
        for each in row.tries:
            where = min(cells - 1, max(0, int((each.at - start) / seconds)))
            (answered if each.ok else unanswered)[where] += 1
        most = max(1.0, seconds / PACE)
        text = Text()
        for cell in range(cells):
            middle = start + (cell + 0.5) * seconds
            state = row.state_at(middle) if middle <= now else None
            if unanswered[cell]:
                text.append("×", "bold red")
            elif answered[cell]:
                height = min(len(BARS) - 1, int(answered[cell] / most * len(BARS)))
                text.append(BARS[height], "green")
            elif state is None:
                text.append(" ")
            else:
                text.append("·" if state in (State.UP, State.STARTING) else "─", f"dim {STYLE[state]}")
        return text
