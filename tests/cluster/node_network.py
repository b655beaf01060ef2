"""Simulated nodes, with all their parts: election, tree, messages, letters, questions and jobs, over a virtual clock.

Links are in order and lose nothing until they end. Nodes are killed, restarted and separated. The checks: in the end
there is one host, all nodes have a way to it, every job of a node that lives has ended, letters and broadcasts came in
order. Nothing draws from anything but the seed: see `tests/test_histories.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from nngkit.cluster.jobs.part import JobStart
from nngkit.cluster.jobs.submitter import JobEnded
from nngkit.cluster.messages import ClusterGap, ClusterMessage
from nngkit.cluster.node.node import Node
from nngkit.cluster.node.values import NodeConfig, NodeEffects
from nngkit.testing.clock import VirtualClock

WALL = 1.7e9  # of the virtual zero, in seconds since 1970


class Run:
    """One run of a node, and what its program does and has heard."""

    def __init__(self, network: NodeNetwork, config: NodeConfig) -> None:
        self.network, self.name = network, config.id
        self.epoch = int((network.clock.now + WALL) * 1e6)
        self.node = Node(
            config,
            epoch=self.epoch,
            now=network.clock.now,
            wall=network.clock.now + WALL,
            rng=network.rng,
            entropy=network.entropy,
        )
        self.links: dict[int, tuple[Run, int]] = {}  # the other end, and its number there
        self.alive = True
        self.heard: dict[tuple[str, int, bool], int] = {}  # number of the last message, by sender, run and way
        self.waiting: set[int] = set()  # jobs
        self._woken_for = -1.0

    def act(self) -> None:
        """Carry out what the node asks for, and come back when it wants to."""
        clock = self.network.clock
        if clock.now >= self.node.wake_at:
            self.node.tick(clock.now, clock.now + WALL)
        self._carry_out(self.node.take(clock.now))
        at = max(self.node.wake_at, clock.now + 0.001)
        if self._woken_for <= clock.now or at < self._woken_for:
            self._woken_for = at
            clock.schedule(at, self._wake)

    def _wake(self) -> None:
        if self.alive and self.network.clock.now >= self._woken_for:
            self.act()

    def _carry_out(self, effects: NodeEffects) -> None:
        for link, frames, _ in effects.sends:
            self.network.send(self, link, frames)
        for link in effects.drops:
            self.network.end(self, link)
        for address in effects.dials:
            self.network.dial(self, address)
        self.network.note(
            self, [re.sub(" at 0x[0-9a-f]+", "", repr(event)) for event in effects.events] + effects.warnings
        )
        for event in effects.events:
            self._happened(event)

    def _happened(self, event: object) -> None:
        clock, rng, crew = self.network.clock, self.network.rng, self.node.work.crew
        match event:
            case JobStart(job):

                def end(fails: bool = rng.random() < 0.1) -> None:
                    if self.alive:
                        if fails:
                            crew.failed(job, "Error", "it fails", clock.now)
                        else:
                            crew.done(job, job.payload, clock.now)
                        self.act()

                clock.call_later(rng.random() * 0.2, end)
            case JobEnded():
                self.waiting.remove(event.number)
            case ClusterMessage():
                stream = event.origin, event.epoch, event.direct
                if stream in self.heard:  # the first one that a run hears may be any
                    assert event.sequence == self.heard[stream] + 1, (self.name, event)
                self.heard[stream] = event.sequence
            case ClusterGap():
                self.heard[event.origin, event.epoch, False] = event.last


class NodeNetwork:
    """Nodes and links. All faults are drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"nodes {seed}")
        self.entropy = Random(f"entropy {seed}").randbytes
        self.clock = VirtualClock(1000.0)
        self.delay = self.rng.choice((0.0005, 0.003, 0.02))
        self.nodes: dict[str, Run] = {}
        self.side: frozenset[str] = frozenset()
        names = [f"n{number}" for number in range(self.rng.randint(3, 7))]
        voters = {name: f"mem://{name}" for name in names[: self.rng.choice((1, 3))]}
        self.configs = {
            name: NodeConfig(
                cluster="c",
                id=name,
                address=f"mem://{name}",
                seeds=tuple(voters.values()),
                voters=voters if name in voters else {},
                fanout=self.rng.choice((1, 2, 3)),
                kinds=frozenset({"work"}),
                slots=self.rng.randint(1, 3),
                token="secret",
            )
            for name in names
        }
        self._links = 0

    def start(self, name: str) -> None:
        """Start a node, or the next run of it."""
        run = self.nodes[name] = Run(self, self.configs[name])
        run.act()

    def kill(self, name: str) -> None:
        """End a run; its neighbours notice."""
        run = self.nodes.pop(name)
        run.alive = False
        for link in list(run.links):
            self.end(run, link)

    def dial(self, run: Run, address: str) -> None:
        """Connect a node to another one, later, or report why not."""

        def connected() -> None:
            other = self.nodes.get(address.removeprefix("mem://"))
            if not run.alive:
                return
            if other is None or (run.name in self.side) != (other.name in self.side):
                run.node.dial_failed(address, "not reached", self.clock.now)
            else:
                self._links += 2
                here, there = self._links, self._links + 1
                run.links[here], other.links[there] = (other, there), (run, here)
                run.node.link_up(here, address, address, self.clock.now, self.proven(other))
                other.node.link_up(there, "mem://?", None, self.clock.now, self.proven(run))
                other.act()
            run.act()

        self.clock.call_later(self.delay, connected)

    def send(self, run: Run, link: int, frames: Sequence[bytes]) -> None:
        """Bring frames to the other end of a link."""
        if (found := run.links.get(link)) is None:
            return
        other, there = found

        def arrived() -> None:
            if there in other.links and other.alive:
                if (run.name in self.side) != (other.name in self.side):
                    self.clock.call_later(0.1, arrived)
                else:
                    other.node.received(there, frames, self.clock.now)
                    other.act()

        self.clock.call_later(self.delay, arrived)

    def end(self, run: Run, link: int) -> None:
        """End a link; the other end learns it after what was sent."""
        if (found := run.links.pop(link, None)) is None:
            return
        other, there = found

        def ended() -> None:
            if other.links.pop(there, None) is not None and other.alive:
                other.node.link_down(there, self.clock.now)
                other.act()

        self.clock.call_later(self.delay, ended)

    def proven(self, run: Run) -> str | None:
        """Return the name that a node proves to its neighbours."""
        return None

    def note(self, run: Run, lines: list[str]) -> None:
        """Take in what a node reports; for the record of histories."""

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def step(self) -> None:
        """Let something happen."""
        rng, now = self.rng, self.clock.now
        run = self.nodes[rng.choice(sorted(self.nodes))]
        match rng.randrange(12):
            case 0 if len(self.nodes) > 2:
                self.kill(run.name)
                return
            case 1:
                for name in sorted(self.configs.keys() - self.nodes.keys())[:1]:
                    self.start(name)
                return
            case 2:
                self.side = frozenset() if self.side else frozenset(rng.sample(sorted(self.nodes), 1))
            case 3:
                run.node.questions.ask(rng.choice(("status", "tree", "other")), "", now)
            case 4:
                run.node.set_busy(not run.node.busy, now)
            case 5:
                run.node.set_work({"work": rng.randint(1, 2)}, rng.randint(0, 3), now)
            case 6 | 7:
                run.node.broadcast("chat", [b"%d" % number for number in range(rng.randint(1, 3))], now)
            case 8 | 9:
                run.node.letter(rng.choice(sorted(self.configs)), "note", b"hello", now)
            case _:
                for number in range(rng.randint(1, 5)):
                    delay = rng.choice((0.0, 0.0, 0.5))
                    run.waiting.add(run.node.work.submitter.submit("work", b"%d" % number, now, delay=delay))
        run.act()


def history(seed: int) -> NodeNetwork:
    """Run one random history, let it become quiet, and check it."""
    network = NodeNetwork(seed)
    for name in network.configs:
        network.start(name)
        network.run(network.rng.random() * 0.05)
    network.run(2.0)
    for _ in range(network.rng.randint(10, 40)):
        network.step()
        network.run(network.rng.choice((0.0, 0.01, 0.1, 0.5)))
    network.side = frozenset()
    for run in network.nodes.values():
        run.node.set_work({"work": 2}, 2, network.clock.now)
        run.act()
    for name in sorted(network.configs.keys() - network.nodes.keys()):
        network.start(name)
    network.run(40.0)
    hosts = [name for name, run in network.nodes.items() if run.node.is_host]
    assert len(hosts) == 1, (seed, hosts)
    for name, run in network.nodes.items():
        assert run.node.is_host or run.node.place.path, (seed, name)
        assert not run.waiting, (seed, name, run.waiting)
    return network
