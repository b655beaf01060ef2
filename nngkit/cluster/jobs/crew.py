"""The workers of a node and of its subtree: ask for jobs, start them, pass them down, keep results. Pure.

::

    crew = Crew("b", kinds={"render"}, slots=4)     # or {"render": 2}: at most two of that kind at a time
    crew.attached(link, term, now)              # the node has a path to the host of `term` over this parent link;
                                                # link = LOCAL at the host itself. Again after each change of either
    crew.detached(now)                          # no path to a host: the parent link may be up or down
    crew.child_up(link); crew.child_down(link, now)
    crew.from_parent(message, now)              # Grant, Start, Stop
    crew.from_child(link, message, now)         # Demand, Results, Holding, Lost, Returned, Starting, ...
    crew.from_host(message)                     # Taken, by unicast
    crew.done(job, b"result", now); crew.failed(job, "ValueError", "no such scene", now, retry=False)
    crew.part(job, b"data", now); crew.progress(job, 0.5, now)
    crew.released(job, now)                     # a stopped job's handler has ended
    crew.set_work(kinds, slots, now); crew.drain(now)
    if now >= crew.wake_at:
        crew.tick(now)
    effects = crew.take()                       # CrewEffects: start, stop, up, down

Credit: the node asks its parent for as many jobs of each group of kinds as it and its children have room for.

A grant with attempt 0 is of a job whose earlier worker was lost: it may be what killed it, or have been beside that. It
has the node for itself: the node gives back what waits, takes no more, and as soon as nothing runs, it asks (Starting)
and starts the job when the host has counted that (Start). So a job takes no other with it, and loses no try because
others beside it kill their workers.

While a job is here, the node says so (Holding) each third of its visibility: the host gives it to another only if the
node is silent. What a node says of its children is theirs: it passes it on.

Invariants:

1. A grant is in one of: waiting, `_alone`, running, stopping, retained, or `_passed` (to a child).
2. A result is kept until the host has taken it, and sent again after each attachment and every `resend` seconds.
3. Lost is passed on only for jobs that are where the report comes from: a node that has moved has reported them before.
4. A grant of a term before the node's own is dropped: the host of that term was deposed.
5. At most `slots` jobs run, and of a kind at most its concurrency; stopping ones count until they are released.
6. A job that runs for longer than its timeout is stopped, and fails. One whose grant is void, as the host has given it
   to another, is stopped by the answer to the next Holding at the latest.
7. A grant is not listed as at a child for ever. A Stop takes it off the list, and what the child said of it before the
   Stop came there lists it again; so a Stop is answered with Lost, which follows that on the link. What is listed
   wrongly for another reason (a result was dropped, and its worker died) the host stops after the next attachment.
8. A grant that waits behind a longer job than expected goes back after `PATIENCE`: see waiting.py. One that waits
   until it is alone goes back after `HOLD`, doubled with each of its grants: first another node may be idle, but in the
   end one has to become it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from nngkit.cluster.jobs import messages
from nngkit.cluster.jobs.credit import Asked, Credit, Passed, take_demand
from nngkit.cluster.jobs.queue import LOCAL
from nngkit.cluster.jobs.results import CrewResults, Failure
from nngkit.cluster.jobs.sharing import Decide, Offer, evenly
from nngkit.cluster.jobs.slots import Kinds, Places
from nngkit.cluster.jobs.values import CrewEffects, CrewJob, CrewLimits, CrewStats
from nngkit.cluster.jobs.waiting import Waiting
from nngkit.cluster.log_clock import NEVER

HELD_BACK: Final = (
    64  # messages that wait for a path to the host; results come from below only until that is known there
)
NONE: Final[frozenset[str]] = frozenset()
SIGNS: Final = 3  # of the node in one visibility: two may be lost or late
HOLD: Final = 0.25  # seconds until a job that is to run alone goes back, doubled with each of its grants
DOUBLINGS: Final = 8  # of that at most: 64 s


class Crew:
    """State of one node. `decide` divides jobs between the node and its children.

    `may_do`: returns True if the child of a link, or for None the node itself, may do jobs of a kind; without it all
    may.
    """

    def __init__(
        self,
        id: str,
        *,
        kinds: Kinds = (),
        slots: int = 0,
        limits: CrewLimits | None = None,
        decide: Decide = evenly,
        may_do: Callable[[int | None, str], bool] | None = None,
    ) -> None:
        self._may_do = may_do
        self.limits = limits or CrewLimits()
        self.stats = CrewStats()
        self.term = 0
        self._places = Places(kinds, slots)
        self._decide = decide
        self._attached = False
        self._parent: int | None = None
        self._asked = Asked()
        self._children: dict[int, dict[int, Credit]] = {}
        self._passed = Passed(self.limits.passed)
        self._waiting = Waiting()
        self._alone: CrewJob | None = None  # the node is for it only, while it waits and while it runs
        self._running: dict[int, CrewJob] = {}
        self._stopping: set[CrewJob] = set()
        self._asking = False  # it has its slot: Starting is to be sent
        self._results = CrewResults(id, self.limits, self.stats)
        self._mean: float | None = None  # seconds a job takes
        self._draining = False
        self._up: list[messages.Message] = []
        self._returned: list[messages.Ref] = []
        self._effects = CrewEffects()
        self._now = 0.0
        self._sign_at = NEVER  # the next sign of the node, or end of a timeout
        self._resend_at = NEVER

    @property
    def wake_at(self) -> float:
        """When to call `tick`, in seconds of `now`."""
        return min(self._sign_at, self._resend_at, self._waiting.look_at)

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the jobs that the node's own workers do."""
        return self._places.kinds

    @property
    def slots(self) -> int:
        """Jobs that they do at a time."""
        return self._places.slots

    # ---- where the node is

    def attached(self, link: int, term: int, now: float) -> None:
        """Tell the host of `term` which jobs are here, and send results again that it has not taken."""
        if link != self._parent or link == LOCAL:
            self._parent = link
            self._asked = Asked()
        self._attached = True
        self.term = max(self.term, term)
        self._hold(self._here(), now, self._passed.refs())
        self._asking = self._asks
        self._results.send_all_again()
        self._set_sign()
        self._now = now

    def detached(self, now: float) -> None:
        """Hold back what is for the host, until the node is attached again."""
        self._attached = False
        self._up = [each for each in self._up if isinstance(each, messages.Lost | messages.Returned | messages.Results)]
        self._now = now

    def _here(self) -> list[CrewJob]:
        """Return the jobs that run or wait at the node itself."""
        kept = self._kept_for
        return [*self._running.values(), *self._waiting, *(() if kept is None else (kept,))]

    @property
    def _kept_for(self) -> CrewJob | None:
        """The job that waits until the node does nothing else."""
        alone = self._alone
        if alone is None or self._running.get(alone.serial) is alone or alone in self._stopping:
            return None
        return alone

    @property
    def _asks(self) -> bool:
        """True if it has got its slot, and the host has to count its start."""
        alone = self._alone
        return alone is not None and not alone.attempt and self._running.get(alone.serial) is alone

    def _hold(self, jobs: Iterable[CrewJob], now: float, others: Iterable[messages.Ref] = ()) -> None:
        """Tell the host which jobs are here."""
        refs = []
        for job in jobs:
            job.renewed = now
            refs.append(job.ref)
        refs += others
        self._up += map(messages.Holding, messages.batches(refs))

    def child_up(self, link: int) -> None:
        """Begin with a child: it has no credit, and no jobs."""
        self._children.setdefault(link, {})

    def child_down(self, link: int, now: float) -> None:
        """Forget a child; report its jobs as lost."""
        self._children.pop(link, None)
        self._up += map(messages.Lost, messages.batches(self._passed.down(link)))
        self._now = now

    # ---- messages

    def from_parent(self, message: messages.Message, now: float) -> None:
        """Handle a message of the parent link."""
        self._now = now
        if isinstance(message, messages.Grant):
            for block in message.blocks:
                self._grant(message.term, block, now)
        elif isinstance(message, messages.Start):
            for ref in message.refs:
                self._start(ref, now)
        elif isinstance(message, messages.Stop):
            for ref in message.refs:
                self._stop(ref)
            if self._parent != LOCAL:  # the host's queue keeps no list of what is below, and needs no answer
                self._up.append(messages.Lost(message.refs))
            self._fill(now)

    def from_child(self, link: int, message: messages.Message, now: float) -> None:
        """Handle a message of a child link."""
        groups = self._children.get(link)
        if groups is None:
            return
        self._now = now
        passed = self._passed
        if isinstance(message, messages.Demand):
            self.stats.bad += take_demand(groups, message, messages.MOST_GROUPS)
        elif isinstance(message, messages.Results):
            # Without a path they wait for one: the child has forgotten the jobs, so they must not stay listed as there.
            if self._attached or len(self._up) < HELD_BACK:  # else the worker sends them again
                passed.ended(message.term, message.serials, message.fences)
                for failed in message.failures:
                    passed.pop(failed.serial, message.term, failed.fence)
                self._up.append(message)
        elif isinstance(message, messages.Holding | messages.Starting):
            refs = [ref for ref in message.refs if not self._has(ref)]  # else an old parent of this node remembers them
            for ref in refs:
                self.stats.bad += not passed.report(link, ref)
            if self._attached and refs:
                self._up.append(type(message)(refs))
        elif isinstance(message, messages.Lost | messages.Returned):
            if refs := passed.leave(link, message.refs):
                self._up.append(type(message)(refs))
        elif isinstance(message, messages.Parts | messages.Progress) and self._attached:
            self._up.append(message)

    def at(self, link: int, serial: int, term: int, fence: int) -> bool:
        """Return True if a grant is listed as at a child."""
        return self._passed.link(serial, term, fence) == link

    def _able(self, link: int | None, kinds: frozenset[str]) -> frozenset[str]:
        """Return the kinds that a child, or the node itself, may do, where not all may do all."""
        assert self._may_do is not None
        return frozenset(kind for kind in kinds if self._may_do(link, kind))

    def from_host(self, message: messages.Message) -> None:
        """Forget results that the host has taken."""
        if isinstance(message, messages.Taken):
            self.stats.refused += len(message.refused)
            for serials in (message.serials, message.refused):
                for serial in serials:
                    self._results.drop(serial)
                    self._drop_parts(serial)

    def _has(self, ref: messages.Ref) -> bool:
        """Return True if the node itself has the job, under this grant."""
        own = self._running.get(ref.serial), self._results.job(ref.serial), self._alone
        return any(job is not None and job.under(ref) for job in own) or self._waiting.find(ref) is not None

    # ---- grants

    def _grant(self, term: int, block: messages.Block, now: float) -> None:
        kinds = self._asked.kinds(block.group)
        count = len(block.serials)
        if kinds is not None:
            self._asked.used(kinds, count)
        if term < self.term:
            self.stats.stale += count
            return
        start = 0
        exact = [True, False] if kinds is not None else [False]
        for only_group in exact:
            offers, groups = self._offers(block.kind, kinds if only_group else None)
            if start < count and offers:
                alone = len(offers) == 1
                shares = (
                    [min(offers[0].credit, count - start)] if alone else self._decide(block.kind, count - start, offers)
                )
                for offer, credit, share in zip(offers, groups, shares, strict=True):
                    end = min(count, start + min(share, offer.credit))
                    if end > start:
                        self._hand_over(term, block, start, end, offer.link, credit, now)
                        start = end
        if start == count:
            return
        mine = block.kind in self.kinds and (self._may_do is None or self._may_do(None, block.kind))
        if mine and not self._draining and not self._places.narrow:
            # the credit was withdrawn meanwhile: it is taken; with narrow kinds, whose credit is for more than `slots`
            # in all, it might wait long
            self._hand_over(term, block, start, count, None, None, now)
            return
        self.stats.returned += count - start
        rest = zip(block.serials[start:], block.fences[start:], block.attempts[start:], strict=True)
        self._returned += [messages.Ref(serial, term, fence, attempt) for serial, fence, attempt in rest]

    def _offers(self, kind: str, kinds: frozenset[str] | None) -> tuple[list[Offer], list[Credit | None]]:
        """Return the room for a kind: of one group, or of all groups with that kind."""
        offers: list[Offer] = []
        groups: list[Credit | None] = []
        free = self._may_do is None
        own = self._places.groups.get(kind, NONE)
        own = own if free else self._able(None, own)
        if kind in own and kinds in (None, own):
            room, idle = self._room(kind)
            if room > 0:
                offers.append(Offer(None, room, self._places.slots_of(kind), idle))
                groups.append(None)
        for link, child in self._children.items():
            for credit in child.values():
                if not (credit.jobs > 0 and kind in credit.kinds):
                    continue
                able = credit.kinds if free else self._able(link, credit.kinds)
                if kind in able and kinds in (None, able):
                    offers.append(Offer(link, credit.jobs, credit.slots, credit.idle))
                    groups.append(credit)
        return offers, groups

    def _hand_over(
        self,
        term: int,
        block: messages.Block,
        start: int,
        end: int,
        link: int | None,
        credit: Credit | None,
        now: float,
    ) -> None:
        kind, visibility, stream, timeout = block.kind, block.visibility, block.stream, block.timeout
        serials, fences, attempts, payloads = block.serials, block.fences, block.attempts, block.payloads
        submitters = block.submitters
        if end - start < len(serials):
            serials, fences = serials[start:end], fences[start:end]
            attempts, payloads = attempts[start:end], payloads[start:end]
            submitters = submitters and submitters[start:end]
        if link is None:
            self.stats.granted += end - start
            names = [None] * len(serials) if submitters is None else submitters
            rows = zip(serials, fences, attempts, payloads, names, strict=True)
            for serial, fence, attempt, payload, name in rows:
                job = CrewJob(
                    serial, term, fence, attempt, kind, visibility, stream, payload, timeout, name, block.headers
                )
                job.renewed = now
                if self._alone is not None:
                    self._return([job])  # it was on its way
                elif not attempt:
                    self._take_alone(job, now)
                else:
                    self._waiting.add(job, now)
            self._fill(now)
            self._sign_at = min(self._sign_at, now + visibility / SIGNS)
            return
        assert credit is not None
        credit.use(end - start)
        self.stats.passed += end - start
        self._passed.hand(link, term, serials, fences, attempts)
        passed = messages.Block(
            credit.number,
            kind,
            visibility,
            stream,
            serials,
            fences,
            attempts,
            payloads,
            timeout,
            submitters,
            block.headers,
        )
        self._effects.down.append((link, messages.Grant(term, [passed])))

    def _take_alone(self, job: CrewJob, now: float) -> None:
        """Keep the node for one job: what waits goes back, and the host is told that this one has its worker."""
        self._return(self._waiting.clear())
        self._alone = job
        job.granted = now
        self._hold([job], now)

    def _fill(self, now: float) -> None:
        """Start waiting jobs in free slots."""
        running, places = self._running, self._places
        free = self.slots - len(running) - len(self._stopping)
        alone = self._kept_for
        if alone is not None:
            if running or self._stopping or not free:
                self._sign_at = min(self._sign_at, self._hold_until(alone))
                return
            self._asking = True
        while free > 0 and (job := alone or self._waiting.next(running, places)) is not None:
            places.take(job.kind)
            job.started = now
            self._sign_at = min(self._sign_at, _end_of(job))
            self._results.drop_parts(job.serial)  # of an earlier grant
            running[job.serial] = job
            if alone is not None:
                break
            self._effects.start.append(job)
            free -= 1
        self._waiting.watch(now, free <= 0 and self._ahead(self.slots) > 0)

    def _hold_until(self, job: CrewJob) -> float:
        """Return when a job goes back that waits until it is alone."""
        return job.granted + HOLD * 2.0 ** min(job.fence, DOUBLINGS)

    def _start(self, ref: messages.Ref, now: float) -> None:
        """Start a job that has asked, or pass that on."""
        job = self._running.get(ref.serial)
        if job is not None and job.under(ref):
            if not job.attempt and ref.attempt:
                job.attempt = ref.attempt
                job.started = now
                self._sign_at = min(self._sign_at, _end_of(job))
                self._effects.start.append(job)
            return
        link = self._passed.link(ref.serial, ref.term, ref.fence)
        if link is not None:
            self._passed.report(link, ref)
            self._effects.down.append((link, messages.Start([ref])))

    def _room(self, kind: str) -> tuple[int, int]:
        """Return how many jobs of a kind the node's own workers can take, and how many of them would start at once."""
        if self._draining or not self.slots or self._results.full or self._alone is not None:
            return 0, 0
        busy = len(self._running) + len(self._stopping)
        return self._places.room(kind, busy, self._waiting, self._ahead)

    def _ahead(self, slots: int) -> int:
        """Return how many jobs should wait beside running ones."""
        if self._mean is None or self._waiting.stalled:
            return 0
        return min(self.limits.most_ahead, int(self.limits.ahead * slots / max(self._mean, 1e-6) + 0.5))

    def _stop(self, ref: messages.Ref) -> None:
        serial = ref.serial
        job = self._running.get(serial)
        if job is not None and job.under(ref):
            del self._running[serial]
            if job.attempt:
                self._stopping.add(job)
                self._effects.stop.append(job)
            else:
                self._places.free(job.kind)
                self._alone = None
            self._drop_parts(serial)
            self.stats.stopped += 1
            return
        kept = self._results.job(serial)
        if kept is not None and kept.under(ref):
            self._results.drop(serial)
            self._drop_parts(serial)
            return
        link = self._passed.pop(serial, ref.term, ref.fence)
        if link is not None:
            self._effects.down.append((link, messages.Stop([ref])))
            return
        if (waiting := self._waiting.find(ref)) is not None:
            self._waiting.remove(waiting)
            self.stats.stopped += 1
        elif self._alone is not None and self._alone.under(ref):
            self._alone = None
            self.stats.stopped += 1

    # ---- the node's own workers

    def done(self, job: CrewJob, result: bytes, now: float) -> bool:
        """Keep the result of a job. Return False if the grant is void: it was stopped."""
        self.stats.done += 1
        return self._ended(job, result, None, now)

    def failed(self, job: CrewJob, kind: str, text: str, now: float, *, retry: bool = True) -> bool:
        """Keep the error of a job. `retry`: another try may succeed. Return False if the grant is void."""
        self.stats.failed += 1
        return self._ended(job, b"", (retry, _cut(kind, messages.MOST_KIND), _cut(text, messages.MOST_ERROR)), now)

    def _ended(self, job: CrewJob, result: bytes, failure: Failure | None, now: float) -> bool:
        self._now = now
        if self._running.get(job.serial) is not job:
            self.released(job, now)
            return False
        del self._running[job.serial]
        if job not in self._stopping:
            self._free(job)
        self._waiting.stalled = False
        took = max(0.0, now - job.started)
        self._mean = took if self._mean is None else self._mean + (took - self._mean) * 0.1  # of the last 10 or so
        self._results.add(job, result, failure, took)
        self._fill(now)
        return True

    def released(self, job: CrewJob, now: float) -> None:
        """Free the slot of a stopped job whose handler has ended."""
        self._now = now
        if job in self._stopping:
            self._stopping.remove(job)
            self._free(job)
            self._fill(now)

    def _free(self, job: CrewJob) -> None:
        """Note that nothing of a job runs any more."""
        self._places.free(job.kind)
        if job is self._alone:
            self._alone = None

    def part(self, job: CrewJob, data: bytes, now: float) -> bool:
        """Send a part of the result. Return False if the grant is void. Raises ValueError over 128 KiB."""
        if len(data) > messages.MOST_BATCH_BYTES:
            raise ValueError(f"a part of {len(data)} bytes is over {messages.MOST_BATCH_BYTES}")
        if self._running.get(job.serial) is not job:
            return False
        job.renewed = now  # for the host, it is a sign
        self._results.part(job, data)
        return True

    def progress(self, job: CrewJob, fraction: float, now: float) -> bool:
        """Report progress. Return False if the grant is void."""
        if self._running.get(job.serial) is not job:
            return False
        job.renewed = now  # for the host, it is a sign
        self._results.progress(job, fraction)
        return True

    def set_work(self, kinds: Kinds, slots: int, now: float) -> None:
        """Change what the node's own workers do: kinds, or kinds with the jobs of each at a time."""
        self._places.set(kinds, slots)
        gone = [job for job in self._waiting if job.kind not in self.kinds]
        for job in gone:
            self._waiting.remove(job)
        self._return(gone)
        if (alone := self._alone) is not None and (alone.kind not in self.kinds or not slots):
            self._give_up_alone()
        self._fill(now)
        self._now = now

    def limit(self, job: CrewJob, timeout: float, now: float) -> None:
        """Let a job that starts run for at most `timeout` seconds."""
        job.timeout = timeout if job.timeout is None else min(job.timeout, timeout)
        self._sign_at = min(self._sign_at, job.started + job.timeout)

    def drain(self, now: float) -> None:
        """Ask for no jobs for the node itself any more, and return those that have not started."""
        self._draining = True
        self._return(self._waiting.clear())
        self._give_up_alone()
        self._now = now

    def leave(self, now: float) -> None:
        """Give all jobs to other nodes. Those that run have failed, and lost no worker: they need not run alone."""
        self.drain(now)
        for job in list(self._running.values()):
            self.failed(job, "lost", "its node has left the cluster", now)

    @property
    def busy(self) -> int:
        """Jobs of the node's own workers, results that are not taken included."""
        return self.working + len(self._results)

    @property
    def working(self) -> int:
        """Jobs that the node's own workers do, or are to do."""
        return len(self._running) + len(self._stopping) + len(self._waiting) + (self._kept_for is not None)

    @property
    def owed(self) -> int:
        """Results that the host has not taken, and other messages that have not left."""
        return len(self._results) + len(self._returned) + len(self._up)

    @property
    def passed(self) -> int:
        """Grants that are at children."""
        return len(self._passed)

    def _return(self, jobs: Collection[CrewJob]) -> None:
        """Return jobs that were not started, and are here no more."""
        self.stats.returned += len(jobs)
        self._returned += [job.ref for job in jobs]

    def _give_up_alone(self) -> None:
        """Return the job that is to run alone, unless it was allowed to start."""
        alone = self._alone
        if alone is None or alone.attempt:
            return
        if self._asks:
            del self._running[alone.serial]
            self._places.free(alone.kind)
        self._alone = None
        self._return([alone])

    def _drop_parts(self, serial: int) -> None:
        if serial not in self._running or not self._running[serial].places:  # else they are of a later grant
            self._results.drop_parts(serial)

    # ---- what is sent

    def tick(self, now: float) -> None:
        """Say which jobs are here, stop those whose time is over, give back and send again what is due."""
        self._now = now
        if now >= self._waiting.look_at:
            back = self._waiting.surplus(now)
            self.stats.waited += len(back)
            self._return(back)
        if now >= self._sign_at:
            self._look_at_jobs(now)
        if now >= self._resend_at:
            self._resend_at = NEVER
            if self._attached:
                self._results.send_again(now - self.limits.resend)
            self._asking = self._asks
            if self._results or self._asking:
                self._resend_at = now + self.limits.resend

    def _look_at_jobs(self, now: float) -> None:
        """Stop jobs whose timeout is over, and tell the host of the others."""
        for job in [job for job in self._running.values() if job.attempt and now >= _end_of(job)]:
            self.stats.expired += 1
            self._stopping.add(job)
            self.failed(job, "timeout", f"not done within {job.timeout:g} s", now)
            self._effects.stop.append(job)
        if (kept := self._kept_for) is not None and now >= self._hold_until(kept):
            self._give_up_alone()
        self._fill(now)
        if self._attached:
            here = self._here()
            if any(now >= job.renewed + job.visibility / SIGNS for job in here):
                self._hold([job for job in here if now >= job.renewed + job.visibility / (2 * SIGNS)], now)
        self._set_sign()

    def _set_sign(self) -> None:
        """Set the time at which `_look_at_jobs` has something to do."""
        at = [_end_of(job) for job in self._running.values() if job.attempt]
        if self._attached:
            at += [job.renewed + job.visibility / SIGNS for job in self._here()]
        if (kept := self._kept_for) is not None:
            at.append(self._hold_until(kept))
        self._sign_at = min(at, default=NEVER)

    def take_starts(self) -> list[CrewJob]:
        """Return the jobs to start now, as `take` would: a worker that has ended one goes on at once."""
        starts, self._effects.start = self._effects.start, []
        return starts

    def take(self) -> CrewEffects:
        """Return what is to be done since the last call."""
        effects, self._effects = self._effects, CrewEffects()
        if not self._attached:
            return effects
        rows = self._demand()
        # first: what goes back is not to come again
        up: list[messages.Message] = [messages.Demand(rows)] if rows else []
        up += self._up
        self._up = []
        if self._returned:
            refs, self._returned = self._returned, []
            up += map(messages.Returned, messages.batches(refs))
        if self._asking:
            self._asking = False
            if self._alone is not None:
                up.append(messages.Starting([self._alone.ref]))
                self._resend_at = min(self._resend_at, self._now + self.limits.resend)
        if self._results.take(up, self._now):
            self._resend_at = min(self._resend_at, self._now + self.limits.resend)
        effects.up = up
        return effects

    def _demand(self) -> list[messages.Wanted]:
        """Return the changes of credit to tell the parent."""
        wanted: dict[frozenset[str], Credit] = {}
        free = self._may_do is None
        for kind, all_kinds in self._places.groups.items():
            group = all_kinds if free else self._able(None, all_kinds)
            if group and group not in wanted:
                room, idle = self._room(kind)
                wanted[group] = Credit(group, 0, room, 0 if self._draining else self._places.slots_of(kind), idle)
        for link, groups in self._children.items():
            for credit in groups.values():
                if not (kinds := credit.kinds if free else self._able(link, credit.kinds)):
                    continue
                if (total := wanted.get(kinds)) is None:
                    total = wanted[kinds] = Credit(kinds)
                total.add(credit.jobs, credit.slots, max(0, credit.idle))
        return self._asked.changes(wanted)


def _end_of(job: CrewJob) -> float:
    return NEVER if job.timeout is None else job.started + job.timeout


def _cut(text: str, most: int) -> str:
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
