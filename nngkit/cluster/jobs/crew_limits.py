"""Limits and counters of a crew, its jobs, and what it asks the node to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nngkit.cluster.jobs.messages import Message, Ref

__all__ = ["CrewEffects", "CrewJob", "CrewLimits", "CrewStats"]


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


class CrewJob:
    """A job for the node's own workers. `attempt` counts its starts from 1.

    `visibility`: seconds without a sign of the node after which the host gives it to another; `timeout`: seconds that
    it may run, or None. `alone`: it was at a worker that was lost, and runs without company.
    """

    __slots__ = (
        "alone",
        "attempt",
        "fence",
        "granted",
        "kind",
        "payload",
        "places",
        "renewed",
        "serial",
        "started",
        "stream",
        "term",
        "timeout",
        "visibility",
    )

    def __init__(
        self,
        serial: int,
        term: int,
        fence: int,
        attempt: int,
        kind: str,
        visibility: float,
        stream: bool,
        payload: bytes,
        timeout: float | None = None,
    ) -> None:
        self.serial, self.term, self.fence, self.attempt = serial, term, fence, attempt
        self.kind, self.visibility, self.stream, self.payload = kind, visibility, stream, payload
        self.timeout = timeout
        self.alone = not attempt
        self.granted = self.started = 0.0
        self.renewed = 0.0  # when the host was last told that it is here
        self.places = 0  # parts so far

    @property
    def ref(self) -> Ref:
        """The grant."""
        return Ref(self.serial, self.term, self.fence, self.attempt)


class CrewEffects:
    """Work for the node.

    Attributes:
        start: Jobs to start now.
        stop: Jobs whose handlers are to be cancelled; `released`, `done` or `failed` follows.
        up: Messages for the parent link, or for the host's queue at the host.
        down: Pairs of a child link and a message for it.
    """

    __slots__ = ("down", "start", "stop", "up")

    def __init__(self) -> None:
        self.start: list[CrewJob] = []
        self.stop: list[CrewJob] = []
        self.up: list[Message] = []
        self.down: list[tuple[int, Message]] = []
