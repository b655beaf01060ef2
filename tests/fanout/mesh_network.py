"""A simulated mesh: the states of many nodes over a virtual clock, with links that are cut, lossy and out of order.

The checks of a node hold after each event: an origin's numbers follow each other, as messages or in gaps, none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from nngkit.mesh.limits import MeshLimits
from nngkit.mesh.state import MeshState
from nngkit.mesh.values import MeshGap, MeshMessage
from nngkit.testing.clock import VirtualClock

Stream = tuple[str, int]


class Node:
    """One run of a node, and what its program has seen."""

    def __init__(self, network: MeshNetwork, name: str, epoch: int) -> None:
        self.network = network
        self.name = name
        self.epoch = epoch
        self.state = MeshState(name, epoch, network.clock.now, network.limits)
        self.links: dict[int, Link] = {}
        self.alive = True
        self.first: dict[Stream, int] = {}
        self.next: dict[Stream, int] = {}
        self.messages = self.relayed = 0
        self.warnings: list[str] = []
        self.gaps: dict[Stream, list[tuple[int, int]]] = {}
        self._woken_for = -1.0

    def check(self, events: Iterable[MeshMessage | MeshGap]) -> None:
        for event in events:
            stream = event.origin, event.epoch
            assert stream != (self.name, self.epoch), "a message came back to its origin"
            if isinstance(event, MeshMessage):
                first = last = event.sequence
                self.messages += 1
                assert event.body == body_of(event.origin, event.epoch, event.sequence)
            else:
                first, last = event.first, event.last
                self.gaps.setdefault(stream, []).append((first, last))
            self.first.setdefault(stream, first)
            assert self.next.setdefault(stream, first) == first, (self.name, event, self.next[stream])
            self.next[stream] = last + 1

    def lost(self, stream: Stream) -> int:
        return sum(last - first + 1 for first, last in self.gaps.get(stream, ()))

    def act(self) -> None:
        """Carry out the effects, and come back when the state wants to."""
        clock = self.network.clock
        if clock.now >= self.state.wake_at:
            self.state.tick(clock.now)
        effects = self.state.take()
        self.check(effects.events)
        self.relayed += len(effects.relays)
        stats = self.state.stats
        seen = self.state.sent, self.messages, self.relayed, sum(map(self.lost, self.gaps))
        assert (stats.sent, stats.delivered, stats.relayed, stats.gaps) == seen
        assert stats.kept_bytes >= 0 <= stats.held_bytes
        self.warnings += effects.warnings
        for number, link in self.links.items():
            frames = [frame for frame, source in effects.relays if source != number]
            frames += [frame for to, frame in effects.sends if to == number]
            link.carry(self, [*frames, *effects.digests])
        at = max(self.state.wake_at, clock.now + 0.001)
        if self._woken_for <= clock.now or at < self._woken_for:
            self._woken_for = at
            clock.schedule(at, self._wake)

    def _wake(self) -> None:
        if self.alive and self.network.clock.now >= self._woken_for:
            self.act()

    def send(self, count: int = 1) -> None:
        start = self.state.sent
        bodies = [body_of(self.name, self.epoch, start + 1 + number) for number in range(count)]
        frames = self.state.send(bodies, self.network.clock.now)
        for link in self.links.values():
            link.carry(self, frames)

    def receive(self, link: int, frames: Sequence[bytes]) -> None:
        if self.alive:
            self.state.receive(link, frames, self.network.clock.now)
            self.act()


def body_of(origin: str, epoch: int, sequence: int) -> bytes:
    return f"{origin}/{epoch}/{sequence}".encode()


class Link:
    """One connection, until it is cut."""

    def __init__(self, network: MeshNetwork, number: int, one: Node, other: Node) -> None:
        self.network = network
        self.number = number
        self.ends = (one, other)
        self.up = True
        self.arrived = {id(one): 0.0, id(other): 0.0}

    def carry(self, sender: Node, frames: Sequence[bytes]) -> None:
        network = self.network
        rng, clock = network.rng, network.clock
        if network.loss or network.duplication:
            frames = [frame for frame in frames if rng.random() >= network.loss]
            frames = [copy for frame in frames for copy in [frame] * (1 + (rng.random() < network.duplication))]
        if network.reordering and len(frames) > 1 and rng.random() < network.reordering:
            frames = rng.sample(frames, len(frames))
        if not frames:
            return
        receiver = self.ends[self.ends[0] is sender]
        at = clock.now + network.delay * (0.5 + rng.random())
        if not network.reordering:
            at = self.arrived[id(receiver)] = max(at, self.arrived[id(receiver)] + 1e-9)

        def arrive() -> None:
            if self.up:
                receiver.receive(self.number, frames)

        clock.schedule(at, arrive)


class MeshNetwork:
    """Nodes and links. All faults are drawn from the seed."""

    def __init__(
        self,
        seed: int,
        names: Iterable[str],
        *,
        limits: MeshLimits | None = None,
        loss: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
        delay: float = 0.002,
    ) -> None:
        self.rng = Random(seed)
        self.clock = VirtualClock(1000.0)
        self.limits = limits or MeshLimits()
        self.loss, self.duplication, self.reordering, self.delay = loss, duplication, reordering, delay
        self._numbers = 0
        self.nodes = {name: Node(self, name, 1000) for name in names}
        self.past: list[Node] = []
        self.links: dict[tuple[str, str], Link] = {}

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def run_until(self, condition: Callable[[], object], seconds: float) -> bool:
        return self.clock.run_until(self.clock.now + seconds, condition)

    def edges(self, degree: int = 4) -> list[tuple[str, str]]:
        """Return the edges of a random graph in which nearly all nodes have `degree`: rings over all nodes."""
        found: set[tuple[str, str]] = set()
        for _ in range(degree // 2):
            ring = self.rng.sample(list(self.nodes), len(self.nodes))
            found |= {(min(a, b), max(a, b)) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)}
        return sorted(found)

    def connect(self, one: str, other: str) -> None:
        edge = min(one, other), max(one, other)
        if edge in self.links:
            return
        self._numbers += 1
        ends = self.nodes[one], self.nodes[other]
        link = self.links[edge] = Link(self, self._numbers, *ends)
        for end in ends:
            end.links[link.number] = link
            end.state.link_up(link.number, self.clock.now)
        for end in ends:
            end.act()

    def cut(self, one: str, other: str) -> None:
        link = self.links.pop((min(one, other), max(one, other)), None)
        if link is None:
            return
        link.up = False
        for end in link.ends:
            if end.links.pop(link.number, None) is not None:
                end.state.link_down(link.number, self.clock.now)
                end.act()

    def restart(self, name: str, epoch: int) -> None:
        """Replace a node by a new run of it, without links."""
        for edge in [edge for edge in self.links if name in edge]:
            self.cut(*edge)
        old = self.nodes[name]
        old.alive = False
        self.past.append(old)
        self.nodes[name] = Node(self, name, epoch)

    def component(self, name: str) -> set[str]:
        """Return the nodes with a path to this one."""
        found, todo = {name}, [name]
        while todo:
            here = todo.pop()
            for edge in self.links:
                if here in edge:
                    for there in edge:
                        if there not in found:
                            found.add(there)
                            todo.append(there)
        return found
