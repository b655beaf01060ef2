"""A simulated cluster for documents and shared objects: a tree of nodes over a virtual clock, with random faults.

`python -m tests.many_histories documents 10000` runs random histories. Each has edits and changes at random nodes;
broadcasts that are delayed, or missing with a reported gap; broadcasts of a crashed node that reach only some nodes;
unicasts that are lost, repeated and reordered; nodes that start, crash, move, open and close; partitions in which two
hosts act; and new hosts. Checked at every step: causal order of edits (by `tests.documents.plain`), the invariants 1
and 2 of `shared_object.py`; at the end, when the network has been in order for a while: all copies of a document are
equal, all copies of an object are, with every change of each living writer.
"""

from __future__ import annotations

from random import Random
from typing import Any

from nngkit import envelope
from nngkit.cluster.content.messages import BODY_LIMIT, Position
from nngkit.cluster.content.part import ClusterDocuments
from nngkit.cluster.content.values import OpenedDocument, Refused
from nngkit.documents.sync.messages import Aware
from nngkit.documents.versions import EditStream
from nngkit.testing.clock import VirtualClock
from tests.documents.plain import Name, Plain

DOCS = ("a", "b")
OBJECTS = ("x", "y")


class Log:
    """A shared object: the list of its changes."""

    def __init__(self) -> None:
        self.changes: list[bytes] = []

    def update(self, fragment: bytes) -> None:
        self.changes.append(fragment)

    def full_state(self) -> bytes:
        return envelope.encode(self.changes)

    def load(self, full: bytes) -> None:
        self.changes = envelope.decode(full, what="log", limit=1 << 26)


class PlainDocument:
    """An `OpenedDocument` over a `Plain` content."""

    def __init__(
        self, documents: ClusterDocuments, name: str, me: EditStream, saw: dict[Name, frozenset[Name]]
    ) -> None:
        self.documents, self.name, self.me = documents, name, me
        self.content = Plain(saw)
        self.written = 0
        self.states: dict[bytes, bytes | None] = {}
        self.closed = False

    @property
    def document(self) -> PlainDocument:
        return self

    def edit(self, now: float) -> None:
        self.written += 1
        self.documents.edited(self.name, self.content.write(self.me, self.written), now)

    def changed(self) -> None: ...

    def receive_awareness(self, message: Aware, now: float) -> None:
        self.states[message.sender.origin] = message.state

    def renew_awareness(self, now: float) -> None: ...

    def node_removed(self, origin: bytes, now: float) -> None:
        self.states.pop(origin, None)

    def close(self) -> None:
        self.closed = True


class Node:
    """One run of a node."""

    def __init__(self, cluster: Cluster, name: str, epoch: int, accept: bool = False) -> None:
        self.cluster, self.name, self.epoch = cluster, name, epoch
        self.alive = True
        self.objects: dict[str, Log] = {}
        self.refused: list[Refused] = []
        self.broadcasts: list[bytes] = []
        self.heard: dict[Node, int] = {}  # broadcasts of each node that were delivered or given up
        self._woken_for = -1.0
        self.documents = ClusterDocuments(
            name,
            epoch,
            now=cluster.now,
            rng=Random(f"{name}{epoch}{cluster.seed}"),
            accept=(lambda _: True) if accept else None,
            open_document=cluster.open_document,
        )

    def act(self) -> None:
        cluster, documents = self.cluster, self.documents
        if not self.alive:
            return
        effects = documents.take(cluster.now)
        self.refused += effects.events
        for body in effects.broadcasts:
            assert len(body) <= BODY_LIMIT
            self.broadcasts.append(body)
            cluster.broadcast(self, len(self.broadcasts))
        for to, row in effects.sends:
            cluster.unicast(self, to, row)
        cluster.check(self)
        at = max(documents.wake_at, cluster.now + 0.001)
        if at < float("inf") and (self._woken_for <= cluster.now or at < self._woken_for):
            self._woken_for = at
            cluster.clock.schedule(at, self._wake)

    def _wake(self) -> None:
        if self.alive and self.cluster.now >= self._woken_for:
            self.documents.tick(self.cluster.now)
            self.act()

    def hear(self, origin: Node, number: int, gap: bool) -> None:
        """Take broadcasts of a node up to `number`; in order, the ones before it too."""
        if not self.alive or number <= self.heard.get(origin, 0):
            return
        first = self.heard.get(origin, 0) + 1
        self.heard[origin] = number
        if gap:
            self.documents.gap(origin.name, origin.epoch, self.cluster.now)
        else:
            for one in range(first, number + 1):
                self.documents.received(origin.name, origin.epoch, origin.broadcasts[one - 1], self.cluster.now)
        self.act()

    def share(self, name: str) -> None:
        self.objects[name] = Log()
        self.documents.share(name, self.objects[name], self.cluster.now)
        self.act()


class Cluster:
    """The nodes, the tree, the host, and what is promised."""

    def __init__(self, seed: int, *, loss: float = 0.0, gaps: float = 0.0, delay: float = 0.01) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.clock = VirtualClock(1000.0)
        self.loss, self.gaps, self.delay = loss, gaps, delay
        self.nodes: dict[str, Node] = {}
        self.parents: dict[str, str] = {}
        self.host = ""
        self.term = 0
        self.epochs, self.step = 1_000_000, 1000
        self.cut: frozenset[str] = frozenset()  # nodes on the other side
        self.saw: dict[str, dict[Name, frozenset[Name]]] = {}
        self.at: dict[tuple[str, Position], bytes] = {}
        self.checked: dict[tuple[int, str], Position] = {}
        self.written: dict[tuple[str, int, str], int] = {}

    @property
    def now(self) -> float:
        return self.clock.now

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.now + seconds)

    def open_document(self, documents: ClusterDocuments, name: str, me: EditStream) -> OpenedDocument:
        return PlainDocument(documents, name, me, self.saw.setdefault(name, {}))

    # ---- transport

    def together(self, one: str, other: str) -> bool:
        return (one in self.cut) == (other in self.cut)

    def broadcast(self, origin: Node, number: int) -> None:
        for node in list(self.nodes.values()):
            if node is not origin:
                gap = self.rng.random() < self.gaps
                delay = self.delay * self.rng.uniform(0.1, 2.0) + (self.rng.random() < 0.05) * self.rng.random()
                self._deliver(origin, node, number, gap, delay)

    def _deliver(self, origin: Node, node: Node, number: int, gap: bool, delay: float) -> None:
        def arrive() -> None:
            if not node.alive:
                return
            if not self.together(origin.name, node.name):
                self._deliver(origin, node, number, gap, 0.5)  # the mesh repairs it after the partition
            elif origin.alive or self.rng.random() < 0.5:  # a crash loses what is under way, here and there
                node.hear(origin, number, gap)

        self.clock.schedule(self.now + delay, arrive)

    def unicast(self, sender: Node, to: str, row: list[Any]) -> None:
        body = envelope.encode(row)
        assert len(body) <= BODY_LIMIT
        to = to or self.host_of(sender.name)
        for _ in range(1 + (self.rng.random() < self.loss / 2)):
            if self.rng.random() < self.loss:
                continue
            delay = self.delay * self.rng.uniform(0.5, 1.0 if self.loss == 0.0 else 2.0)

            def arrive() -> None:
                node = self.nodes.get(to)
                if node is not None and node.alive and self.together(sender.name, to):
                    node.documents.unicast(sender.name, body, self.now)
                    node.act()

            self.clock.schedule(self.now + delay, arrive)

    def host_of(self, name: str) -> str:
        """Return the host on the side of a node."""
        return self.host if self.together(name, self.host) else (self.nodes[name].documents.host or "")

    # ---- the tree

    def start(self, name: str, *, accept: bool = False) -> Node:
        self.epochs += self.step
        node = self.nodes[name] = Node(self, name, self.epochs, accept)
        for other in self.nodes.values():
            node.heard[other] = len(other.broadcasts)
        if self.host and self.host in self.nodes and self.host != name:
            self.attach(name)
        return node

    def attach(self, name: str, delay: float = 0.0) -> None:
        """Attach a node below a random node that is not below it."""
        below = {name}
        while more := {child for child, parent in self.parents.items() if parent in below} - below:
            below |= more
        possible = sorted(
            one for one in self.nodes if one not in below and self.together(one, name) and self.rooted(one)
        )
        parent = self.rng.choice(possible) if possible and self.rng.random() < 0.7 else self.host
        self.parents[name] = parent
        node, term, host = self.nodes[name], self.term, self.host

        def tell() -> None:
            if node.alive and self.nodes[name] is node and term == self.term and self.together(name, host):
                node.documents.attached(term, host, self.parents.get(name, ""), self.now)
                node.act()

        self.clock.schedule(self.now + delay, tell)

    def rooted(self, name: str) -> bool:
        seen = set()
        while name not in seen:
            if name == self.host:
                return True
            seen.add(name)
            name = self.parents.get(name, name)
        return False

    def elect(self, name: str) -> None:
        """Make a node the host; the nodes of its side hear of it in the next second and a half."""
        self.term += 1
        self.host = name
        self.parents.pop(name, None)
        self.nodes[name].documents.lead(self.term, self.now)
        self.nodes[name].act()
        others = [one for one in self.nodes if one != name and self.together(one, name)]
        for other in others:
            self.parents.pop(other, None)
        for other in self.rng.sample(others, len(others)):
            self.attach(other, self.rng.uniform(0.0, 1.5))

    def crash(self, name: str) -> None:
        node = self.nodes.pop(name)
        node.alive = False
        self.parents.pop(name, None)
        for other in list(self.nodes.values()):
            self.clock.schedule(
                self.now + self.rng.uniform(0.0, 1.5),
                lambda other=other: self._removed(other, name),  # type: ignore[misc]
            )
        if name == self.host:
            self.elect(
                self.rng.choice(sorted(one for one in self.nodes if self.together(one, name)) or sorted(self.nodes))
            )
        else:
            for child in [child for child, parent in self.parents.items() if parent == name]:
                self.attach(child, self.rng.uniform(0.0, 1.0))

    def _removed(self, other: Node, name: str) -> None:
        if other.alive and name not in self.nodes:
            other.documents.member_removed(name, self.now)
            other.act()

    # ---- the program

    def change(self, node: Node, name: str) -> None:
        key = node.name, node.epoch, name
        self.written[key] = self.written.get(key, 0) + 1
        data = envelope.encode([node.name, node.epoch, self.written[key]])
        node.documents.change(name, data, self.now)
        node.act()

    # ---- checks

    def check(self, node: Node) -> None:
        for name, replica in node.documents.objects.items():
            key, at = (id(node), name), replica.order.position
            if self.checked.get(key) == at:
                continue
            self.checked[key] = at
            changes = node.objects[name].changes
            content = envelope.encode(changes)
            known = self.at.setdefault((name, at), content)
            assert known == content or at.number < 0, f"{node.name}: {name} differs at {at}"
            last: dict[tuple[str, int], int] = {}
            for change in changes:
                writer, epoch, n = envelope.decode(change, what="change")
                assert n > last.get((writer, epoch), 0), f"{name}: {writer}/{epoch}/{n} twice, or out of order"
                last[writer, epoch] = n

    def check_end(self) -> None:
        for name in DOCS:
            copies = {
                node.name: node.documents.documents[name].content.names
                for node in self.nodes.values()
                if name in node.documents.documents
            }
            sizes = {node: len(names) for node, names in copies.items()}
            assert len(set(copies.values())) <= 1, f"document {name} differs: {sizes}"
            for holder in copies:
                copy = self.nodes[holder].documents.copy(name)
                assert copy.replica.missing == copy.replica.held == 0, f"{holder} waits for edits of {name}"
                assert copy.caught_up_at > 0, f"{holder} has not joined {name}"
                assert copy.replica.versions == self.nodes[holder].documents.documents[name].content.versions()
        for name in OBJECTS:
            if name not in self.nodes[self.host].objects:
                continue
            final = self.nodes[self.host].objects[name].changes
            for node in self.nodes.values():
                if name not in node.objects:
                    continue
                replica = node.documents.objects[name]
                where = f"{node.name}: {name} at {replica.order.position}, host at "
                where += str(self.nodes[self.host].documents.objects[name].order.position)
                assert node.objects[name].changes == final, where
                assert not replica.behind_host, where
                assert replica.writer.lost == 0
                mine = [
                    n
                    for w, e, n in (envelope.decode(one, what="change") for one in final)
                    if (w, e) == (node.name, node.epoch)
                ]
                assert mine == list(range(1, self.written.get((node.name, node.epoch, name), 0) + 1)), where
                assert replica.confirmed == replica.writer.written
        for node in self.nodes.values():
            assert not node.refused, node.refused[:3]


def history(seed: int, *, clocks_back: bool = False) -> Cluster:
    """Run one random history and check it. `clocks_back`: each node that starts has a clock an hour behind the last."""
    rng = Random(f"history {seed}")
    cluster = Cluster(
        seed,
        loss=rng.choice([0.0, 0.02, 0.2]),
        gaps=rng.choice([0.0, 0.01, 0.1]),
        delay=rng.choice([0.002, 0.02, 0.2]),
    )
    if clocks_back:
        cluster.epochs, cluster.step = 10**14, -3_600_000_000
    names = [f"n{number}" for number in range(rng.randrange(2, 9))]
    accept = rng.random() < 0.3
    for name in names:
        node = cluster.start(name, accept=accept and name == names[0])
        if not cluster.host:
            cluster.elect(name)
        for one in OBJECTS:
            node.share(one)
    for _ in range(rng.randrange(5, 120)):
        step(cluster, rng, names)
        cluster.run(rng.choice([0.0, 0.001, 0.01, 0.1, 1.0]))
    heal(cluster)
    cluster.loss = cluster.gaps = 0.0
    cluster.run(200.0)
    cluster.check_end()
    return cluster


def heal(cluster: Cluster) -> None:
    """End the partition; the host of the newest term is the one of all."""
    cut, cluster.cut = cluster.cut, frozenset()
    if cut:
        for name in sorted(cluster.nodes):
            if name != cluster.host and cluster.nodes[name].documents.term != cluster.term:
                cluster.attach(name, cluster.rng.uniform(0.0, 1.0))


def step(cluster: Cluster, rng: Random, names: list[str]) -> None:
    """Let something happen."""
    nodes = sorted(cluster.nodes)
    node = cluster.nodes[rng.choice(nodes)]
    chance = rng.random()
    if chance < 0.35:
        for _ in range(rng.choice([1, 1, 1, 5])):
            name = rng.choice(DOCS)
            node.documents.open(name, cluster.now).edit(cluster.now)
        node.act()
    elif chance < 0.7:
        for _ in range(rng.choice([1, 1, 1, 20])):
            cluster.change(node, rng.choice(OBJECTS))
    elif chance < 0.75:
        if (name := rng.choice(DOCS)) in node.documents.documents:
            node.documents.close(name)
            node.act()
    elif chance < 0.8:
        node.documents.open(rng.choice(DOCS), cluster.now)
        node.act()
    elif chance < 0.84 and not cluster.cut:
        cluster.elect(node.name)
    elif chance < 0.88 and not cluster.cut:
        if node.name != cluster.host:
            cluster.attach(node.name)
    elif chance < 0.92 and len(nodes) > 1 and not cluster.cut:
        cluster.crash(node.name)
    elif chance < 0.96 and not cluster.cut:
        missing = [name for name in names if name not in cluster.nodes]
        if missing:
            started = cluster.start(rng.choice(missing))
            for one in OBJECTS:
                started.share(one)
    elif cluster.cut:
        heal(cluster)
    elif len(nodes) > 2:
        side = rng.sample(nodes, rng.randrange(1, len(nodes) - 1))
        cluster.cut = frozenset(side)
        rest = [name for name in nodes if (name in side) != (cluster.host in side)]
        if rng.random() < 0.7:
            cluster.elect(rng.choice(rest))
    if rng.random() < 0.05:
        at = cluster.nodes[rng.choice(sorted(cluster.nodes))]
        at.documents.request_full(rng.choice(OBJECTS), cluster.now)
        at.act()
