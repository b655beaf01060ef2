"""The submitter's side of jobs: keeps them until the host has accepted them, and asks until they have ended. Pure.

::

    submitter = Submitter("ada", epoch)
    number = submitter.submit("render", b"scene", now, key=b"k1", priority=5)    # raises Full
    submitter.attached(term, now)               # the node has a path to the host of `term`; again after each change
    submitter.detached()
    submitter.receive(message, now)             # unicasts of the host: Accepted, Finished, Missing, Refused, ...
    submitter.cancel(number)
    submitter.abandon(number)                   # of a job with a key: a later submission under it is to find the job
    if now >= submitter.wake_at:
        submitter.tick(now)
    effects = submitter.take(now)               # sends: messages for the host ("" as a unicast's `to`); events

| event | meaning |
|---|---|
| JobAccepted(numbers, serials) | a majority of the voters has these jobs: they will end |
| JobEnded(number, outcome, result, ...) | outcome as in OUTCOMES, or "refused", or "lost" |
| JobPart(number, attempt, place, data) | the next part; `place` 0 with a higher attempt begins anew, a jump is a gap |
| JobProgressed(number, attempt, fraction) | |

Invariants:

1. A submission is sent until it is accepted, refused or cancelled; the host knows repeated ones by their number.
2. Each number has exactly one JobEnded.
3. Unfinished jobs that were sent are within the host's window; the others wait here, within `limits`.
4. `floor` is the lowest unfinished number: the host may forget what is below.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from nngkit.cluster.jobs import messages
from nngkit.cluster.log_clock import NEVER
from nngkit.errors import ConfigError, Full

FIRST_WINDOW = 1000, 4 * 1024 * 1024  # jobs and bytes that may be sent before the host has told the window


@dataclass(frozen=True, kw_only=True)
class SubmitLimits:
    """Limits of a submitter."""

    jobs: int = 100_000  # unfinished jobs
    bytes: int = 256 * 1024 * 1024  # their payloads, of those that are not accepted yet
    payload_bytes: int = 240 * 1024  # payload of one job
    # seconds after which a submission that was not accepted is sent again, and the host is asked for ends
    resend: float = 2.0
    batch: int = 500  # jobs in one message


class JobAccepted(NamedTuple):
    """These jobs will end: a majority of the voters has them. ``serials``: their numbers in the cluster."""

    numbers: list[int]
    serials: list[int]


class JobEnded(NamedTuple):
    """A job has ended. ``outcome``: as in OUTCOMES; "refused": never accepted; "lost": the voters lost their memory."""

    number: int
    outcome: str
    result: bytes = b""
    error: str = ""
    text: str = ""
    tries: int = 0
    worker: str = ""


@dataclass(slots=True)
class SubmitEffects:
    """Work for the node: `sends` for the host, `events` for the program. `room`: a `submit` may succeed again."""

    sends: list[messages.Message] = field(default_factory=list)
    events: list[JobAccepted | JobEnded | messages.JobPart | messages.JobProgressed] = field(default_factory=list)
    room: bool = False


@dataclass(slots=True, eq=False)
class _Job:
    number: int
    spec: messages.Spec
    payload: bytes
    key: bytes | None
    size: int
    sent: float = -1.0  # not yet
    accepted: bool = False
    cancelled: bool = False
    term: int = 0  # in which it was accepted
    attempt: int = 0  # this and `place`: of the next part
    place: int = 0


class Submitter:
    """Jobs of one run of a node. `epoch` differs between its runs."""

    def __init__(self, id: str, epoch: int, limits: SubmitLimits | None = None) -> None:
        self.id, self.epoch = id, epoch
        self.limits = limits or SubmitLimits()
        self.wake_at = NEVER
        self.floor = 1
        self._next = 1
        self._jobs: dict[int, _Job] = {}
        self._unsent: deque[_Job] = deque()
        self._payload_bytes = 0
        self._window_jobs, self._window_bytes = FIRST_WINDOW
        self._out_jobs = self._out_bytes = 0  # sent and unfinished
        self._unaccepted = 0  # sent and not accepted
        self._attached = False
        self._was_full = False
        self._received: list[int] = []
        self._cancels: list[int] = []
        self._abandoned: dict[tuple[str, bytes], list[int]] = {}
        self._specs: dict[messages.Spec, messages.Spec] = {}
        self._effects = SubmitEffects()

    @property
    def unfinished(self) -> int:
        """Jobs that have not ended."""
        return len(self._jobs)

    # ---- the program

    def submit(self, kind: str, payload: bytes, now: float, *, key: bytes | None = None, **properties: Any) -> int:
        """Return the number of a new job, with the properties of a Spec.

        Raises Full beyond the limits, ConfigError for an invalid property.
        """
        limits = self.limits
        if len(self._jobs) >= limits.jobs or self._payload_bytes + len(payload) > limits.bytes:
            self._was_full = True
            raise Full(f"{len(self._jobs)} jobs are unfinished (`jobs` is {limits.jobs}, `bytes` {limits.bytes})")
        spec = messages.Spec(kind, **properties)
        known = self._specs.get(spec)
        if known is None:
            if (wrong := messages.check_spec(spec)) is not None:
                raise ConfigError("job", wrong, spec)
            if len(self._specs) >= 1000:  # a program that makes a new spec for each job gains nothing from them
                self._specs.clear()
            known = self._specs[spec] = spec
        if len(payload) > limits.payload_bytes:
            raise ConfigError("payload", f"{len(payload)} bytes are over {limits.payload_bytes}")
        if key is not None and not 0 < len(key) <= messages.MOST_KEY:
            raise ConfigError("key", f"a key has 1 to {messages.MOST_KEY} bytes", key)
        number = self._next
        self._next = number + 1
        job = _Job(number, known, payload, key, known.sized((payload,)))
        self._jobs[number] = job
        self._unsent.append(job)
        self._payload_bytes += job.size
        return number

    def cancel(self, number: int) -> None:
        """Cancel a job, if it has not ended: JobEnded follows, "cancelled" or what was faster."""
        job = self._jobs.get(number)
        if job is None or job.cancelled:
            return
        job.cancelled = True
        if job.sent < 0:
            self._end(job, JobEnded(number, "cancelled"))
        elif job.accepted:
            self._cancels.append(number)
        if job.key is not None:
            for other in self._abandoned.pop((job.spec.kind, job.key), ()):  # they would keep the job going
                self.cancel(other)

    def abandon(self, number: int) -> None:
        """Give up a job whose submission was cut off. One with a key that was sent goes on: a retry finds it.

        Cancelling such a retry ends the interest of the abandoned number in the job, too.
        """
        job = self._jobs.get(number)
        if job is None:
            return
        if job.sent < 0:
            self._end(job, JobEnded(number, "cancelled"))
        elif job.key is None:
            self.cancel(number)
        else:
            self._abandoned.setdefault((job.spec.kind, job.key), []).append(number)

    # ---- the network

    def attached(self, term: int, now: float) -> None:
        """Send again what was not accepted, and ask for ends: the host may be another, or messages may be lost."""
        self._attached = True
        self._resend(now, 0.0)

    def detached(self) -> None:
        """Hold back what is for the host, until the node is attached again."""
        self._attached = False

    def receive(self, message: messages.Message, now: float) -> None:
        """Handle a unicast of the host; one of an earlier run, or for another, is ignored."""
        if getattr(message, "epoch", None) != self.epoch:
            return
        if isinstance(message, messages.Accepted):
            self._accepted(message)
        elif isinstance(message, messages.Finished):
            self._finished(message)
        elif isinstance(message, messages.Missing):
            for number in message.numbers:
                job = self._jobs.get(number)
                # a host that is deposed and does not know it yet may not know jobs of the next term
                if job is not None and job.accepted and message.term >= job.term:
                    if job.cancelled:  # the message that said so is lost, and the host knows the number no more
                        text = f"by {self.id}"
                        self._end(job, JobEnded(number, "cancelled", error="cancelled", text=text))
                        continue
                    self._end(job, JobEnded(number, "lost", error="lost", text="the voters do not know the job"))
        elif isinstance(message, messages.Refused):
            for row in message.rows:
                if (job := self._jobs.get(row.number)) is not None:
                    self._end(job, JobEnded(row.number, "refused", error="refused", text=row.why))
        elif isinstance(message, messages.JobParts):
            for part in message.rows:
                job = self._jobs.get(part.number)
                if job is not None and (part.attempt, part.place) >= (job.attempt, job.place):
                    job.attempt, job.place = part.attempt, part.place + 1
                    self._effects.events.append(part)
        elif isinstance(message, messages.JobProgress):
            self._effects.events += [row for row in message.rows if row.number in self._jobs]

    def _accepted(self, message: messages.Accepted) -> None:
        self._window_jobs, self._window_bytes = message.jobs, message.bytes
        accepted, serials = [], []
        for number, serial in zip(message.numbers, message.serials, strict=True):
            job = self._jobs.get(number)
            if job is not None and not job.accepted:
                accepted.append(number)
                serials.append(serial)
                job.term, job.accepted = message.term, True
                self._unaccepted -= 1
                self._payload_bytes -= job.size
                job.payload = b""
                if job.cancelled:
                    self._cancels.append(number)
        if accepted:
            self._effects.events.append(JobAccepted(accepted, serials))

    def _finished(self, message: messages.Finished) -> None:
        jobs = self._jobs
        self._received += message.numbers
        for number, result in zip(message.numbers, message.results, strict=True):
            job = jobs.get(number)
            if job is not None:
                self._end(job, JobEnded(number, "result", result))
        for end in message.others:
            self._received.append(end.number)
            job = jobs.get(end.number)
            if job is not None:
                outcome = messages.OUTCOMES[end.outcome]
                self._end(job, JobEnded(end.number, outcome, b"", end.error, end.text, end.tries, end.worker))

    def _end(self, job: _Job, event: JobEnded) -> None:
        del self._jobs[job.number]
        if self._abandoned and job.key is not None:
            name = job.spec.kind, job.key
            if rest := [each for each in self._abandoned.pop(name, ()) if each != job.number]:
                self._abandoned[name] = rest
        if job.sent >= 0:
            self._out_jobs -= 1
            self._out_bytes -= job.size
            if not job.accepted:
                self._unaccepted -= 1
                self._payload_bytes -= job.size
                job.accepted = True
        else:
            self._payload_bytes -= job.size
            job.cancelled = True  # `_unsent` still has it
        if self._was_full:
            self._was_full = False
            self._effects.room = True
        self._effects.events.append(event)

    # ---- time

    def tick(self, now: float) -> None:
        """Send again what is due. Sets `wake_at`."""
        self.wake_at = NEVER
        if self._attached:
            self._resend(now, self.limits.resend)

    def _resend(self, now: float, age: float) -> None:
        """Send those jobs again that were sent `age` seconds ago and not accepted, and ask for the ends of others."""
        if self._unaccepted:
            again = [job for job in self._jobs.values() if not job.accepted and 0 <= job.sent <= now - age]
            self._send(again, now)
        waiting = [number for number, job in self._jobs.items() if job.accepted]
        if waiting:
            floor = self._floor()
            self._effects.sends += [
                messages.Waiting(self.epoch, floor, numbers) for numbers in messages.batches(waiting)
            ]
            self._cancels = [number for number in waiting if self._jobs[number].cancelled]
        self.wake_at = now + self.limits.resend if self._jobs else NEVER

    def _floor(self) -> int:
        floor, jobs = self.floor, self._jobs
        while floor < self._next and floor not in jobs:
            floor += 1
        self.floor = floor
        return floor

    def take(self, now: float) -> SubmitEffects:
        """Return what is to be done since the last call."""
        if self._attached:
            if self._unsent:
                self._send_new(now)
            sends = self._effects.sends
            if self._cancels:
                cancels, self._cancels = self._cancels, []
                sends += [messages.Cancel(self.epoch, numbers) for numbers in messages.batches(cancels)]
            if self._received:
                received, self._received = self._received, []
                floor = self._floor()
                sends += [messages.Received(self.epoch, floor, numbers) for numbers in messages.batches(received)]
        effects, self._effects = self._effects, SubmitEffects()
        if not self._attached:
            effects.sends = []
        return effects

    def _send_new(self, now: float) -> None:
        unsent = self._unsent
        batch = []
        while unsent:
            job = unsent[0]
            if job.cancelled and job.number not in self._jobs:
                unsent.popleft()
                continue
            if self._out_jobs and (
                self._out_jobs >= self._window_jobs or self._out_bytes + job.size > self._window_bytes
            ):
                break
            unsent.popleft()
            self._out_jobs += 1
            self._out_bytes += job.size
            batch.append(job)
        self._unaccepted += len(batch)
        self._send(batch, now)
        if self._jobs and self.wake_at == NEVER:
            self.wake_at = now + self.limits.resend

    def _send(self, jobs: list[_Job], now: float) -> None:
        """Send jobs in their order, each message within its limits; neighbours with one spec share a group."""
        floor = self._floor()
        for start, end, _ in messages.pieces([job.size for job in jobs], messages.MOST_BATCH_BYTES, self.limits.batch):
            groups = []
            for (spec, has_key), alike in groupby(jobs[start:end], lambda job: (job.spec, job.key is not None)):
                some = list(alike)
                numbers, payloads = [job.number for job in some], [job.payload for job in some]
                groups.append(
                    messages.SubmitGroup(spec, numbers, payloads, [job.key for job in some] if has_key else None)
                )
            self._effects.sends.append(messages.Submit(self.epoch, floor, groups))
        for job in jobs:
            job.sent = now
