"""A simulated cluster for work: a tree of crews and submitters, hosts that come and go, and a log that survives them.

The log is a list: what a host proposes is committed after a delay, in order, if it is still the host; when it dies, a
random part of the rest is. Links are FIFO and lossless until they are cut; a node without a parent attaches to another
after a while. Unicasts go along the tree, and are lost if it changes on their way. Each node has a wall clock of its
own. Everything is drawn from the seed. Checked, beside what `check` says at the end:

1. No job starts before its delay, or the pause after its failure, is over.
2. A job that runs alone has no other beside it; without faults, a job that kills its workers takes no other with it.
3. Without faults each job starts once, also one that takes many times its visibility.
4. Once faults are over, no job waits longer than `IDLE` while a worker with room for it does nothing.

    python -m tests.many_histories work 100000
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from nngkit.cluster.jobs.crew import Crew
from nngkit.cluster.jobs.messages import Grant, JobPart, JobProgressed, Message, pack, parse
from nngkit.cluster.jobs.queue import LOCAL, WorkHost
from nngkit.cluster.jobs.slots import Kinds
from nngkit.cluster.jobs.submitter import (
    JobAccepted,
    JobEnded,
    SubmitLimits,
    Submitter,
)
from nngkit.cluster.jobs.table import JobTable
from nngkit.cluster.jobs.values import QUEUED, CrewJob, CrewLimits, JobEnd, WorkLimits
from nngkit.cluster.log_clock import LogClock
from nngkit.envelope import decode, encode
from nngkit.testing.clock import VirtualClock

Id = tuple[str, int, int]
MOST = 4 * 1024 * 1024
IDLE = 0.25  # seconds: PATIENCE, twice as a look may be late, and a way of some hops to the host and back


class Link:
    """One connection from a child to its parent."""

    def __init__(self, cluster: Cluster, number: int, child: Node, parent: Node) -> None:
        self.cluster, self.number, self.child, self.parent = cluster, number, child, parent
        self.up = True
        self.arrived = {True: 0.0, False: 0.0}

    def carry(self, upwards: bool, message: object) -> None:
        cluster = self.cluster
        message = cluster.through_codec(message)
        receiver = self.parent if upwards else self.child
        at = max(cluster.clock.now + cluster.delay(), self.arrived[upwards] + 1e-9)
        self.arrived[upwards] = at

        def arrive() -> None:
            if self.up and receiver.alive:
                if upwards:
                    receiver.from_child(self, message)
                else:
                    receiver.from_parent(self, message)

        cluster.clock.schedule(at, arrive)


class Node:
    """One run of a node: a crew, a submitter, and the host's queue while it is the host."""

    def __init__(self, cluster: Cluster, name: str, epoch: int, kinds: Kinds, slots: int, speed: float) -> None:
        self.cluster, self.name, self.epoch, self.speed = cluster, name, epoch, speed
        self.alive = True
        self.crew = Crew(name, kinds=kinds, slots=slots, limits=cluster.crew_limits)
        self.submitter = Submitter(name, epoch, cluster.submit_limits)
        self.host: WorkHost | None = None
        self.parent: Link | None = None
        self.children: dict[int, Link] = {}
        self.term: int | None = None  # of the path to the host
        self.at_work: set[CrewJob] = set()
        self.done = 0
        self.narrowed = False  # its work was changed while jobs ran
        self.log_clock = LogClock()
        self.skew = cluster.skews.uniform(-3600.0, 3600.0)  # of its wall clock, in seconds
        self._due = float("inf")
        self._queued = False

    # ---- the tree

    def from_parent(self, link: Link, message: Any) -> None:
        now = self.cluster.clock.now
        if isinstance(message, tuple) and message and message[0] == "path":
            self.set_path(message[1])
        else:
            self.crew.from_parent(message, now)
        self.act()

    def set_path(self, term: int | None) -> None:
        now = self.cluster.clock.now
        self.term = term
        if term is None:
            self.crew.detached(now)
            self.submitter.detached()
        else:
            self.crew.attached(LOCAL if self.parent is None else self.parent.number, term, now)
            self.submitter.attached(term, now)
        for link in self.children.values():
            link.carry(False, ("path", term))

    def from_child(self, link: Link, message: Any) -> None:
        self.crew.from_child(link.number, message, self.cluster.clock.now)
        self.act()

    # ---- what is to be done

    def act(self) -> None:
        """Carry out the effects once the present call is over: several events share one turn, as in a loop."""
        if not self._queued:
            self._queued = True
            self.cluster.clock.schedule(self.cluster.clock.now + self.cluster.turn, self.turn)

    def turn(self) -> None:
        self._queued = False
        if not self.alive:
            return
        cluster = self.cluster
        now = cluster.clock.now
        host, crew, submitter = self.host, self.crew, self.submitter
        for part in (host, crew, submitter):
            if part is not None and now >= part.wake_at:
                part.tick(now)
        while True:
            busy = False
            mine = submitter.take(now)
            for event in mine.events:
                cluster.heard(self, event)
            for message in mine.sends:
                busy = True
                cluster.to_host(self, message)
            effects = crew.take()
            for job in effects.stop:
                cluster.clock.schedule(now + cluster.rng.random() * 0.05, partial(self.let_go, job))
            if effects.start:
                at_work = Counter(job.kind for job in (*crew._running.values(), *crew._stopping))
                assert at_work.total() <= crew.slots
                waits = crew._kept_for is not None  # it was granted after these had started, in the same turn
                assert crew._alone is None or waits or at_work.total() == 1, "it was to run alone"
                assert +at_work == +Counter(crew._places.taken)
                assert self.narrowed or all(at_work[kind] <= most for kind, most in crew._places.most.items())
            for job in effects.start:
                cluster.start(self, job)
            for link, message in effects.down:
                if link in self.children:
                    self.children[link].carry(False, message)
            for message in effects.up:
                if self.parent is not None:
                    self.parent.carry(True, message)
                elif self.host is not None:
                    busy = True
                    self.host.receive(LOCAL, message, now)
            if self.host is not None:
                work = self.host.take(now)
                for entry in work.entries:
                    cluster.propose(self, entry)
                for link, message in work.down:
                    assert link == LOCAL
                    cluster.note_grants(message)
                    busy = True
                    crew.from_parent(message, now)
                for to, message in work.unicasts:
                    cluster.from_host(self, to, message)
                for end in work.ended:
                    cluster.ended(end)
            if not busy:
                break
        wakes = [each.wake_at for each in (self.host, crew, submitter) if each is not None]
        due = min(wakes)
        if due < float("inf") and (self._due <= now or due < self._due):
            self._due = max(due, now + 1e-4)
            cluster.clock.schedule(self._due, self.wake)

    def wake(self) -> None:
        if self.alive and self.cluster.clock.now >= self._due:
            self.turn()

    def let_go(self, job: CrewJob) -> None:
        if self.alive and job in self.at_work:
            self.at_work.discard(job)
            self.crew.released(job, self.cluster.clock.now)
            self.act()


class Submission:
    """Facts that the test knows of one job."""

    def __init__(self, payload: bytes, kind: str, key: bytes | None, tries: int, not_before: float) -> None:
        self.payload, self.kind, self.key, self.tries = payload, kind, key, tries
        self.not_before = not_before
        self.accepted = self.cancelled = False
        self.end: JobEnded | None = None
        self.parts: list[tuple[int, int]] = []


class Cluster:
    """Nodes, the log, and the checks."""

    def __init__(
        self,
        seed: int,
        *,
        delay: tuple[float, float] = (0.0005, 0.005),
        commit: tuple[float, float] = (0.001, 0.01),
        turn: float = 0.0,
        codec: bool = True,
        limits: WorkLimits | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.skews = Random(seed)
        self.clock = VirtualClock(1000.0)
        self.codec, self.turn = codec, turn
        self._delay, self._commit = delay, commit
        self.limits = limits or WorkLimits()
        self.crew_limits = CrewLimits()
        self.submit_limits = SubmitLimits()
        self.nodes: dict[str, Node] = {}
        self.log: list[bytes] = []
        self.pending: deque[bytes] = deque()
        self.tables: list[JobTable] = [JobTable(), JobTable()]  # followers: one restarts from snapshots
        self.term = 0
        self.host: Node | None = None
        self.submissions: dict[Id, Submission] = {}
        self.starts: dict[bytes, int] = {}  # by payload, which names the job
        self.ends: dict[int, JobEnd] = {}
        self.grants: dict[bytes, tuple[int, int]] = {}  # the last one, by payload: term and fence
        self.by_key: dict[tuple[str, bytes], set[tuple[str, bytes]]] = {}
        self.do: Callable[[Node, CrewJob], tuple[float, str]] = lambda node, job: (0.02 / node.speed, "done")
        self.sources: dict[bytes, Submission] = {}
        self.idle_since: dict[
            tuple[str, str, int], float
        ] = {}  # by worker, kind and grants: it has room, and a job waits
        self.nodes_skew = 0.0  # of the clock of the log
        self._numbers = self._runs = 0
        self._committed_at = 0.0

    def delay(self) -> float:
        return self.rng.uniform(*self._delay)

    def through_codec(self, message: Any) -> Any:
        if not self.codec or type(message) is tuple:
            return message
        return parse(decode(encode(pack(message)), what="message", limit=MOST), "peer")

    # ---- nodes and links

    def add(self, name: str, *, kinds: Kinds = frozenset({"work"}), slots: int = 1, speed: float = 1.0) -> Node:
        self._runs += 1
        node = self.nodes[name] = Node(self, name, 1000 + self._runs, kinds, slots, speed)
        if self.host is not None and self.host.host is not None:
            self.host.host.tell_time(self.clock.now)
            self.host.act()
        return node

    def attach(self, child: Node, parent: Node) -> None:
        assert child.parent is None
        self._numbers += 1
        link = Link(self, self._numbers, child, parent)
        child.parent = link
        parent.children[link.number] = link
        parent.crew.child_up(link.number)
        if parent.term is not None:
            link.carry(False, ("path", parent.term))
        parent.act()

    def cut(self, link: Link) -> None:
        """Cut a link; the ends notice at different times, and the child looks for another parent."""
        if not link.up:
            return
        link.up = False

        def parent_notices() -> None:
            parent = link.parent
            if parent.alive and parent.children.pop(link.number, None) is not None:
                parent.crew.child_down(link.number, self.clock.now)
                parent.act()

        def child_notices() -> None:
            child = link.child
            if child.alive and child.parent is link:
                child.parent = None
                if child.host is None:
                    child.set_path(None)
                    child.act()
                    self.seek(child)

        self.clock.schedule(self.clock.now + self.rng.random() * 0.5, parent_notices)
        self.clock.schedule(self.clock.now + self.rng.random() * 0.1, child_notices)

    def seek(self, node: Node) -> None:
        """Attach a node without a parent to another that has a path, after a while."""

        def attempt() -> None:
            if not node.alive or node.parent is not None or node.host is not None:
                return
            found = [
                each
                for each in self.nodes.values()
                if each.alive and each.term is not None and len(each.children) < 4 and not self.below(node, each)
            ]
            if found:
                self.attach(node, self.rng.choice(found))
            else:
                self.seek(node)

        self.clock.schedule(self.clock.now + 0.02 + self.rng.random() * 0.2, attempt)

    def below(self, top: Node, node: Node) -> bool:
        here: Node | None = node
        while here is not None:
            if here is top:
                return True
            here = here.parent.parent if here.parent is not None and here.parent.up else None
        return False

    def crash(self, node: Node) -> None:
        """Kill a node and all it has."""
        node.alive = False
        if node is self.host:
            self.host = None
        for link in [*node.children.values(), *([node.parent] if node.parent else [])]:
            self.cut(link)

    def elect(self, node: Node) -> None:
        """Make a node the host of the next term: with what is committed of the log."""
        old = self.host
        while self.pending and self.rng.random() < 0.5:  # what the last host proposed, as far as a majority has it
            self.commit_one(None)
        self.pending.clear()
        self.term += 1
        self.host = node
        if node.parent is not None:
            link, node.parent = node.parent, None
            self.cut(link)
        table = JobTable()
        if self.rng.random() < 0.5:
            table.restore(self.tables[0].snapshot())
        else:
            for entry in self.log:
                table.apply(entry)
        now = self.clock.now
        wall = 1.7e9 + now + (node.skew if self.term == 1 or node.log_clock._offset is not None else self.nodes_skew)
        time = node.log_clock.lead(table.clock, now, wall)
        self.nodes_skew = time - now - 1.7e9
        node.host = WorkHost(
            node.name, term=self.term, table=table, now=now, wall=time, rng=self.rng, limits=self.limits
        )
        node.host.granting = True
        node.set_path(self.term)
        node.act()
        if old is not None and old is not node and old.alive and old.host is not None:
            self.depose(old)

    def depose(self, node: Node) -> None:
        """Let an old host find out a little later that it is none; until then it commits nothing."""
        if node.host is not None:
            node.host.granting = self.rng.random() < 0.3  # its lease is over at last; some grants were on their way

        def step_down() -> None:
            if node.alive and node.host is not None and node is not self.host:
                node.host = None
                node.set_path(None)
                node.act()
                self.seek(node)

        self.clock.schedule(self.clock.now + self.rng.random() * 0.3, step_down)

    # ---- the log

    def propose(self, node: Node, entry: bytes) -> None:
        if node is not self.host:
            return
        self.pending.append(entry)
        at = max(self.clock.now + self.rng.uniform(*self._commit), self._committed_at)
        self._committed_at = at
        term = self.term

        def commit() -> None:
            if self.term == term and self.pending and self.host is node:
                self.commit_one(node)

        self.clock.schedule(at, commit)

    def commit_one(self, node: Node | None) -> None:
        entry = self.pending.popleft()
        self.log.append(entry)
        for place, table in enumerate(self.tables):
            table.apply(entry)
            if place and self.rng.random() < 0.02:
                self.tables[place] = JobTable()
                self.tables[place].restore(table.snapshot())
        for each in self.nodes.values():
            if each is not node:
                each.log_clock.heard(self.term, self.tables[0].clock, self.clock.now)
        if node is not None and node.alive and node.host is not None:
            node.host.committed([entry], self.clock.now)
            node.act()

    # ---- unicasts

    def root_of(self, node: Node) -> tuple[Node | None, int]:
        hops = 0
        here = node
        while here.parent is not None:
            if not here.parent.up:
                return None, hops
            here = here.parent.parent
            hops += 1
        return (here if here.host is not None and here.alive else None), hops

    def to_host(self, node: Node, message: Message) -> None:
        root, hops = self.root_of(node)
        message = self.through_codec(message)

        def arrive() -> None:
            if root is not None and root.alive and root.host is not None and self.root_of(node)[0] is root:
                root.host.unicast(node.name, message, self.clock.now)
                root.act()

        if root is not None:
            self.clock.schedule(self.clock.now + sum(self.delay() for _ in range(hops)), arrive)

    def from_host(self, host: Node, to: str, message: Message) -> None:
        node = self.nodes.get(to)
        message = self.through_codec(message)
        if node is None or not node.alive:
            return
        root, hops = self.root_of(node)

        def arrive() -> None:
            if node.alive and self.root_of(node)[0] is host:
                node.crew.from_host(message)
                node.submitter.receive(message, self.clock.now)
                node.act()

        if root is host:
            self.clock.schedule(self.clock.now + sum(self.delay() for _ in range(hops)), arrive)

    # ---- jobs

    def submit(self, node: Node, payload: bytes, *, kind: str = "work", key: bytes | None = None, **more: Any) -> Id:
        number = node.submitter.submit(kind, payload, self.clock.now, key=key, **more)
        name = node.name, node.epoch, number
        self.submissions[name] = self.sources[payload] = Submission(
            payload, kind, key, more.get("tries", 3), self.clock.now + more.get("delay", 0.0)
        )
        node.act()
        return name

    def start(self, node: Node, job: CrewJob) -> None:
        assert job.kind in node.crew.kinds
        now = self.clock.now
        assert now >= self.sources[job.payload].not_before, "it starts before its delay is over"
        if self.host is not None and self.host.host is not None and job.term == self.term:
            known = self.host.host.table.jobs.get(job.serial)  # None: cancelled, and the Stop is on its way
            due = 0.0 if known is None else known.not_before - self.host.host._wall
            assert now >= due - 0.002, "it starts before the pause after its failure is over"
        self.starts[job.payload] = count = self.starts.get(job.payload, 0) + 1
        node.at_work.add(job)
        payload = job.payload
        seconds, how = self.do(node, job)
        if how == "hang":
            return
        if job.stream:
            for _ in range(2):
                node.crew.part(job, payload, self.clock.now)

        def end() -> None:
            if not node.alive or job not in node.at_work:
                return
            if how == "kill":
                self.crash(node)
                return
            node.at_work.discard(job)
            now = self.clock.now
            node.done += 1
            if how == "fail":
                node.crew.failed(job, "ValueError", "as drawn", now)
            elif how == "refuse":
                node.crew.failed(job, "ValueError", "as drawn", now, retry=False)
            else:
                node.crew.done(job, payload + b"|%d|%d %d" % (count, job.term, job.fence), now)
            node.act()

        self.clock.schedule(self.clock.now + seconds, end)

    def heard(self, node: Node, event: JobAccepted | JobEnded | JobPart | JobProgressed) -> None:
        if isinstance(event, JobAccepted):
            for number in event.numbers:
                self.submissions[node.name, node.epoch, number].accepted = True
        elif isinstance(event, JobEnded):
            job = self.submissions[node.name, node.epoch, event.number]
            assert job.end is None, "a job ended twice"
            assert event.outcome not in ("lost", "refused"), event
            assert event.outcome != "cancelled" or job.cancelled, "cancelled by another submitter of its key"
            job.end = event
            if job.key is not None:
                if event.outcome == "result":
                    self.by_key.setdefault((job.kind, job.key), set()).add((event.outcome, event.result))
            elif event.outcome == "result":
                assert event.result.startswith(job.payload + b"|"), (event, job.payload)
        elif isinstance(event, JobPart):
            job = self.submissions[node.name, node.epoch, event.number]
            assert not job.parts or (event.attempt, event.place) > job.parts[-1], "parts out of order"
            job.parts.append((event.attempt, event.place))

    def note_grants(self, message: Message) -> None:
        if isinstance(message, Grant):
            for block in message.blocks:
                for payload, fence in zip(block.payloads, block.fences, strict=True):
                    self.grants[payload] = message.term, fence

    def ended(self, end: JobEnd) -> None:
        assert end.id not in self.ends, "two ends of one job"
        term, fence = self.grants.get(end.payload, (0, 0))
        if end.outcome == "result" and term == end.term:
            assert end.result.endswith(b"|%d %d" % (term, fence)), "a result under a void fence"
        self.ends[end.id] = end

    def look_for_idle(self) -> None:
        """Check that no job waits while a worker with room for it is idle."""
        host = self.host.host if self.host is not None else None
        nodes = [each for each in self.nodes.values() if each.alive and each.term == self.term]
        waiting = Counter(job.kind for node in nodes for job in node.crew._waiting)
        if host is not None:
            waiting.update(
                job.spec.kind
                for job in host.table.jobs.values()
                if job.outcome < 0 and job.status == QUEUED and not job.suspect
            )
        for node in nodes:
            crew = node.crew
            for kind in crew.kinds:
                room = crew._room(kind)[0] > 0 and crew.working < crew.slots and not crew._places.full(kind)
                place = node.name, kind, crew.stats.granted
                if not room or not waiting[kind]:
                    self.idle_since.pop(place, None)
                elif self.clock.now - self.idle_since.setdefault(place, self.clock.now) > IDLE:
                    raise AssertionError(f"{waiting[kind]} jobs of {kind} wait, and {node.name} is idle")

    # ---- the end

    def unfinished(self) -> list[Id]:
        return [
            name
            for name, job in self.submissions.items()
            if job.end is None and (node := self.nodes[name[0]]).alive and node.epoch == name[1]
        ]

    def quiet(self) -> bool:
        """Return True if each job has ended, also those whose submitter is dead."""
        host = self.host.host if self.host is not None else None
        return host is not None and not host.table.unfinished and not self.unfinished()

    def check(self) -> None:
        """Check what must hold when all is quiet."""
        assert not (left := self.unfinished()), f"{len(left)} jobs have not ended: {left[:5]}"
        assert self.quiet(), "jobs of dead submitters have not ended"
        for (kind, key), found in self.by_key.items():
            assert len(found) == 1, f"two results for {kind} {key!r}: {found}"
        for payload, count in self.starts.items():
            job = self.sources[payload]
            assert count <= job.tries + (self.term > 1), f"{payload!r} started {count} times, with {job.tries} tries"
        host = self.host
        assert host is not None
        assert host.host is not None
        snapshot = host.host.table.snapshot()
        for table in self.tables:
            assert table.snapshot() == snapshot, "the tables differ"
        again = JobTable()
        again.restore(snapshot)
        assert again.snapshot() == snapshot, "a snapshot differs after a restore"
        assert again.bytes == host.host.table.bytes
        assert again.unfinished == host.host.table.unfinished
        for node in self.nodes.values():
            if node.alive:
                assert not node.crew.busy, f"{node.name} still has jobs"
                assert not node.crew.passed, f"{node.name} still has jobs at children"
                assert not node.crew._results._parts
                assert not node.crew._results.part_bytes
        assert not any(host.host._jobs.running.values())
        assert not host.host._jobs.lost
        assert not host.host._jobs.stopping
        assert not host.host._finishing
        assert not host.host._grants._recording
        sizes = [
            len(job.payload) if job.outcome < 0 else len(job.result) + (sum(map(len, job.error)) if job.outcome else 0)
            for job in host.host.table.jobs.values()
        ]
        assert sum(sizes) == host.host.table.bytes


def history(seed: int, *, jobs: int = 40) -> Cluster:
    """Run one random history with faults, let it become quiet, and check it."""
    draw = Random(seed)
    kinds = [frozenset({"work"}), frozenset({"work", "other"}), frozenset({"other"})]
    narrow = draw.random() < 0.5

    def some(kinds: frozenset[str]) -> Kinds:
        return {kind: draw.randint(1, 2) for kind in sorted(kinds)} if narrow else kinds

    limits = WorkLimits(grace=draw.choice([0.3, 1.0]), backoff=0.05, longest_backoff=0.5)
    cluster = Cluster(seed, codec=seed % 8 == 0, limits=limits)
    names = [f"n{number}" for number in range(draw.randint(2, 7))]
    for place, name in enumerate(names):
        cluster.add(name, kinds=some(kinds[place] if place < 3 else draw.choice(kinds)), slots=draw.randint(1, 3))
    first = cluster.nodes[names[0]]
    cluster.elect(first)
    for name in names[1:]:
        cluster.seek(cluster.nodes[name])
    faults = draw.random() < 0.9
    long = draw.choice([0.002, 0.02, 0.2])
    poison = draw.random() < (0.3 if faults else 0.6)
    calm = False  # from when on jobs only take their time

    def do(node: Node, job: CrewJob) -> tuple[float, str]:
        if poison and job.payload.startswith(b"poison"):
            return draw.random() * 0.02, "kill"
        chance = draw.random()
        how = "done" if chance < 0.85 else "fail" if chance < 0.93 else "refuse" if chance < 0.97 else "hang"
        if how == "hang" and job.timeout is None:
            return job.visibility * 3 * draw.random(), "done"
        if calm or not faults:
            return (job.visibility * 4 if chance < 0.1 else draw.random() * 2 * long), "done"
        if draw.random() < 0.1:
            node.crew.progress(job, draw.random(), clock.now)
        return draw.random() * 2 * long, how

    cluster.do = do
    clock = cluster.clock
    start = clock.now
    count = 0

    def submit_some() -> None:
        nonlocal count
        alive = [each for each in cluster.nodes.values() if each.alive]
        if alive and count < jobs:
            node = draw.choice(alive)
            for _ in range(draw.randint(1, 8)):
                count += 1
                payload = b"%s %d" % (b"poison" if draw.random() < 0.05 else b"job", count)
                key = b"key %d" % draw.randint(0, 5) if draw.random() < 0.2 else None
                job = cluster.submit(
                    node,
                    payload,
                    kind=draw.choice(["work", "other"]),
                    key=key,
                    priority=draw.randint(0, 2),
                    tries=draw.randint(1, 4),
                    visibility=draw.choice([0.5, 1.0]),
                    deadline=draw.choice([None, None, 3.0]) if faults else None,
                    delay=draw.choice([0.0, 0.0, 0.1, 2.0]),
                    timeout=draw.choice([None, 0.7]) if faults else None,
                    stream=draw.random() < 0.2,
                )
                if draw.random() < 0.05:
                    at = clock.now + draw.random() * 0.1
                    clock.schedule(at, partial(cancel, node, job[2]))
            clock.schedule(clock.now + draw.random() * 0.3, submit_some)

    def cancel(node: Node, number: int) -> None:
        if node.alive:
            cluster.submissions[node.name, node.epoch, number].cancelled = True
            node.submitter.cancel(number)
            node.act()

    def fault() -> None:
        if clock.now > start + 4.0:
            return
        alive = [each for each in cluster.nodes.values() if each.alive]
        chance = draw.random()
        if chance < 0.25 and len(alive) > 1:
            cluster.crash(draw.choice(alive))
        elif chance < 0.55:
            links = [each.parent for each in alive if each.parent is not None and each.parent.up]
            if links:
                cluster.cut(draw.choice(links))
        elif chance < 0.75 and alive:
            cluster.elect(draw.choice(alive))
        elif alive:
            node = draw.choice(alive)
            node.crew.set_work(some(draw.choice(kinds)), draw.randint(1, 3), clock.now)
            node.narrowed = True
            node.act()
        clock.schedule(clock.now + draw.random() * 0.4, fault)

    def mend() -> None:
        """Start dead nodes again, and elect a host if there is none: what an administrator and the election do."""
        for name, node in list(cluster.nodes.items()):
            if not node.alive:
                again = cluster.add(name, kinds=some(node.crew.kinds), slots=node.crew.slots)
                cluster.seek(again)
        if cluster.host is None or not cluster.host.alive:
            cluster.elect(draw.choice([each for each in cluster.nodes.values() if each.alive]))
        if clock.now < start + 60.0:
            clock.schedule(clock.now + 0.2 + draw.random() * 0.4, mend)

    submit_some()
    if faults:
        fault()
    mend()
    clock.run_until(start + 5.0)
    for place, kind in enumerate(kinds[:2]):  # each kind has a worker in the end
        node = cluster.nodes[names[place]]
        node.crew.set_work(some(kind), 2, clock.now)
        node.narrowed = True
        node.act()
    clock.run_until(start + 8.0)
    calm = not poison  # else workers die on

    def look() -> None:
        cluster.look_for_idle()
        if clock.now < start + 55.0:
            clock.schedule(clock.now + 0.05, look)

    if calm:
        for number in range(100):  # of the last ones some take long: what was granted behind them goes elsewhere
            payload = b"last %d" % number
            cluster.submit(cluster.nodes[names[0]], payload, kind=draw.choice(["work", "other"]), visibility=0.5)
        look()
    clock.run_until(start + 55.0, cluster.quiet)
    clock.run_until(clock.now + 4.0)
    cluster.check()
    if not faults:
        for job in cluster.submissions.values():
            once = cluster.starts.get(job.payload, 0) == 1
            assert once or poison or job.cancelled or job.key is not None, f"{job.payload!r} did not start once"
            innocent = job.key is None and not job.payload.startswith(b"poison") and job.tries > 1
            assert not innocent or job.end is None or job.end.outcome != "dead", f"{job.payload!r} is dead"
    return cluster
