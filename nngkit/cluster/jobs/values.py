"""Limits of the host's queue and of a crew, their counters and jobs, and what they ask the node to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nngkit.cluster.jobs.messages import Message, Ref

__all__ = [
    "CANCELLED",
    "DELAYED",
    "ENTRY_BYTES",
    "FINISHING",
    "FORGETTING",
    "GRANTED",
    "LOST",
    "QUEUED",
    "RECORDING",
    "UNKNOWN",
    "CrewEffects",
    "CrewJob",
    "CrewLimits",
    "CrewStats",
    "JobEnd",
    "WorkEffects",
    "WorkLimits",
    "WorkStats",
]

QUEUED: Final = 0  # in a queue
DELAYED: Final = 1  # until its delay or the pause after a failure is over
RECORDING: Final = 2  # its next start is being recorded
GRANTED: Final = 3  # given to a worker, or on the way to one
LOST: Final = 4  # granted over a link that is down: a worker may still report it
UNKNOWN: Final = 5  # from an earlier term: a worker may still report it
FINISHING: Final = 6  # its end is proposed
FORGETTING: Final = 7  # finished, and to be forgotten: that is proposed

CANCELLED: Final = 3  # index of OUTCOMES
ENTRY_BYTES: Final = 192 * 1024  # payloads in one entry of the log: with all columns, under 256 KiB


class JobEnd(NamedTuple):
    """End of a job, for the journal. Times are wall clock seconds; ``started`` is 0.0 for a job that never started.

    ``outcome``: "result", "failed", "dead" or "cancelled". ``id``: its number in the cluster. ``result``: empty unless
    the outcome is "result"; ``error``: kind and text, empty with a result.
    """

    id: int
    kind: str
    key: bytes | None
    submitter: str
    worker: str
    outcome: str
    error: tuple[str, str]
    tries: int
    term: int
    queued: float
    started: float
    finished: float
    payload: bytes
    result: bytes


@dataclass(frozen=True, kw_only=True)
class WorkLimits:
    """Limits of the host's queue. Times are in seconds.

    Attributes:
        jobs: Unfinished jobs of the table; beyond, submitters wait.
        bytes: Payloads and results in the table; beyond, submitters wait.
        window: Unfinished jobs of one submitter, while the table has room; `window_bytes`: their payloads.
        payload_bytes: Payload of one job, and its result: larger ones are refused. An entry of the log holds one.
        sources: Runs of submitters that are remembered. Beyond, those without jobs go, the longest idle first.
        grace: Time in which a lost job may be reported by its worker, before it is given to another.
        backoff: Mean pause before the second try is half of it; it doubles with each try, up to `longest_backoff`.
        keep_results: Time for which a result is kept for a submitter that does not come.
        keep_keys: Time for which a job with a key is kept; `keys`: at most so many.
        forget_sources: Idle time after which a submitter without jobs is forgotten.
        settle_sources: The same while there are `sources`: before, a repeated message may still be on its way, whose
            jobs would be taken for new ones.
        ends: Report the ends of jobs in the effects.
    """

    jobs: int = 1_000_000
    bytes: int = 1024 * 1024 * 1024
    window: int = 10_000
    window_bytes: int = 64 * 1024 * 1024
    payload_bytes: int = 240 * 1024
    sources: int = 10_000
    grace: float = 1.0
    backoff: float = 0.2
    longest_backoff: float = 30.0
    keep_results: float = 600.0
    keep_keys: float = 3600.0
    keys: int = 100_000
    forget_sources: float = 3600.0
    settle_sources: float = 3.0
    ends: bool = True


@dataclass(slots=True)
class WorkEffects:
    """Work for the node, in this order.

    Attributes:
        entries: Entries for the log, to be proposed in this order.
        down: Pairs of a child link and a message for it.
        unicasts: Pairs of a node's id and a message for it: a submitter or a worker.
        ended: Jobs that have ended.
    """

    entries: list[bytes] = field(default_factory=list)
    down: list[tuple[int, Message]] = field(default_factory=list)
    unicasts: list[tuple[str, Message]] = field(default_factory=list)
    ended: list[JobEnd] = field(default_factory=list)


@dataclass(slots=True)
class WorkStats:
    """Counters of a host since its term began.

    Attributes:
        accepted: Jobs accepted.
        known: Submissions whose key had a job.
        granted: Grants.
        finished: Jobs that ended with a result.
        failed: Jobs that ended with an error that is not to be retried, or at their deadline.
        dead: Jobs that ended as their tries were used up.
        cancelled: Jobs that were cancelled.
        retried: Failures after which a job is tried again.
        lost: Grants whose worker may be dead.
        reported: Lost and unknown jobs that a worker still has.
        expired: Grants whose visibility was over.
        returned: Grants that were returned without a start.
        refused_results: Results under a void grant.
        repeated: Submissions that were known already.
        held_back: Submissions that were not accepted as the table, or the submitter's window, is full.
        refused: Submissions that are never accepted.
        forgotten: Finished jobs that were forgotten.
        overdue: Finished jobs that were forgotten although their submitter had not come for the result.
    """

    accepted: int = 0
    known: int = 0
    granted: int = 0
    finished: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    lost: int = 0
    reported: int = 0
    expired: int = 0
    returned: int = 0
    refused_results: int = 0
    repeated: int = 0
    held_back: int = 0
    refused: int = 0
    forgotten: int = 0
    overdue: int = 0


@dataclass(frozen=True, kw_only=True)
class CrewLimits:
    """Limits of a crew. Times are in seconds.

    Attributes:
        ahead: Work that waits beside running jobs: over a round trip to the host, so that slots are not idle.
        most_ahead: Jobs that wait at most, however short they are.
        resend: Time after which a result that was not taken is sent again.
        retained: Results that are kept; beyond, the node asks for no jobs. `retained_bytes`: their bytes.
        part_bytes: Parts of results that are kept until the result is taken; the oldest are dropped beyond.
        passed: Jobs that may be at children.
    """

    ahead: float = 0.02
    most_ahead: int = 256
    resend: float = 2.0
    retained: int = 10_000
    retained_bytes: int = 64 * 1024 * 1024
    part_bytes: int = 64 * 1024 * 1024
    passed: int = 1_000_000


@dataclass(slots=True)
class CrewStats:
    """Counters of a crew since its start.

    Attributes:
        granted: Jobs for the node's own workers.
        passed: Jobs passed to children.
        stale: Grants of a deposed host.
        returned: Jobs returned without a start; `waited`: those that waited behind longer jobs than expected.
        stopped: Jobs that were stopped; `expired`: by the crew itself, after their timeout.
        done: Results; `failed`: failures.
        resent: Results sent again.
        refused: Results that the host refused.
        dropped_parts: Parts dropped beyond the limit.
        bad: Invalid rows of children.
    """

    granted: int = 0
    passed: int = 0
    stale: int = 0
    returned: int = 0
    waited: int = 0
    stopped: int = 0
    expired: int = 0
    done: int = 0
    failed: int = 0
    resent: int = 0
    refused: int = 0
    dropped_parts: int = 0
    bad: int = 0


@dataclass(slots=True, eq=False)
class CrewJob:
    """A job for the node's own workers. `attempt` counts its starts from 1.

    `visibility`: seconds without a sign of the node after which the host gives it to another; `timeout`: seconds that
    it may run, or None.
    """

    serial: int
    term: int
    fence: int
    attempt: int
    kind: str
    visibility: float
    stream: bool
    payload: bytes
    timeout: float | None = None
    granted: float = field(default=0.0, init=False)
    started: float = field(default=0.0, init=False)
    renewed: float = field(default=0.0, init=False)  # when the host was last told that it is here
    places: int = field(default=0, init=False)  # parts so far

    def under(self, ref: Ref) -> bool:
        """Return True if it is the job of a grant, under that grant."""
        return self.serial == ref.serial and self.term == ref.term and self.fence == ref.fence

    @property
    def ref(self) -> Ref:
        """The grant."""
        return Ref(self.serial, self.term, self.fence, self.attempt)


@dataclass(slots=True)
class CrewEffects:
    """Work for the node.

    Attributes:
        start: Jobs to start now.
        stop: Jobs whose handlers are to be cancelled; `released`, `done` or `failed` follows.
        up: Messages for the parent link, or for the host's queue at the host.
        down: Pairs of a child link and a message for it.
    """

    start: list[CrewJob] = field(default_factory=list)
    stop: list[CrewJob] = field(default_factory=list)
    up: list[Message] = field(default_factory=list)
    down: list[tuple[int, Message]] = field(default_factory=list)
