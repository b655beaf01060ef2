"""Observations of the demo's second act, and their checks: a host dies, and its client does not notice. Pure.

The story (../demo.py) adds the reports of the nodes (node.py) and the time of the kill. Times are ``time.monotonic()``
of this machine, which all its processes share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from _demo.check import Check

VOTERS = ("ann", "ben", "cat")
CLIENT = "client"
PACE = 0.02  # seconds from job to job
JOB = 0.01  # seconds that a job takes
MESSAGE_PACE = 0.05  # seconds from message to message
COMPLETE = 8.0  # seconds for the client to start and to find all voters: 1 on an idle machine
LEASE = 0.5  # seconds without the host until an election begins, the default of a cluster
ELECTION = 0.5  # seconds for the election: a few messages
SLACK = 0.5  # seconds that a busy machine may add
GRACE = 1.0  # seconds that a dead worker's jobs wait for its report, before they are given to another


@dataclass
class Node:
    """One voter as it reports itself."""

    name: str
    pid: int
    role: str = "starting"
    heard: int = 0
    done: list[float] = field(default_factory=list)  # times at which it ended a job
    died: float | None = None


@dataclass
class ClusterBoard:
    """All data of the second act."""

    launched: float | None = None
    complete: float | None = None  # time at which all nodes had joined
    nodes: dict[str, Node] = field(default_factory=dict)
    hosts: list[tuple[float, int, str]] = field(default_factory=list)  # time, term, name
    killed: tuple[float, int, str] | None = None  # time, term, name
    submitted: int | None = None  # jobs, once the client has ended its submissions
    sent: int | None = None  # messages
    answers: list[float] = field(default_factory=list)  # times of the jobs' ends at the client
    slowest: float = 0.0
    failed: int = 0
    wrong: int = 0

    @property
    def host(self) -> str | None:
        """Name of the latest host."""
        return max(self.hosts, key=lambda each: each[1])[2] if self.hosts else None

    def report(self, name: str, fields: Mapping[str, Any]) -> None:
        """Add one line of a node's output."""
        node = self.nodes.get(name)
        if node is not None and "role" in fields:
            node.role = fields["role"]
            if node.role == "host":
                self.hosts.append((fields["at"], fields["term"], name))
        elif node is not None and "heard" in fields:
            node.heard = fields["heard"]
        elif node is not None and "done" in fields:
            node.done.append(fields["at"])
        elif "complete" in fields:
            self.complete = fields["at"]
        elif "submitted" in fields:
            self.submitted, self.sent = fields["submitted"], fields["sent"]
        elif "job" in fields:
            self.answers.append(fields["at"])
            self.failed += not fields["ok"]
            self.wrong += bool(fields.get("wrong"))
            self.slowest = max(self.slowest, fields["seconds"])

    def kill(self, name: str, now: float) -> None:
        """Note that the host was killed."""
        term = max((term for _, term, of in self.hosts if of == name), default=0)
        self.killed = now, term, name
        self.nodes[name].died = now
        self.nodes[name].role = "killed"

    def new_host(self) -> tuple[float, int, str] | None:
        """Return the first host after the kill: time, term, name."""
        if self.killed is None:
            return None
        return next((each for each in self.hosts if each[1] > self.killed[1]), None)

    def survivors(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.died is None]

    def all_heard(self) -> bool:
        """Return True if all survivors have heard all messages."""
        return self.sent is not None and all(node.heard >= self.sent for node in self.survivors())


def cluster_verdict(board: ClusterBoard) -> list[Check]:
    """Return the checks of the second act."""
    began, ended, new = board.launched, board.complete, board.new_host()
    formed = None if began is None or ended is None else ended - began
    replaced = None if new is None or board.killed is None else new[0] - board.killed[0]
    lost = None if board.submitted is None else board.submitted - len(board.answers) + board.failed
    missed = None if not board.sent else max(max(board.sent - node.heard, 0) for node in board.survivors())
    waited = board.slowest if board.answers else None
    return [
        Check("cluster complete after", formed, COMPLETE, "s"),
        Check("new host after", replaced, LEASE + ELECTION + SLACK, "s"),
        Check("jobs lost", lost, 0),
        Check("wrong results", board.wrong if board.answers else None, 0),
        Check("longest wait for a job", waited, LEASE + ELECTION + GRACE + 2 * SLACK, "s"),
        Check("messages missed by a survivor", missed, 0),
        Check("jobs done, of those due", _share_of_due(board), 80, "%", least=True),
    ]


def _share_of_due(board: ClusterBoard) -> float | None:
    if board.submitted is None or len(board.answers) < 2:
        return None
    return 100 * len(board.answers) / max(1.0, (max(board.answers) - min(board.answers)) / PACE)
