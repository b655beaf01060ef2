"""The invariants of replica.py under loss, repetition, reordering, delay, partitions, restarts and late joins.

Several peers with several documents over a model of the network; the content is `plain.py`'s, which checks causality
itself. The numbered invariants of replica.py are checked after every step; at the end the network is calm, and all
peers must converge.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from nngkit.documents.sync.local_copy import LocalCopy, Step
from nngkit.documents.sync.messages import Diff, Give, Heartbeat, Nack, SyncReply, SyncRequest, Updates, Want
from nngkit.documents.sync.replica import Ask, AskAll, Replica, Settings
from nngkit.documents.sync.timing import RoundTrips
from nngkit.documents.sync.wire import decode_bus, decode_reply, decode_request, encode
from nngkit.documents.versions import EditStream, Versions
from tests.documents.greetings import heartbeat
from tests.documents.plain import Disk, Name, Plain, read

DOCS = ("minutes", "table")
NODES = 4
WHO = st.integers(0, NODES - 1)


class Node:
    """A peer: its copies while it is alive, its disks always."""

    def __init__(self, number: int, askable: bool) -> None:
        self.number = number
        self.askable = askable
        self.epoch = 0
        self.alive = False
        self.disks = {doc: Disk() for doc in DOCS}
        self.copies: dict[str, LocalCopy] = {}
        self.contents: dict[str, Plain] = {}
        self.last: dict[str, Step] = {}

    @property
    def me(self) -> EditStream:
        return EditStream(bytes([self.number] * 8), self.epoch)


class Question:
    """A request in flight."""

    def __init__(self, requester: Node, copy: LocalCopy, ask: Ask, request: SyncRequest) -> None:
        self.requester, self.copy, self.ask = requester, copy, ask
        self.epoch = requester.epoch
        self.data = encode(request)


class Anything(RuleBasedStateMachine):
    """The rules are actions of peers, users and the network."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.saw: dict[str, dict[Name, frozenset[Name]]] = {doc: {} for doc in DOCS}
        self.flying: list[tuple[Node, EditStream, bytes]] = []
        self.questions: list[Question] = []
        self.cut: set[frozenset[int]] = set()
        self.acknowledged: dict[str, set[Name]] = {doc: set() for doc in DOCS}
        self.joining: list[tuple[LocalCopy, float, dict[EditStream, Versions]]] = []  # and what each peer had then

    @initialize(
        seed=st.integers(0, 2**32),
        log=st.sampled_from([2, 4096]),
        held=st.sampled_from([2, 6, 8192]),
        few=st.sampled_from([3, 64]),
        page=st.booleans(),
        late=st.booleans(),
    )
    def begin(self, seed: int, log: int, held: int, few: int, page: bool, late: bool) -> None:
        self.chance = Random(seed)
        self.settings_used = Settings(log_edits=log, held_edits=held, few=few)
        self.nodes = [Node(number, askable=not (page and number == 0)) for number in range(NODES)]
        for node in self.nodes[: NODES - late]:
            self._start(node)

    # ------------------------------------------------------------------ peers

    def _start(self, node: Node) -> None:
        node.epoch += 1
        node.alive = True
        trips = RoundTrips()
        for doc in DOCS:
            content = Plain(self.saw[doc])
            versions, updates, log = node.disks[doc].load()
            for update in updates:
                content.names |= frozenset(read(update))
            replica = Replica(
                doc,
                node.me,
                rng=self.chance,
                settings=self.settings_used,
                versions=versions,
                log=log,
                askable=node.askable,
                round_trips=trips,
            )
            node.contents[doc] = content
            node.copies[doc] = LocalCopy(replica, content, log=node.disks[doc], relay=False, refused=refused)
        self._step(node)

    @rule(who=WHO, doc=st.sampled_from(DOCS), several=st.integers(1, 5))
    def edit(self, who: int, doc: str, several: int) -> None:
        node = self.nodes[who]
        if not node.alive:
            return
        for _ in range(several):
            copy, content = node.copies[doc], node.contents[doc]
            copy.edited(content.write(node.me, copy.replica.versions.get(node.me, 0) + 1), self.now)
        self._step(node)

    @rule(who=WHO, doc=st.sampled_from(DOCS))
    def join(self, who: int, doc: str) -> None:
        node = self.nodes[who]
        if node.alive:
            copy = node.copies[doc]
            self.now += 1e-6  # separates earlier requests in time
            had = {other.me: dict(other.copies[doc].replica.versions) for other in self.nodes if other.alive}
            self.joining.append((copy, copy.replica.catch_up(self.now), had))
            self._step(node)

    @rule(who=WHO)
    def sync(self, who: int) -> None:
        node = self.nodes[who]
        if node.alive:
            for doc in DOCS:
                node.disks[doc].sync()
                self.acknowledged[doc] |= node.contents[doc].names

    @rule(who=WHO, disk=st.sampled_from([True, True, True, False]), noticed=st.booleans())
    def crash(self, who: int, disk: bool, noticed: bool) -> None:
        node = self.nodes[who]
        if not node.alive or not any(other.alive for other in self.nodes if other is not node):
            return
        node.alive = False
        for doc in DOCS:
            node.disks[doc].crash()
            if not disk:  # the disk is lost: edits that only it had are not expected back
                node.disks[doc] = Disk()
                self.acknowledged[doc] &= {
                    name for other in self.nodes for update in other.disks[doc].safely() for name in read(update)
                }
        if noticed:
            for other in self.nodes:
                if other.alive:
                    self._lost(other, node.me)

    def _lost(self, node: Node, stream: EditStream) -> None:
        for copy in node.copies.values():
            copy.replica.left(stream)
        self._step(node)

    @rule(who=WHO)
    def start(self, who: int) -> None:
        if not self.nodes[who].alive:
            for other in self.nodes:
                if other.alive:
                    self._lost(other, self.nodes[who].me)
            self._start(self.nodes[who])

    # ------------------------------------------------------------------ the network

    @rule(some=st.sets(WHO, min_size=1, max_size=NODES - 1))
    def split(self, some: set[int]) -> None:
        self.cut |= {frozenset((a, b)) for a in some for b in range(NODES) if b not in some}

    @precondition(lambda self: self.cut)
    @rule()
    def heal(self) -> None:
        self.cut.clear()

    def _linked(self, a: Node, b: Node) -> bool:
        return a.alive and b.alive and frozenset((a.number, b.number)) not in self.cut

    def _publish(self, node: Node, data: bytes) -> None:
        self.flying += [(other, node.me, data) for other in self.nodes if other is not node]

    @precondition(lambda self: self.flying)
    @rule(at=st.integers(0, 10**6), keep=st.booleans())
    def deliver(self, at: int, keep: bool) -> None:
        index = at % len(self.flying)
        self._hear(*self.flying[index])
        if not keep:
            del self.flying[index]

    @precondition(lambda self: self.flying)
    @rule(seed=st.integers(0, 2**16), loss=st.sampled_from([0.0, 0.3, 0.9]))
    def storm(self, seed: int, loss: float) -> None:
        """Deliver many messages in random order; some stay in flight, some are repeated."""
        fate = Random(seed)
        flying, self.flying = self.flying, []
        fate.shuffle(flying)
        for one in flying:
            if fate.random() < loss:
                continue
            if fate.random() < 0.3:
                self.flying.append(one)
            if fate.random() < 0.8:
                self._hear(*one)

    def _hear(self, node: Node, sender: EditStream, data: bytes) -> None:
        other = self.nodes[sender.origin[0]]
        if other.me != sender or not self._linked(node, other):
            return
        message = decode_bus(data)
        if isinstance(message, Heartbeat):
            for copy in node.copies.values():
                copy.replica.joined(sender, other.askable)
            for one in message.docs:
                node.copies[one.doc].heard(one, sender, self.now)
        else:
            assert isinstance(message, Updates)
            node.copies[message.doc].heard(message, sender, self.now)
        self._step(node)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.3, 2.0]), heartbeats=st.sets(WHO))
    def wait(self, seconds: float, heartbeats: set[int]) -> None:
        self.now += seconds
        for number in sorted(heartbeats):
            self._heartbeat(self.nodes[number])
        for node in self.nodes:
            self._step(node)

    def _heartbeat(self, node: Node) -> None:
        if node.alive:
            docs = tuple(node.copies[doc].replica.make_heartbeat(self.now) for doc in DOCS)
            for one in docs:
                if one.versions is not None:  # invariant 6, for the comparisons of other peers
                    replica = node.copies[one.doc].replica
                    assert one.content == node.contents[one.doc].digest()
                    assert self.now - replica.history.changed_at > replica.settings.quiet - 1e-9
            self._publish(node, encode(heartbeat(node.me, docs)))

    @precondition(lambda self: self.questions)
    @rule(at=st.integers(0, 10**6), works=st.sampled_from([True, True, True, False]))
    def answer(self, at: int, works: bool) -> None:
        question = self.questions.pop(at % len(self.questions))
        requester = question.requester
        if not requester.alive or requester.epoch != question.epoch:
            return
        other = self.nodes[question.ask.peer.origin[0]]
        if works and other.me == question.ask.peer and self._linked(requester, other):
            reply = decode_reply(self._reply(other, question.data))
            body = reply.body if isinstance(reply, Diff) else None
            assert body is None or isinstance(body, bytes)
            question.copy.replied(question.ask, reply, self.now, body=body)
        else:
            question.copy.failed(question.ask, self.now)
        self._step(requester)

    def _reply(self, node: Node, data: bytes) -> bytes:
        request = decode_request(data)
        assert isinstance(request, Nack | Want | Give)
        copy = node.copies[request.doc]
        reply: SyncReply | None
        match request:
            case Nack():
                reply = copy.resend(request)
            case Want():
                update, versions = copy.difference(request)
                reply = Diff(node.me, copy.name, update, versions)
            case Give():
                reply = copy.given(request, self.now)
        assert reply is not None
        self._step(node)
        return encode(reply)

    # ------------------------------------------------------------------ invariants

    def _step(self, node: Node) -> None:
        if not node.alive:
            return
        for doc, copy in node.copies.items():
            step = copy.step(self.now)
            node.last[doc] = step
            for message in step.publish:
                self._publish(node, encode(message))
            for ask, request in step.ask:
                self.questions.append(Question(node, copy, ask, request))
            self._check(node, doc, step)

    def _check(self, node: Node, doc: str, step: Step) -> None:
        replica, content = node.copies[doc].replica, node.contents[doc]
        history, caps = replica.history, replica.settings
        # 1: plain.py checks order, uniqueness and dependencies; so the content is what the versions say
        assert content.versions() == replica.versions
        # 2
        for stream, held in history.held.items():
            first = replica.versions.get(stream, 0) + 1
            assert min(held) >= first, "what is delivered is held"
            assert first not in held or history.waits_for(held[first][0]) is not None, "what can be delivered is held"
        # 3
        asking = {peer: known for peer, known in replica._peers.items() if known.asked_at is not None}
        askable = [peer for peer, known in replica._peers.items() if known.askable]
        if replica.missing and askable:
            assert asking or step.wake < float("inf"), "no request is open, and none will be made"
        assert step.wake > self.now or asking, "it is due for ever"
        # 4
        mine = [q for q in self.questions if q.copy is node.copies[doc] and q.epoch == node.epoch]
        open_now = [q.ask for q in mine if q.ask.peer in asking]
        assert len({ask.peer for ask in open_now}) == len(open_now), "a peer is asked two things at a time"
        assert sum(isinstance(ask, AskAll) for ask in open_now) <= 1
        # 5
        assert history.held_edits == sum(map(len, history.held.values())) <= caps.held_edits
        assert len(history._log) <= caps.log_edits
        # after `joined`, everything of the peers that replied is here
        for copy, since, had in self.joining:
            if copy is node.copies[doc]:
                for peer, known in replica._peers.items():
                    if known.caught_up_at >= since and peer in had:
                        assert replica.has(had[peer]), "it counts as caught up, and is not"
        # 6
        for ask, _ in step.ask:
            if isinstance(ask, AskAll) and ask.whole:
                assert not replica.missing
                assert self.now >= history.changed_at + caps.quiet

    def teardown(self) -> None:
        """Calm the network: all peers are present, all messages arrive, all requests are answered."""
        if not hasattr(self, "nodes"):
            return
        self.cut.clear()
        for node in self.nodes:
            self.start(node.number)
        until = self.now + 120.0
        while self.now < until and not self._agreed():
            flying, self.flying = self.flying, []
            for one in flying:
                self._hear(*one)
            for _ in range(len(self.questions)):
                self.answer(0, True)
            self.wait(0.05, set(range(NODES)))
        assert self._agreed(), "they differ"
        for copy, since, _ in self.joining:
            if any(copy is node.copies[doc] for node in self.nodes for doc in DOCS):
                standing = copy.replica.catch_up_status(since, self.now)
                assert None not in standing, "a waiter waits for ever"
        for doc in DOCS:
            assert self.nodes[0].contents[doc].names >= self.acknowledged[doc], "what was acknowledged is lost"

    def _agreed(self) -> bool:
        here = [copy for node in self.nodes for copy in node.copies.values()]
        if any(
            None in copy.replica.catch_up_status(since, self.now) for copy, since, _ in self.joining if copy in here
        ):
            return False
        return all(
            node.copies[doc].replica.versions == self.nodes[0].copies[doc].replica.versions
            and node.contents[doc].names == self.nodes[0].contents[doc].names
            for node in self.nodes[1:]
            for doc in DOCS
        )


def refused(peer: EditStream | None, why: str) -> None:
    raise AssertionError(f"{peer} was refused: {why}")


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=30, stateful_step_count=40)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_invariants_hold_under_random_events() -> None:
    run_state_machine_as_test(Anything, settings=settings(max_examples=400, stateful_step_count=60))
