"""Simulated voters over a network with faults: random histories, and the invariants checked after every event.

::

    python -m tests.many_histories election 100000

A history has 1 to 7 voters, with or without disks, some of them with both kinds; crashes, late and torn writes,
partitions of one or both ways, losses, duplicates, reordering, clocks that drift by 9 % and jump forward, stalls,
proposals, snapshots and handovers. It ends with a healed network, in which a host must serve.

The invariants are those of `nngkit/cluster/election/voter.py`. Histories in which a majority loses its memory are
checked for one host in each term, for one lease, and for their end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any

from nngkit.cluster.election.log import ElectionLog
from nngkit.cluster.election.messages import KINDS, AppendReply, SnapshotReply, VoteReply
from nngkit.cluster.election.values import (
    Deposed,
    Elected,
    ElectionLimits,
    Persist,
    Recovered,
    Restored,
    SaveEntries,
    SaveMeta,
    SaveSnapshot,
)
from nngkit.cluster.election.voter import NotHost, Voter
from nngkit.envelope import decode, encode
from nngkit.errors import Full

START = 1_000_000.0  # true time at the start of a history, in seconds
SETTLE = 30  # leases in which a healed network must serve


class Disk:
    """State that a durable voter has stored; writes are done in order, and a crash loses those that are not done."""

    def __init__(self) -> None:
        self.term = 0
        self.vote: str | None = None
        self.epochs: tuple[tuple[str, int], ...] = ()
        self.log = ElectionLog()
        self.used = False

    def apply(self, step: Persist) -> None:
        self.used = True
        match step:
            case SaveMeta():
                assert step.term >= self.term, "a term went back"
                self.term, self.vote, self.epochs = step.term, step.vote, step.epochs
            case SaveEntries():
                assert self.log.base < step.first <= self.log.last + 1, "a hole on disk"
                self.log.truncate(step.first)
                self.log.append(step.term, step.entries)
            case SaveSnapshot():
                if step.keep:
                    assert self.log.term_at(step.snapshot.index) == step.snapshot.term
                    self.log.install(step.snapshot)
                else:
                    self.log = ElectionLog(step.snapshot if step.snapshot.index else None)

    def restored(self) -> Restored | None:
        if not self.used:
            return None
        log = self.log
        entries = tuple((log.term_at(at) or 0, log.entry(at)) for at in range(log.base + 1, log.last + 1))
        return Restored(self.term, self.vote, self.epochs, log.snapshot, entries)


class Member:
    """One voter, its clock, its disk and its state machine, which is a chain of digests."""

    def __init__(self, name: str, rng: Random, disk: Disk | None) -> None:
        self.name, self.disk = name, disk
        self.offset = rng.uniform(0.0, 1000.0)
        self.rate = rng.uniform(0.91, 1.09)
        self.since = START
        self.voter: Voter | None = None
        self.life = 0
        self.epoch = 0
        self.applied, self.digest = 0, b""
        self.writing: list[list[Persist]] = []
        self.woken = 0.0
        self.stalled_until = 0.0

    def local(self, now: float) -> float:
        return self.offset + (now - self.since) * self.rate

    def true(self, local: float) -> float:
        return self.since + (local - self.offset) / self.rate

    @property
    def running(self) -> Voter:
        assert self.voter is not None
        return self.voter


class Broken(AssertionError):
    """An invariant does not hold."""


class ElectionNetwork:
    """One history. All choices are drawn from the seed."""

    def __init__(
        self,
        seed: int,
        *,
        size: int | None = None,
        disks: str | None = None,
        beyond: bool | None = None,
        lossy: bool | None = None,
        limits: ElectionLimits | None = None,
    ) -> None:
        self.rng = rng = Random(seed)
        self.now = START
        self.events: list[tuple[float, int, Callable[[], object]]] = []
        self.counter = 0
        size = size or rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 5, 5, 7))
        names = [chr(97 + number) for number in range(size)]
        disks = disks or rng.choice(("none", "none", "all", "mixed"))
        share = {"none": 0.0, "all": 1.0, "mixed": 0.5}[disks]
        self.members = {name: Member(name, rng, Disk() if rng.random() < share else None) for name in names}
        self.mixed = disks == "mixed"
        self.quorum = size // 2 + 1
        self.may_beyond = rng.random() < 0.15 if beyond is None else beyond
        self.beyond = False
        self.settled = False
        self.limits = limits or ElectionLimits(
            append_bytes=rng.choice((64, 1000)),
            window_bytes=rng.choice((200, 5000)),
            keep_bytes=rng.choice((1, 500)),
        )
        self.lossy = rng.random() < 0.6 if lossy is None else lossy
        self.loss = rng.choice((0.0, 0.02, 0.2)) if self.lossy else 0.0
        self.duplication = rng.choice((0.0, 0.1)) if self.lossy else 0.0
        self.delay = rng.choice((0.001, 0.01, 0.08))
        self.fsync = rng.choice((0.0, 0.005, 0.05))
        self.blocked: set[tuple[str, str]] = set()
        self.arrived: dict[tuple[str, str], float] = {}
        self.session: dict[tuple[str, str], int] = {}
        self.hosts: dict[int, tuple[str, int]] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}  # index: the term that committed it, and the entry
        self.digests: dict[int, bytes] = {0: b""}
        self.chain: list[int] = [0]  # indexes with a digest, ascending
        self.number = 0
        self.counts: dict[str, int] = {}
        self.trace: list[str] | None = None

    # ---- time

    def at(self, time: float, call: Callable[[], object]) -> None:
        self.counter += 1
        heapq.heappush(self.events, (time, self.counter, call))

    def run_until(self, time: float, condition: Callable[[], object] | None = None) -> bool:
        while self.events and self.events[0][0] <= time:
            at, _, call = heapq.heappop(self.events)
            self.now = max(self.now, at)
            call()
            if condition is not None and condition():
                return True
        self.now = max(self.now, time)
        return False

    def log(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now - START:9.4f} {text}")

    # ---- members

    def start(self, name: str) -> None:
        member = self.members[name]
        member.life += 1
        member.woken = 0.0
        member.epoch = max(member.epoch + 1, int(self.now * 1e6))
        if not self.may_beyond and len(self.members) > 1:  # otherwise only clocks keep terms apart
            member.epoch += self.rng.randrange(-2_000_000, 2_000_000)
            if self.rng.random() < 0.1:
                member.epoch -= 60_000_000  # its clock went back
        restored = member.disk.restored() if member.disk else None
        member.applied, member.digest = 0, b""
        member.voter = Voter(
            name,
            list(self.members),
            epoch=member.epoch,
            now=member.local(self.now),
            rng=Random(self.rng.random()),
            preference=self.rng.choice((0, 0, 1)),
            restored=restored,
            durable=member.disk is not None,
            limits=self.limits,
        )
        self.log(f"{name} starts, {member.voter.role}")
        member.writing.clear()
        for other in self.members.values():
            if other is not member and other.voter is not None:
                self.connect(name, other.name)
        self.act(member)

    def crash(self, name: str) -> None:
        member = self.members[name]
        self.log(f"{name} crashes")
        if member.disk is not None:
            for steps in member.writing[: self.rng.randint(0, len(member.writing))]:
                for step in steps[: self.rng.randint(0, len(steps))]:
                    member.disk.apply(step)
                break
        member.writing.clear()
        if member.disk is None and not self.settled:
            self.beyond = True
        member.voter = None
        member.life += 1
        for other in self.members.values():
            if other.voter is not None and other is not member:
                self.disconnect(name, other.name)

    def connect(self, one: str, other: str) -> None:
        for a, b in ((one, other), (other, one)):
            self.session[a, b] = self.session.get((a, b), 0) + 1
        for a, b in ((one, other), (other, one)):
            if (a, b) in self.blocked and not self.lossy:
                continue
            member = self.members[a]
            if member.voter is not None:
                member.voter.peer_up(b, member.local(self.now))
                if a != one or one == other:
                    self.act(member)

    def disconnect(self, one: str, other: str) -> None:
        for a, b in ((one, other), (other, one)):
            self.session[a, b] = self.session.get((a, b), 0) + 1
            member = self.members[a]
            if member.voter is not None:
                member.voter.peer_down(b, member.local(self.now))
                self.act(member)

    def act(self, member: Member) -> None:
        """Carry out the effects of a voter, check it, and come back when it wants to."""
        voter = member.voter
        if voter is None:
            return
        effects = voter.take()
        if effects.persist:
            assert member.disk is not None
            member.writing.append(effects.persist)
            if len(member.writing) == 1:
                self._write(member)
        blank = voter.role == "blank"
        for to, message in effects.sends:
            if blank and isinstance(message, AppendReply | SnapshotReply):
                self.check(message.blank and not message.stamp, "a blank voter acknowledges")
            if blank and isinstance(message, VoteReply) and message.granted:
                self.check(voter._recovery is not None and voter._recovery.beyond, "a blank voter votes")
            self.send(member.name, to, KINDS.pack(message))
        if effects.restore is not None:
            index, state = effects.restore
            if not self.beyond:
                self.check(index > member.applied or not index, "a snapshot goes back")
                self.check(self.digest_at(index) == state, f"a wrong snapshot at {index}")
            member.applied, member.digest = index, state
        for index, entry in effects.committed:
            self.check(index > member.applied, "committed entries are not ascending")
            member.applied = index
            member.digest = blake2b(member.digest + entry, digest_size=8).digest()
            if not self.beyond:
                if index not in self.committed:  # its host is the first to deliver an entry
                    self.committed[index] = voter.term, entry
                    self.check_later_hosts(index)
                self.check(self.committed[index][1] == entry, f"entry {index} changed after its commit")
                if index > self.chain[-1]:
                    self.chain.append(index)
                    self.digests[index] = member.digest
                self.check(self.digests.get(index) == member.digest, f"another history before {index}")
        for event in effects.events:
            self.count(type(event).__name__)
            self.log(f"{member.name} {event}")
            if isinstance(event, Elected):
                self.check_delivered(member, event.term)
            if isinstance(event, Deposed):
                self.count(f"deposed: {event.why}")
            if isinstance(event, Recovered):
                self.count(event.how)
                if event.how == "beyond":
                    # the first start of a cluster with both kinds looks like a loss
                    self.check(self.beyond or self.mixed, "a recovery claims that a majority lost its memory")
        self.check_all(member)
        self._wake_later(member)

    def _wake_later(self, member: Member) -> None:
        voter = member.running
        at = max(member.true(voter.wake_at) + 1e-6, self.now + 1e-5, member.stalled_until)
        if self.now < member.woken <= at + 1e-9:
            return
        member.woken = at
        life = member.life

        def wake() -> None:
            if member.life != life or member.woken != at:
                return
            member.woken = 0.0
            voter = member.running
            local = member.local(self.now)
            if local >= voter.wake_at:
                voter.tick(local)
            self.act(member)

        self.at(at, wake)

    def _write(self, member: Member) -> None:
        life = member.life

        def written() -> None:
            if member.life != life:
                return
            steps = member.writing.pop(0)
            assert member.disk is not None
            for step in steps:
                member.disk.apply(step)
            member.running.persisted(steps[-1].token, member.local(self.now))
            if member.writing:
                self._write(member)
            self.act(member)

        self.at(self.now + self.fsync * self.rng.uniform(0.5, 2.0), written)

    # ---- network

    def send(self, sender: str, receiver: str, row: list[Any]) -> None:
        rng = self.rng
        target = self.members[receiver]
        if (sender, receiver) in self.blocked or target.voter is None:
            return
        copies = 1
        if self.lossy:
            if rng.random() < self.loss:
                return
            copies += rng.random() < self.duplication
        if rng.random() < 0.01:
            row = decode(encode(row), what="message", limit=1 << 22)
        for _ in range(copies):
            at = self.now + self.delay * rng.uniform(0.2, 1.8)
            if not self.lossy:
                at = self.arrived[sender, receiver] = max(at, self.arrived.get((sender, receiver), 0.0) + 1e-7)
            elif rng.random() < 0.01:
                at += rng.uniform(0.0, 3.0)
            self._arrive(at, sender, receiver, list(row), self.session[sender, receiver])

    def _arrive(self, at: float, sender: str, receiver: str, row: list[Any], session: int) -> None:
        def arrive() -> None:
            target = self.members[receiver]
            if target.voter is None or (not self.lossy and self.session[sender, receiver] != session):
                return
            if target.stalled_until > self.now:
                self._arrive(target.stalled_until, sender, receiver, row, session)
                return
            message = KINDS.parse(row, sender)
            assert message is not None
            target.voter.receive(sender, message, target.local(self.now))
            self.act(target)

        self.at(at, arrive)

    # ---- checks

    def check(self, holds: object, text: str) -> None:
        if not holds:
            raise Broken(f"{self.now - START:.4f}: {text}")

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def digest_at(self, index: int) -> bytes | None:
        at = len(self.chain) - 1
        while at >= 0 and self.chain[at] > index:
            at -= 1
        return self.digests[self.chain[at]]

    def check_all(self, member: Member) -> None:
        voter = member.running
        if voter.role == "host":
            if voter.term not in self.hosts:
                self.hosts[voter.term] = member.name, member.life
                for index in self.committed:
                    self.check_has(voter, index)
            who = self.hosts[voter.term]
            self.check(who == (member.name, member.life), f"two hosts of term {voter.term}")
            if voter.holds_lease(member.local(self.now)):
                leases = [
                    each.name
                    for each in self.members.values()
                    if each.voter is not None and each.voter.holds_lease(each.local(self.now))
                ]
                self.check(len(leases) == 1, f"{leases} hold the lease")
        lost = sum(
            each.disk is None and (each.voter is None or each.voter.role == "blank") for each in self.members.values()
        )
        if lost <= len(self.members) - self.quorum:
            self.settled = True

    def check_has(self, voter: Voter, index: int) -> None:
        """Check that a host has a committed entry, unless a later term committed it.

        Let a host of term t commit an entry of t, and with it all before: a majority has acknowledged it in t. Let
        T > t be the first later term with a host that lacks it. One of the voters that elected this host had
        acknowledged the entry, and before it voted, as a voter acknowledges nothing of a term before its own. It still
        had the entry then, as all hosts between t and T have it; what a voter without a disk forgets does not count
        (voter.py, Memory). It votes for no log behind its own, so the last entry of the log it voted for was of t
        and not before this entry, or of a term between t and T, whose host had this entry. Either way the log has it: a
        contradiction.

        For T < t nothing follows, and the entry may be missing. A host stalls after it has sent the first entry of its
        term; the next host, which has this entry, commits more. When the stalled host goes on, it may read the
        acknowledgements before it hears of the later term. It rightly commits its first entry, and is `Elected`: it has
        what earlier terms have committed, but not what the next one has. It does not have the lease.
        """
        term, entry = self.committed[index]
        if self.beyond or term > voter.term:
            return
        log = voter._replica.log
        self.check(index <= log.last, f"host {voter.id} of {voter.term} misses entry {index}")
        self.check(index <= log.base or log.entry(index) == entry, f"host {voter.id} has another entry {index}")

    def check_later_hosts(self, index: int) -> None:
        """Check that all hosts have an entry that was committed just now, perhaps by one that was replaced before."""
        for member in self.members.values():
            if member.voter is not None and member.voter.role == "host":
                self.check_has(member.voter, index)

    def check_delivered(self, member: Member, elected: int) -> None:
        """Check that a host which is `Elected` has delivered all that earlier terms have committed."""
        if self.beyond:
            return
        for index, (term, _) in self.committed.items():
            self.check(term >= elected or index <= member.applied, f"{member.name} has not delivered entry {index}")

    def check_logs(self) -> None:
        logs = [each.voter._replica.log for each in self.members.values() if each.voter is not None]
        for one in logs:
            for other in logs:
                agree = False
                for index in range(min(one.last, other.last), max(one.base, other.base), -1):
                    if one.term_at(index) == other.term_at(index):
                        agree = True
                        self.check(one.entry(index) == other.entry(index), f"logs do not match at {index}")
                    else:
                        self.check(not agree or self.beyond, f"logs disagree before an agreed entry, at {index}")

    # ---- a history

    def random_event(self) -> None:
        rng = self.rng
        member = rng.choice(list(self.members.values()))
        choice = rng.random()
        if choice < 0.55:
            self.propose_somewhere()
        elif choice < 0.63:
            if member.voter is not None and member.applied:
                member.voter.compact(member.applied, member.digest)
                self.act(member)
        elif choice < 0.72:
            if member.voter is not None and self.may_crash(member):
                self.crash(member.name)
                if rng.random() < 0.7:
                    self.at(self.now + rng.uniform(0.0, 1.0), lambda: self.restart(member.name))
        elif choice < 0.80:
            self.restart(member.name)
        elif choice < 0.86:
            self.cut()
        elif choice < 0.92:
            self.heal()
        elif choice < 0.94:
            member.offset, member.since = member.local(self.now), self.now
            member.rate = rng.uniform(0.91, 1.09)
            if rng.random() < 0.5:
                member.offset += rng.uniform(0.3, 5.0)
        elif choice < 0.97:
            member.stalled_until = self.now + rng.uniform(0.0, 1.5)
        elif choice < 0.985:
            if member.voter is not None:
                member.voter.step_down(member.local(self.now))
                self.act(member)
        elif self.lossy:
            self.loss = rng.choice((0.0, 0.05, 0.3))

    def may_crash(self, member: Member) -> bool:
        if member.disk is not None:
            return True
        if not self.settled:
            return self.may_beyond
        lost = sum(
            each.disk is None and (each.voter is None or each.voter.role == "blank") for each in self.members.values()
        )
        if member.running.role == "blank" or lost + 1 <= len(self.members) - self.quorum:
            return True
        if self.may_beyond:
            self.beyond = True
        return self.may_beyond

    def restart(self, name: str) -> None:
        if self.members[name].voter is None:
            self.start(name)

    def cut(self) -> None:
        names = list(self.members)
        side = set(self.rng.sample(names, self.rng.randint(1, len(names))))
        both = self.rng.random() < 0.6 or not self.lossy
        for a in names:
            for b in names:
                if a in side and b not in side:
                    self.blocked.add((a, b))
                    if both:
                        self.blocked.add((b, a))
        if not self.lossy:
            for a in sorted(side):
                for b in sorted(set(names) - side):
                    self.disconnect(a, b)

    def heal(self) -> None:
        blocked, self.blocked = self.blocked, set()
        if not self.lossy:
            for a, b in sorted({(min(pair), max(pair)) for pair in blocked}):
                if self.members[a].voter is not None and self.members[b].voter is not None:
                    self.connect(a, b)
                    self.act(self.members[a])

    def propose_somewhere(self) -> None:
        for member in self.members.values():
            if member.voter is not None and member.voter.role == "host" and member.stalled_until <= self.now:
                self.propose(member, self.rng.choice((1, 1, 3, 20)))

    def propose(self, member: Member, count: int = 1) -> bool:
        entries = []
        for _ in range(count):
            self.number += 1
            entries.append(b"%d" % self.number + b"." * self.rng.choice((0, 0, 10, 100)))
        try:
            member.running.propose(entries, member.local(self.now))
        except (NotHost, Full):
            return False
        finally:
            self.act(member)
        self.count("proposed")
        return True

    def play(self, events: int = 60, pace: float = 0.25) -> None:
        """Play one history, and end it well."""
        for name in self.members:
            self.at(self.now + self.rng.uniform(0.0, 0.3), lambda name=name: self.restart(name))  # type: ignore[misc]
        self.run_until(self.now + self.rng.choice((0.2, 2.0)))
        for _ in range(events):
            self.run_until(self.now + self.rng.expovariate(1 / pace) * self.rng.choice((0.1, 1.0, 1.0)))
            self.random_event()
        self.check_logs()
        self.finish()

    def finish(self) -> None:
        """Heal the network; a host must serve all voters within some leases."""
        self.loss = self.duplication = 0.0
        self.delay, self.fsync = min(self.delay, 0.01), min(self.fsync, 0.005)
        self.heal()
        for member in self.members.values():
            member.stalled_until = min(member.stalled_until, self.now)
            if member.voter is not None:
                self._wake_later(member)
        for name in self.members:
            self.restart(name)
        end = self.now + SETTLE * self.limits.lease
        serving = self.run_until(end, self.serving)
        self.check(serving, f"no host serves: {self.summary()}")
        self.check_logs()
        [host] = [each for each in self.members.values() if self.leads(each)]
        self.check(self.propose(host), "the host accepts nothing")
        last = host.running.last
        same = self.run_until(
            self.now + 5.0, lambda: all(each.running.commit >= last for each in self.members.values())
        )
        self.check(same, f"an entry is not delivered to all: {self.summary()}")
        digests = {each.digest for each in self.members.values()}
        self.check(len(digests) == 1 or self.beyond, "state machines differ")

    def leads(self, member: Member) -> bool:
        voter = member.voter
        if voter is None or voter.role != "host" or voter._leaving < float("inf"):
            return False
        return voter.holds_lease(member.local(self.now))

    def serving(self) -> bool:
        hosts = [each.running for each in self.members.values() if self.leads(each)]
        return len(hosts) == 1 and all(
            each.running.role != "blank" and each.running.host == hosts[0].id and each.running.term == hosts[0].term
            for each in self.members.values()
        )

    def summary(self) -> str:
        return ", ".join(
            f"{each.name} {each.voter.role} {each.voter.term} commit {each.voter.commit} of {each.voter.last}"
            if each.voter is not None
            else f"{each.name} down"
            for each in self.members.values()
        )
