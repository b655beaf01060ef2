"""The numbered invariants of the registry's docstring under random inputs, and a thousand rounds."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import cbor2
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nngkit.discovery.messages import SurveyReply, TextReply, is_cbor, parse_survey_reply
from nngkit.discovery.provider import Event, Key, Provider, Reason, State, Status
from nngkit.discovery.registry.liveness import LivenessRules, RegistryLimits
from nngkit.discovery.registry.registry import Registry
from nngkit.errors import ServiceNotFound
from nngkit.testing import Conditions, Network
from tests.seeds import seeds

pytestmark = pytest.mark.slow

UP, SUSPECT, DOWN, JOINING = State.UP, State.SUSPECT, State.DOWN, State.JOINING
GARBAGE = (
    b"",
    b"\xa1\x01",
    b"answer at port 5",
    cbor2.dumps({"v": 2, "type": "reply"}),
    b"\xa0" + b"\0" * 70_000,
)


def provider(n: int = 1, name: str = "answer", **changes: object) -> Provider:
    return replace(Provider(name, f"tcp://10.0.0.{n}:9000", f"id{n}", 1), **changes)  # type: ignore[arg-type]


def text(n: int) -> bytes:
    return TextReply("answer", f"tcp://10.0.0.{n}:9000").encode()


# The requirement: 1,000 rounds, 400 services, 5 % of the replies lost


def test_1000_rounds_over_400_services_with_lost_replies_cause_no_false_downs() -> None:
    chance = random.Random(20260101)
    registry = Registry()
    voices = [SurveyReply(f"s{n}", (provider(n, f"service{n % 40}"),)).encode() for n in range(400)]
    for pipe in range(400):
        registry.pipe_joined(pipe, 0.0)
    events: list[Event] = []
    now, lost = 0.0, 0
    started = time.process_time()
    for _ in range(1000):
        reask = False
        while True:
            this = registry.start_round(now, reask=reask)
            now += 0.1
            for pipe, voice in enumerate(voices):
                if chance.random() < 0.05:
                    lost += 1
                else:
                    events += registry.reply(pipe, this, voice, now)
            now += 0.4
            end = registry.end_round(this, now)
            events += end.events
            if not end.ask_again:
                break
            reask = True
        now += 2.0
    took = time.process_time() - started
    assert [event for event in events if event.new is DOWN] == []
    assert lost > 35_000
    assert sum(event.new is SUSPECT for event in events) > 500  # checks the test itself: there were misses
    assert took < 5 or sys.gettrace() is not None  # coverage slows it down


# Rounds on a simulated network


class Daemon:
    """A registry that surveys services on a simulated network. A connection exists while the network has one."""

    def __init__(self, network: Network, services: int) -> None:
        self.network = network
        self.registry = Registry()
        self.events: list[Event] = []
        self.pipes: dict[str, int] = {}
        self.numbers = itertools.count()
        self.voices = {
            f"s{n}": SurveyReply(f"s{n}", (provider(n, f"service{n % 40}"),)).encode() for n in range(services)
        }
        network.start("daemon", receive=self.reply)
        for name in self.voices:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a service, which answers every query."""
        network, voice = self.network, self.voices[name]
        network.start(name, receive=lambda sender, number: network.send(name, "daemon", (number, voice)))

    def connect(self) -> None:
        """Report new and lost connections to the registry."""
        connected = {name for name in self.voices if self.network.connected("daemon", name)}
        for name in sorted(self.pipes.keys() - connected):
            self.events += self.registry.pipe_left(self.pipes.pop(name), self.network.now)
        for name in sorted(connected - self.pipes.keys()):
            self.pipes[name] = next(self.numbers)
            self.events += self.registry.pipe_joined(self.pipes[name], self.network.now)

    def reply(self, sender: str, message: tuple[int, bytes]) -> None:
        number, voice = message
        if sender in self.pipes:
            self.events += self.registry.reply(self.pipes[sender], number, voice, self.network.now)

    def survey(self) -> None:
        """Run a round of 0.5 seconds, and the second one if the registry wants it."""
        for reask in (False, True):
            self.connect()
            this = self.registry.start_round(self.network.now, reask=reask)
            self.network.broadcast("daemon", this.number)
            self.network.run_until(self.network.now + 0.5)
            end = self.registry.end_round(this, self.network.now)
            self.events += end.events
            if not end.ask_again:
                break
        self.network.run_until(self.network.now + 2.0)

    def states(self) -> Counter[State]:
        return Counter(row.state for row in self.registry.view(self.network.now))


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_services_that_crash_or_are_cut_off_are_down_until_they_return(seed: int) -> None:
    network = Network(seed, Conditions(loss=0.05, duplication=0.05, delay=(0.01, 0.4)))
    daemon = Daemon(network, 40)
    for _ in range(40):
        some = network.rng.sample(sorted(daemon.voices), 8)
        partition = network.split(some[:4])
        for name in some[4:]:
            network.crash(name)
        daemon.survey()
        down = {row.provider.id for row in daemon.registry.view(network.now) if row.state is DOWN}
        assert down <= {f"id{name[1:]}" for name in some}
        partition.heal()
        for name in some[4:]:
            daemon.start(name)
        for _ in range(4):
            daemon.survey()
        assert daemon.states()[DOWN] == 0
    assert sum(event.new is DOWN for event in daemon.events) > 200
    assert {event.reason for event in daemon.events if event.new is DOWN} == {Reason.PIPE_LOST}


# The invariants, under random inputs

IDS = st.integers(1, 6)
RECORDS = st.builds(
    provider,
    n=st.integers(1, 4),
    name=st.sampled_from(["answer", "question", "third"]),
    epoch=st.integers(1, 2),
    weight=st.sampled_from([0, 1, 100]),
    load=st.sampled_from([0.0, 1.0]),
    draining=st.sampled_from([False, False, False, True]),
)
REPLIES = st.builds(
    SurveyReply,
    sender=st.sampled_from(["a", "b", "c"]),
    providers=st.lists(RECORDS, max_size=4, unique_by=lambda p: p.key).map(tuple),
    relay=st.sampled_from([False, False, False, True]),
    bye=st.sampled_from([False, False, False, True]),
).map(SurveyReply.encode)
TEXTS = st.builds(text, st.integers(1, 4))
LIMITS = RegistryLimits(providers=8, names=2, per_pipe=4, pipes=4, work_per_round=12, keep_down=30.0, max_down=3)


class Anything(RuleBasedStateMachine):
    """Pipes join and leave, rounds overlap, replies are valid, invalid, late and misplaced; the invariants hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.left: set[int] = set()
        self.newest = 0
        self.replies = 0
        self.voices: dict[int, bytes] = {}
        self.replayed: dict[Key, tuple[State, Provider]] = {}
        self.first: dict[Key, set[str]] = {}  # the sender that stated a row first; a down row may have been made anew
        self.senders: dict[tuple[Key, int], str] = {}  # and the last one on each pipe

    @initialize(
        small=st.booleans(), mass=st.sampled_from([2, 3, 10]), suspect=st.integers(1, 2), more=st.integers(0, 2)
    )
    def begin(self, small: bool, mass: int, suspect: int, more: int) -> None:
        self.limits = LIMITS if small else RegistryLimits()
        self.settings_used = LivenessRules(suspect_after=suspect, down_after=suspect + more, mass_count=mass)
        self.registry = Registry(rules=self.settings_used, limits=self.limits)

    def replay(self, events: Iterable[Event]) -> None:
        for event in events:
            old = self.replayed.get(event.provider.key, (JOINING, event.provider))[0]
            # A forgotten row starts again.
            assert event.old is old or (old is DOWN and event.old is JOINING)
            assert (event.old is event.new) == (event.reason is Reason.CHANGED)
            assert event.time == self.now
            assert event.name == event.provider.name
            self.replayed[event.provider.key] = (event.new, event.provider)

    def view(self) -> dict[Key, Status]:
        return {row.provider.key: row for row in self.registry.view(self.now)}

    @rule(seconds=st.sampled_from([0.0, 0.5, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(pipe=IDS)
    def join(self, pipe: int) -> None:
        self.replay(self.registry.pipe_joined(pipe, self.now))

    @rule(pipe=IDS)
    def leave(self, pipe: int) -> None:
        self.left.add(pipe)
        self.replay(self.registry.pipe_left(pipe, self.now))
        assert all(pipe not in row.pipes for row in self.view().values())

    @rule(reask=st.booleans())
    def ask(self, reask: bool) -> None:
        this = self.registry.start_round(self.now, reask=reask)
        assert this.number == self.newest + 1
        assert this.asked.isdisjoint(self.left)
        self.newest = this.number

    @rule(pipe=IDS, body=REPLIES | TEXTS)
    def find_a_voice(self, pipe: int, body: bytes) -> None:
        self.voices[pipe] = body

    @precondition(lambda self: self.voices)
    @rule(silent=st.sets(IDS), reask=st.booleans())
    def survey(self, silent: set[int], reask: bool) -> None:
        """A round without faults: each provider repeats its usual reply, unless it is silent in this round."""
        self.ask(reask)
        for pipe, voice in self.voices.items():
            if pipe not in silent:
                self.hear(pipe, voice, ago=0, times=1)
        self.end(ago=0)

    @precondition(lambda self: self.newest > 0)
    @rule(pipe=IDS, body=REPLIES | TEXTS, ago=st.sampled_from([0, 0, 0, 1, 2, 30]), times=st.integers(1, 2))
    def hear(self, pipe: int, body: bytes, ago: int, times: int) -> None:
        for _ in range(times):
            before = self.view()
            self.replies += 1
            self.replay(self.registry.reply(pipe, self.newest - ago, body, self.now))
            after = self.view()
            for key, row in before.items():
                now = after.get(key)
                if now is None:
                    assert self.replayed[key][0] is DOWN
                elif pipe not in row.pipes and pipe not in now.pipes:
                    assert now == row  # invariant 5
            if is_cbor(body):
                self.check_senders(pipe, body, before, after)

    def check_senders(self, pipe: int, body: bytes, before: dict[Key, Status], after: dict[Key, Status]) -> None:
        """Invariant 5: of the processes that state one record, the first has it."""
        reply = parse_survey_reply(body)
        assert isinstance(reply, SurveyReply)
        for key in [record.key for record in reply.providers if not reply.bye]:
            row, now = before.get(key), after.get(key)
            others = set() if row is None else set(row.pipes) - {pipe}
            foreign = any(self.senders[key, other] != reply.sender for other in others)
            if row is not None and row.state is not DOWN and foreign and reply.sender not in self.first[key]:
                assert now is not None
                assert now.provider == row.provider
                assert now.state is row.state or pipe in row.pipes
                assert set(now.pipes) - {pipe} == others
            elif now is not None and pipe in now.pipes:
                self.senders[key, pipe] = reply.sender
                if row is None or row.state is DOWN:
                    self.first[key] = (set() if row is None else self.first[key]) | {reply.sender}

    @precondition(lambda self: self.newest > 0)
    @rule(pipe=IDS, body=st.sampled_from(GARBAGE) | st.binary(max_size=20))
    def hear_garbage(self, pipe: int, body: bytes) -> None:
        before, refused = self.view(), dict(self.registry.counters)
        self.replies += 1
        assert self.registry.reply(pipe, self.newest, body, self.now) == ()
        assert self.view() == before
        counts = self.registry.counters
        kinds = [kind for kind in counts if counts[kind] != refused[kind]]
        assert len(kinds) == 2  # invariant 7: as a reply, and under the kind of its refusal
        assert kinds[0] == "replies"

    @precondition(lambda self: self.newest > 0)
    @rule(ago=st.sampled_from([0, 0, 0, 1, 2, 30]))
    def end(self, ago: int) -> None:
        before = self.view()
        end = self.registry.end_round(self.newest - ago, self.now)
        self.replay(end.events)
        assert {event.reason for event in end.events} <= {Reason.MISSED}
        after = self.view()
        counted = [key for key, row in after.items() if row.misses != before[key].misses]
        assert all(after[key].misses == before[key].misses + 1 for key in counted)
        if end.figures.held:
            assert not end.events  # invariant 9
            assert not counted
        for pipe in end.silent_pipes:
            assert all(row.state is DOWN for row in after.values() if pipe in row.pipes)

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "registry"):
            return
        view = self.view()
        snapshot = self.registry.snapshot(self.now)
        for key, row in view.items():
            assert self.replayed[key][0] is row.state  # 3
            assert self.replayed[key][1] == row.provider
            assert self.left.isdisjoint(row.pipes)
            assert row.state is not JOINING
            assert row.pipes or row.state is DOWN  # 1
            doubted, dead = (
                row.misses >= self.settings_used.suspect_after,
                row.misses >= self.settings_used.down_after,
            )  # 4
            assert not doubted or row.state is not UP
            assert (doubted and not dead) or row.state is not SUSPECT
            assert dead or (row.state, row.reason) != (DOWN, Reason.MISSED)
            assert not row.stale or row.state is not DOWN
            assert row.since <= self.now
        for name in ("answer", "question", "third", "unknown"):
            best = [r for r in view.values() if r.provider.name == name and r.state is UP]
            best = best or [r for r in view.values() if r.provider.name == name and r.state is SUSPECT]
            assert snapshot.get(name, frozenset()) == {row.provider for row in best}  # 2
            if best:
                chosen = self.registry.resolve(name, random.Random(1))
                assert chosen in snapshot[name]
                fresh = {row.provider for row in best if row.state is UP and not row.stale}
                assert not fresh or chosen in fresh
            else:
                with pytest.raises(ServiceNotFound):
                    self.registry.resolve(name, random.Random(1))
        assert "unknown" not in self.registry.snapshot(self.now)
        limits = self.limits  # 6
        assert len(view) <= limits.providers
        assert len({key[0] for key in view}) <= limits.names
        assert sum(row.state is DOWN for row in view.values()) <= limits.max_down
        carried = Counter(pipe for row in view.values() for pipe in row.pipes)
        assert len(carried) <= limits.pipes
        assert all(count <= limits.per_pipe for count in carried.values())
        assert self.registry.counters["replies"] == self.replies  # 7


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=150, stateful_step_count=60)
