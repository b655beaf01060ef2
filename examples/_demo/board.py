"""Observations of the demo, and their checks. Pure: no clock, no process, no screen.

The story (../demo.py) records processes and their states in a ``Board``, the caller's reports add calls and tries, and
``verdict`` turns them into named checks, each with its measurement and bound. A call is a user's request; a try is one
request to one provider, and a call may take up to three tries. Times are ``time.monotonic()`` of this machine, which
all its processes share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from _demo.check import Check
from _demo.cluster_board import ClusterBoard, cluster_verdict

# Rounds of the daemon, short to keep the demo short; the daemon's defaults are the article's 2 s and 5 s.
INTERVAL = 0.5  # seconds between a round's end and the next one
DEADLINE = 0.3  # seconds a round waits for replies

PACE = 0.02  # seconds from call to call
BUDGET = 1.0  # seconds a call may take, all its tries together
TRIES = 3  # providers a call may try
FIRST_FOUND = 5.0  # seconds for the first three, including the caller's start
SLACK = 0.5  # seconds that a busy machine may add to each bound: processes wait that long for a core


class State(StrEnum):
    """State of a process, as set by the story."""

    STARTING = "starting"
    UP = "up"
    KILLED = "killed"
    FROZEN = "frozen"
    LEAVING = "goodbye"


@dataclass(frozen=True)
class Try:
    """One request to one provider."""

    at: float
    seconds: float
    ok: bool


@dataclass
class Row:
    """One provider: its states (``history``) and the requests it got."""

    label: str
    pid: int
    launched: float
    address: str = ""
    listening: float | None = None
    history: list[tuple[float, State]] = field(default_factory=list)
    tries: list[Try] = field(default_factory=list)

    @property
    def state(self) -> State:
        return self.history[-1][1]

    def state_at(self, time: float) -> State | None:
        """Return the state at a time; None before the launch."""
        return next((state for since, state in reversed(self.history) if since <= time), None)

    def found_after(self) -> float | None:
        """Return the seconds from listening to its first reply."""
        if self.listening is None:
            return None
        answered = min((each.at + each.seconds for each in self.tries if each.ok), default=None)
        # its line may be read after the first reply
        return None if answered is None else max(0.0, answered - self.listening)

    def found_again_after(self) -> float | None:
        """Return the seconds from its resumption to the first reply to a call sent since."""
        frozen = [since for since, state in self.history if state is State.FROZEN]
        resumed = [since for since, state in self.history if state is State.UP and frozen and since > frozen[-1]]
        if not resumed:
            return None
        answered = (each.at + each.seconds for each in self.tries if each.ok and each.at > resumed[0])
        return min((time - resumed[0] for time in answered), default=None)

    def last_call_after(self, state: State) -> float | None:
        """Return the seconds from its entry into ``state`` to the last request sent to it there; 0 without one."""
        spans = [(since, self.until(since)) for since, each in self.history if each is state]
        if not spans:
            return None
        since, until = spans[-1]
        return max((each.at - since for each in self.tries if since < each.at < until), default=0.0)

    def until(self, since: float) -> float:
        return min((time for time, _ in self.history if time > since), default=float("inf"))


@dataclass
class Board:
    """All data for the screen and the verdict."""

    started: float
    rows: dict[str, Row] = field(default_factory=dict)
    calls: int = 0
    failed: int = 0
    wrong: int = 0
    tries: dict[str, list[Try]] = field(default_factory=dict)  # by address
    slowest: float = 0.0
    most_tries: int = 0
    calling: tuple[float, float] | None = None  # times of the first call and the last
    held_up: float = 0.0  # maximum scheduling delay of the demo itself, in seconds
    ended_early: int = 0  # processes that ended unexpectedly
    cluster: ClusterBoard = field(default_factory=ClusterBoard)  # the second act
    reports: bool = False  # True if Spark makes a page
    reported: int | None = None  # providers in it
    report_seconds: float | None = None

    def launched(self, label: str, pid: int, now: float) -> Row:
        row = self.rows[label] = Row(label, pid, now)
        row.history.append((now, State.STARTING))
        return row

    def listening(self, label: str, address: str, now: float) -> None:
        row = self.rows[label]
        row.address, row.listening = address, now
        row.tries = self.tries.setdefault(address, [])  # it may have been called before its line is read
        self.became(label, State.UP, now)

    def became(self, label: str, state: State, now: float) -> None:
        self.rows[label].history.append((now, state))

    def call(self, report: Mapping[str, Any]) -> None:
        """Add one line of the caller's output."""
        self.calls += 1
        self.failed += not report["ok"]
        self.wrong += bool(report["wrong"])
        self.slowest = max(self.slowest, report["seconds"])
        self.most_tries = max(self.most_tries, len(report["tries"]))
        first, last = self.calling or (report["at"], report["at"])
        self.calling = min(first, report["at"]), max(last, report["at"])
        for each in report["tries"]:
            self.tries.setdefault(each["to"], []).append(Try(each["at"], each["seconds"], each["ok"]))

    def label_of(self, address: str) -> str:
        return next((row.label for row in self.rows.values() if row.address == address), address)


# Providers and what happens to them; the checks below refer to these.
REPORT = 60.0  # seconds for Spark to start and make its page; 12 on an idle machine
FIRST = ("answer-1", "answer-2", "answer-3")
KILLED, FREEZES, LEAVES = FIRST
LATE = "answer-4"


def verdict(board: Board) -> list[Check]:
    """Return the checks of a finished demo. It fails if any does."""
    next_round = INTERVAL + DEADLINE + SLACK  # a round may just be over
    two_misses = INTERVAL + 2 * DEADLINE + SLACK  # a missed round, and the re-ask
    return [
        Check("first providers found after", _slowest_found(board, FIRST), FIRST_FOUND, "s"),
        Check("last call to the killed one after", _last_call(board, KILLED, State.KILLED), SLACK, "s"),
        Check("last call to the frozen one after", _last_call(board, FREEZES, State.FROZEN), two_misses, "s"),
        Check("late one found after", _slowest_found(board, (LATE,)), next_round, "s"),
        Check("resumed one found after", _found_again(board, FREEZES), two_misses, "s"),
        Check("last call after a goodbye", _last_call(board, LEAVES, State.LEAVING), SLACK, "s"),
        Check("failed calls", board.failed, 0),
        Check("wrong answers", board.wrong, 0),
        Check("slowest call", board.slowest if board.calls else None, BUDGET, "s"),
        Check("most providers tried by a call", board.most_tries if board.calls else None, TRIES),
        Check("calls made, of those due", _share_of_due(board), 80, "%", least=True),
        *cluster_verdict(board.cluster),
        Check("processes that ended early", board.ended_early, 0),
        *_page(board),
    ]


def _page(board: Board) -> list[Check]:
    if not board.reports:
        return []
    providers = len(FIRST) + 1
    return [
        Check("providers in Spark's report", board.reported, providers, least=True),
        Check("Spark's report made in", board.report_seconds, REPORT, "s"),
    ]


def _slowest_found(board: Board, labels: Iterable[str]) -> float | None:
    """Return None if one of them was never found."""
    slowest = 0.0
    for label in labels:
        after = board.rows[label].found_after() if label in board.rows else None
        if after is None:
            return None
        slowest = max(slowest, after)
    return slowest


def _found_again(board: Board, label: str) -> float | None:
    return board.rows[label].found_again_after() if label in board.rows else None


def _last_call(board: Board, label: str, state: State) -> float | None:
    return board.rows[label].last_call_after(state) if label in board.rows else None


def _share_of_due(board: Board) -> float | None:
    if board.calling is None:
        return None
    first, last = board.calling
    return 100 * board.calls / max(1.0, (last - first) / PACE)
