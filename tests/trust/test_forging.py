"""A member that forges all that it can, among honest nodes over a virtual clock: it is refused, and they go on.

Whatever it sends in others' names: each refusal names it, and no honest node; no honest program hears a message that
its origin has not sent, or gets a result that no worker has returned; in the end one voter is host, all nodes have a
way to it, and all jobs have ended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nngkit.cluster.frames import Channel, Greeting, greeting_frame, local_frame, pack_body, routed_frame
from nngkit.cluster.jobs import messages as jobs
from nngkit.cluster.jobs.submitter import JobEnded
from nngkit.cluster.messages import ClusterMessage
from nngkit.cluster.node.values import NodeConfig
from nngkit.cluster.rights import name_of
from nngkit.cluster.tree import messages as tree
from nngkit.mesh.limits import MeshLimits
from nngkit.mesh.state import MeshState
from nngkit.mesh.values import MeshMessage
from nngkit.mesh.wire import CONTROL, Ask, Digest, Line, data_frame, key_of
from nngkit.trust import Decision, Rights, Trust
from tests.cluster.node_network import NodeNetwork, Run
from tests.trust.one_realm import OneRealm

FORGER = "guest.x"
POLICY = (
    'voter.* | vote = ["farm"] | carry = ["cluster:farm"]',
    'inner.* | join = ["farm"] | carry = ["cluster:farm"] | work = ["farm/work"]',
    'render.* | join = ["farm"] | work = ["farm/work"]',
    'shop.* | join = ["farm"] | submit = ["farm/work"]',
    'guest.* | join = ["farm"]',
    'relay | carry = ["mesh"]',
)
VOTERS = ("voter.a", "voter.b", "voter.c")
WORKERS = ("inner.a", "inner.b", "render.w1:1", "render.w1:2")
HONEST = (*VOTERS, *WORKERS, "shop.w1")


class FarmRun(Run):
    """One run of a node, whose program believes no message of another origin."""

    payloads: dict[int, bytes]

    def _happened(self, event: object) -> None:
        match event:
            case ClusterMessage():
                assert event.body == event.origin.encode(), (self.name, event)
            case JobEnded():
                assert event.outcome != "result" or event.result == self.payloads[event.number], (self.name, event)
        super()._happened(event)


class Farm(NodeNetwork):
    """Three voters, two inner nodes, workers, a submitter, and the forger."""

    def __init__(self, seed: int, trust: Trust) -> None:
        super().__init__(seed)
        voters = {name: f"mem://{name}" for name in VOTERS}
        self.configs = {
            name: NodeConfig(
                cluster="farm",
                id=name,
                address=f"mem://{name}",
                seeds=tuple(voters.values()),
                voters=voters if name in voters else {},
                fanout=2,
                kinds=frozenset({"work"}) if name in WORKERS else frozenset(),
                slots=2,
                judge=Rights(trust, name, carry="cluster:farm"),
            )
            for name in (*HONEST, FORGER)
        }

    def start(self, name: str) -> None:
        run = FarmRun(self, self.configs[name])
        run.payloads = {}
        self.nodes[name] = run
        run.act()

    def proven(self, run: Run) -> str:
        return name_of(run.name)

    def greet(self, run: Run, greeting: Greeting) -> None:
        """Connect the forger to a node, and greet."""
        self._links += 1
        link = 1_000_000 + self._links  # its other end reads nothing
        run.node.link_up(link, "mem://?", None, self.clock.now, FORGER)
        run.node.received(link, [greeting_frame(greeting)], self.clock.now)
        run.act()


numbers = st.sampled_from((0, 1, 2, 3, 5, 60_000))
refs = st.builds(jobs.Ref, st.integers(1, 6), st.integers(1, 3), st.integers(1, 2), st.just(1)).map(lambda ref: [ref])


class Forging(RuleBasedStateMachine):
    """See the module."""

    trust: ClassVar[Trust]

    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[Decision] = []
        self.end = self.trust.watch(self.decisions.append)

    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        self.farm = Farm(seed, self.trust)
        for name in self.farm.configs:
            self.farm.start(name)
        self.farm.run(3.0)

    # ---- honest nodes

    @rule(seconds=st.sampled_from((0.0, 0.05, 0.5, 2.0)))
    def go_on(self, seconds: float) -> None:
        self.farm.run(seconds)

    @rule(name=st.sampled_from(HONEST))
    def talk(self, name: str) -> None:
        if (run := self.farm.nodes.get(name)) is not None:
            run.node.broadcast("chat", [name.encode()] * 2, self.farm.clock.now)
            run.node.letter("inner.a", "note", name.encode(), self.farm.clock.now)
            run.act()

    @rule(count=st.integers(1, 3))
    def submit(self, count: int) -> None:
        run = self.farm.nodes["shop.w1"]
        assert isinstance(run, FarmRun)
        for _ in range(count):
            payload = b"job %d" % len(run.payloads)
            number = run.node.work.submitter.submit("work", payload, self.farm.clock.now)
            run.payloads[number] = payload
            run.waiting.add(number)
        run.act()

    @precondition(lambda self: len(self.farm.nodes) == len(self.farm.configs))
    @rule(name=st.sampled_from((*VOTERS, *WORKERS)))
    def kill(self, name: str) -> None:
        self.farm.kill(name)

    @rule()
    def start_again(self) -> None:
        for name in sorted(self.farm.configs.keys() - self.farm.nodes.keys()):
            self.farm.start(name)

    # ---- the forger

    def _send(self, *frames: bytes) -> None:
        run = self.farm.nodes[FORGER]
        for link in run.node.tree_links:
            self.farm.send(run, link, frames)

    def _epoch(self, name: str) -> int:
        run = self.farm.nodes.get(name)
        return 1 if run is None else run.epoch

    @rule(name=st.sampled_from(HONEST), number=numbers, later=st.integers(-1, 1))
    def forge_a_message(self, name: str, number: int, later: int) -> None:
        self._send(data_frame(key_of(name, self._epoch(name) + later), number, pack_body("chat", b"forged")))

    @rule(name=st.sampled_from(HONEST), own=st.booleans(), head=st.integers(1, 60_000))
    def forge_a_digest(self, name: str, own: bool, head: int) -> None:
        said = FORGER if own else name
        line = Line(name, self._epoch(name), 1, 1, head, 1000)
        self._send(CONTROL.encode(Digest(said, self._epoch(said), (line,), True, 0.5)))

    @rule(
        name=st.sampled_from((*HONEST, FORGER)),
        to=st.sampled_from((*HONEST, "")),
        content=st.sampled_from(
            (
                (Channel.LETTERS, [0, 1, 1, "note", b"forged"]),
                (Channel.LETTERS, [1, 50, 0]),
                (Channel.QUERY, [0, 1, "drain", "inner.a"]),
                (Channel.QUERY, [1, 1, {}]),
                (Channel.QUERY, [2, 1, "no"]),
                (Channel.DOCUMENTS, [0]),
            )
        ),
    )
    def forge_a_routed_frame(self, name: str, to: str, content: tuple[Channel, list[Any]]) -> None:
        if name == FORGER and content[0] == Channel.LETTERS:
            return  # it may write
        self._send(routed_frame(content[0], to, name, self._epoch(name), content[1]))

    @rule(name=st.sampled_from((*HONEST, FORGER)), number=st.integers(1, 6), to=st.sampled_from(HONEST))
    def forge_an_end_of_a_job(self, name: str, number: int, to: str) -> None:
        finished = jobs.pack(jobs.Finished(self._epoch(to), [number], [b"forged"], []))
        taken = jobs.pack(jobs.Taken([number], [number]))
        for row in (finished, taken):
            self._send(routed_frame(Channel.WORK, to, name, self._epoch(name), row))

    @rule(name=st.sampled_from((*HONEST, FORGER)), some=refs)
    def forge_a_result(self, name: str, some: list[jobs.Ref]) -> None:
        ref = some[0]
        row = jobs.Results(name, ref.term, [ref.serial], [ref.fence], [b"forged"], [1], [])
        for message in (row, jobs.Holding(some), jobs.Lost(some), jobs.Returned(some), jobs.Starting(some)):
            self._send(local_frame(Channel.WORK, jobs.pack(message)))

    @rule()
    def ask_for_jobs(self) -> None:
        self._send(local_frame(Channel.WORK, jobs.pack(jobs.Demand([jobs.Wanted(0, ["work"], 5, 5, 5)]))))

    @rule(name=st.sampled_from(HONEST), later=st.integers(-1, 1))
    def forge_a_place(self, name: str, later: int) -> None:
        epoch = self._epoch(name) + later
        member = tree.Member(name, epoch, 1000, FORGER, f"mem://{FORGER}", 2, {})
        for message in (tree.Members((member,), ()), tree.Alive(name, epoch, "here"), tree.Fresh(1, 1)):
            self._send(local_frame(Channel.PLACE, tree.KINDS.pack(message)))

    @rule(rows=st.lists(st.lists(st.one_of(st.integers(0, 60), st.text(max_size=3)), max_size=5), max_size=3))
    def forge_an_election(self, rows: list[list[Any]]) -> None:
        self._send(*(local_frame(Channel.ELECTION, row) for row in rows))

    @rule(name=st.sampled_from((*HONEST, FORGER)), at=st.sampled_from(VOTERS), voter=st.booleans())
    def greet_as_another(self, name: str, at: str, voter: bool) -> None:
        if (run := self.farm.nodes.get(at)) is not None and (name != FORGER or voter):
            self.farm.greet(run, Greeting("farm", name, self._epoch(name) + 1, voter))

    # ---- what holds

    @invariant()
    def only_the_forger_is_refused(self) -> None:
        wrong = [each for each in self.decisions if each.who != FORGER]
        assert not wrong, wrong[:3]
        assert {each.refused for each in self.decisions} <= {"binding", "right"}

    def teardown(self) -> None:
        if not hasattr(self, "farm"):
            return
        farm = self.farm
        self.start_again()
        farm.run(40.0)
        self.end()
        self.only_the_forger_is_refused()
        hosts = [name for name, run in farm.nodes.items() if run.node.is_host]
        assert len(hosts) == 1
        assert hosts[0] in VOTERS
        for name, run in farm.nodes.items():
            if name != FORGER:
                assert run.node.place.path, name
                assert run.node.place.path[0] == hosts[0]
                assert FORGER not in run.node.place.path
                assert not run.waiting, (name, run.waiting)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (5, 6, 8))])
def test_nodes_that_change_their_parents_speak_for_none_but_those_below_them(seed: int, tmp_path: Path) -> None:
    """Pass nothing that the parent before still sends on to the new one, which would refuse it and blame the node."""
    realm = OneRealm(tmp_path)
    realm.policy(*POLICY)
    trust = realm.trust("voter.a")
    farm = Farm(seed, trust)
    refused: set[str] = set()
    end = trust.watch(lambda decision: refused.add(f"{decision.room}: {decision.who} may not {decision.what}"))

    def talk() -> None:
        for name, run in farm.nodes.items():
            run.node.broadcast("chat", [name.encode()] * 2, farm.clock.now)
            run.act()
        farm.run(farm.rng.choice((0.01, 0.3, 1.0)))

    for name in farm.configs:
        farm.start(name)
    farm.run(3.0)
    for _ in range(12):
        farm.kill(name := farm.rng.choice((*VOTERS, *WORKERS)))
        talk()
        farm.start(name)
        talk()
    farm.run(5.0)
    end()
    assert not refused
    assert all(run.node.place.path for run in farm.nodes.values())


# ---- a mesh ----------------------------------------------------------------------------------------------------------


class Names:
    """Voices of one node of the mesh, whose links are numbered as its neighbours: see nngkit.mesh.limits.Voices."""

    def __init__(self, trust: Trust, own: str) -> None:
        self._rights = Rights(trust, "mesh", carry="mesh")
        self._relays = own == "relay"

    def speaks(self, link: int, origin: str) -> bool:
        return self._rights.speaks(MESH[link], origin)

    tells = speaks

    def carries(self, link: int) -> bool:
        return self._relays


MESH = ("a", "relay", "c", FORGER)  # a - relay - c, and the forger at the relay
BODIES = {name: name.encode() for name in MESH}


class ForgingInMesh(RuleBasedStateMachine):
    """Three honest nodes in a row, and a neighbour of the middle one that sends what it likes."""

    trust: ClassVar[Trust]

    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[Decision] = []
        self.end = self.trust.watch(self.decisions.append)
        self.now = 1000.0
        limits = MeshLimits(patience=1.0, digest=0.1)
        self.states = [MeshState(name, 7, self.now, limits, voices=Names(self.trust, name)) for name in MESH[:3]]
        self.links = {(0, 1), (1, 0), (1, 2), (2, 1)}
        self.sent = [0, 0, 0]
        self.heard: dict[tuple[int, str], int] = {}
        for here, there in sorted(self.links):
            self.states[here].link_up(there, self.now)
        self.states[1].link_up(3, self.now)
        self.carry()

    def carry(self) -> None:
        """Bring all frames to where they go; those for the forger are lost on it."""
        moved = True
        while moved:
            moved = False
            for here, state in enumerate(self.states):
                if self.now >= state.wake_at:
                    state.tick(self.now)
                effects = state.take()
                for event in effects.events:
                    assert isinstance(event, MeshMessage), event
                    assert event.body == BODIES[event.origin], event
                    assert event.sequence == self.heard.get((here, event.origin), 0) + 1
                    self.heard[here, event.origin] = event.sequence
                for there in range(3):
                    frames = [frame for frame, source in effects.relays if source != there] + effects.digests
                    frames += [frame for link, frame in effects.sends if link == there]
                    if frames and (here, there) in self.links:
                        moved = True
                        self.states[there].receive(here, frames, self.now)

    @rule(seconds=st.sampled_from((0.01, 0.2, 0.7, 3.0)))
    def go_on(self, seconds: float) -> None:
        for _ in range(max(1, int(seconds / 0.1))):
            self.now += min(seconds, 0.1)
            self.carry()

    @rule(here=st.integers(0, 2), count=st.integers(1, 5))
    def send(self, here: int, count: int) -> None:
        frames = self.states[here].send([BODIES[MESH[here]]] * count, self.now)
        self.sent[here] += count
        for there in range(3):
            if (here, there) in self.links:
                self.states[there].receive(here, frames, self.now)
        self.carry()

    @rule(name=st.sampled_from(MESH[:3]), number=numbers, epoch=st.sampled_from((6, 7, 8)))
    def forge_a_message(self, name: str, number: int, epoch: int) -> None:
        self.states[1].receive(3, [data_frame(key_of(name, epoch), number, b"forged")], self.now)
        self.carry()

    @rule(name=st.sampled_from(MESH), about=st.sampled_from(MESH[:3]), head=numbers, epoch=st.sampled_from((6, 7, 8)))
    def forge_a_digest(self, name: str, about: str, head: int, epoch: int) -> None:
        line = Line(about, epoch, 1, 1, head, 1000)
        self.states[1].receive(3, [CONTROL.encode(Digest(name, epoch, (line,), True, 0.5))], self.now)
        self.carry()

    @rule(name=st.sampled_from(MESH[:3]), first=st.integers(1, 10))
    def ask(self, name: str, first: int) -> None:
        self.states[1].receive(3, [CONTROL.encode(Ask(name, 7, ((first, first + 9),)))], self.now)
        self.carry()

    @invariant()
    def only_the_forger_is_refused(self) -> None:
        assert {(each.who, each.refused) for each in self.decisions} <= {(FORGER, "binding")}

    def teardown(self) -> None:
        self.go_on(3.0)
        self.end()
        for here in range(3):
            assert [self.heard.get((here, MESH[there]), 0) for there in range(3) if there != here] == [
                self.sent[there] for there in range(3) if there != here
            ]
            stats = self.states[here].stats
            assert (stats.gaps, stats.unconfirmed, stats.clashes, stats.behind) == (0, 0, 0, 0)


# ---- both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "examples", "steps"),
    [
        (ForgingInMesh, 50, 15),
        (Forging, 2, 10),
        pytest.param(ForgingInMesh, 200, 60, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param(Forging, 30, 40, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
    ids=["mesh", "cluster", "mesh, long", "cluster, long"],
)
def test_a_forging_member_is_refused_and_the_others_go_on(
    machine: type[Forging | ForgingInMesh], examples: int, steps: int, tmp_path: Path
) -> None:
    realm = OneRealm(tmp_path)
    realm.policy(*POLICY)
    machine.trust = realm.trust("voter.a")
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=examples < 10,
        ),
    )
