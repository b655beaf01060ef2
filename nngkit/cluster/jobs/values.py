"""Limits of the host's queue and of a crew, their counters and jobs, and what they ask the node to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nngkit.cluster.jobs.messages import Message, Ref
from nngkit.instruments import Total

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
    """Limits of the host's queue. Times are in seconds."""

    jobs: int = 1_000_000  # unfinished jobs of the table; beyond, submitters wait
    bytes: int = 1024 * 1024 * 1024  # payloads and results in the table; beyond, submitters wait
    window: int = 10_000  # unfinished jobs of one submitter, while the table has room
    window_bytes: int = 64 * 1024 * 1024  # their payloads
    # payload of one job, and its result: larger ones are refused. An entry of the log holds one
    payload_bytes: int = 240 * 1024
    # runs of submitters that are remembered. Beyond, those without jobs go, the longest idle first
    sources: int = 10_000
    grace: float = 1.0  # time in which a lost job may be reported by its worker, before it is given to another
    # mean pause before the second try is half of it; it doubles with each try, up to `longest_backoff`
    backoff: float = 0.2
    longest_backoff: float = 30.0
    keep_results: float = 600.0  # time for which a result is kept for a submitter that does not come
    keep_keys: float = 3600.0  # time for which a job with a key is kept
    keys: int = 100_000  # such jobs at most
    forget_sources: float = 3600.0  # idle time after which a submitter without jobs is forgotten
    # the same while there are `sources`: before, a repeated message may still be on its way, whose jobs would be taken
    # for new ones
    settle_sources: float = 3.0


@dataclass(slots=True)
class WorkEffects:
    """Work for the node, in this order."""

    entries: list[bytes] = field(default_factory=list)  # entries for the log, to be proposed in this order
    down: list[tuple[int, Message]] = field(default_factory=list)  # pairs of a child link and a message for it
    # pairs of a node's id and a message for it: a submitter or a worker
    unicasts: list[tuple[str, Message]] = field(default_factory=list)
    ended: list[JobEnd] = field(default_factory=list)  # jobs that have ended


@dataclass(slots=True)
class WorkStats:
    """Counters of a host since its term began."""

    accepted: Total = 0
    """Jobs accepted."""
    known: Total = 0
    """Submissions whose key had a job."""
    granted: Total = 0
    """Grants."""
    finished: Total = 0
    """Jobs that ended with a result."""
    failed: Total = 0
    """Jobs that ended with an error that is not to be retried, or at their deadline."""
    dead: Total = 0
    """Jobs that ended as their tries were used up."""
    cancelled: Total = 0
    """Jobs that were cancelled."""
    retried: Total = 0
    """Failures after which a job is tried again."""
    lost: Total = 0
    """Grants whose worker may be dead."""
    reported: Total = 0
    """Lost and unknown jobs that a worker still has."""
    expired: Total = 0
    """Grants whose visibility was over."""
    returned: Total = 0
    """Grants that were returned without a start."""
    refused_results: Total = 0
    """Results under a void grant."""
    repeated: Total = 0
    """Submissions that were known already."""
    held_back: Total = 0
    """Submissions that were not accepted as the table, or the submitter's window, is full."""
    refused: Total = 0
    """Submissions that are never accepted."""
    forgotten: Total = 0
    """Finished jobs that were forgotten."""
    overdue: Total = 0
    """Finished jobs that were forgotten although their submitter had not come for the result."""


@dataclass(frozen=True, kw_only=True)
class CrewLimits:
    """Limits of a crew. Times are in seconds."""

    # work that waits beside running jobs: over a round trip to the host, so that slots are not idle
    ahead: float = 0.02
    most_ahead: int = 256  # jobs that wait at most, however short they are
    resend: float = 2.0  # time after which a result that was not taken is sent again
    retained: int = 10_000  # results that are kept; beyond, the node asks for no jobs
    retained_bytes: int = 64 * 1024 * 1024  # their bytes
    # parts of results that are kept until the result is taken; the oldest are dropped beyond
    part_bytes: int = 64 * 1024 * 1024
    passed: int = 1_000_000  # jobs that may be at children


@dataclass(slots=True)
class CrewStats:
    """Counters of a crew since its start."""

    granted: Total = 0
    """Jobs for the node's own workers."""
    passed: Total = 0
    """Jobs passed to children."""
    stale: Total = 0
    """Grants of a deposed host."""
    returned: Total = 0
    """Jobs returned without a start."""
    waited: Total = 0
    """Returned jobs that waited behind longer jobs than expected."""
    stopped: Total = 0
    """Jobs that were stopped."""
    expired: Total = 0
    """Jobs that the crew itself has stopped, after their timeout."""
    done: Total = 0
    """Results."""
    failed: Total = 0
    """Failures."""
    resent: Total = 0
    """Results sent again."""
    refused: Total = 0
    """Results that the host refused."""
    dropped_parts: Total = 0
    """Parts dropped beyond the limit."""
    bad: Total = 0
    """Invalid rows of children."""


@dataclass(slots=True, eq=False)
class CrewJob:
    """A job for the node's own workers. `attempt` counts its starts from 1.

    `visibility`: seconds without a sign of the node after which the host gives it to another; `timeout`: seconds that
    it may run, or None; `submitter`: id of the node that it comes from, where names are proven; `headers`: as CBOR.
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
    submitter: str | None = None
    headers: bytes | None = None
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
    """Work for the node."""

    start: list[CrewJob] = field(default_factory=list)  # jobs to start now
    # jobs whose handlers are to be cancelled; `released`, `done` or `failed` follows
    stop: list[CrewJob] = field(default_factory=list)
    up: list[Message] = field(default_factory=list)  # messages for the parent link, or for the host's queue at the host
    down: list[tuple[int, Message]] = field(default_factory=list)  # pairs of a child link and a message for it
