"""Random schedules: editing peers on a network that loses, repeats, delays, reorders and splits.

Real: replica, wire, transfers, the CRDT. Simulated: sockets, clock and disk; so a schedule of seconds runs in
milliseconds and is reproducible from its seed::

    python -m tests.documents.schedules 1000            seeds 0 to 999; prints a summary
    PYTHONHASHSEED=0 python -m tests.documents.schedules 1 --first 4711 --trace     the order of sets counts too
    python -m tests.documents.schedules 1000 --page     one of them is a page with Yjs, under Node (schedule_page.py)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from nngkit.documents.engine.interface import EngineDocument, load_engine
from nngkit.documents.sync.local_copy import LocalCopy
from nngkit.documents.sync.messages import (
    Chunks,
    Give,
    Heartbeat,
    Manifest,
    Nack,
    Pull,
    Refused,
    SyncRequest,
    Updates,
    Want,
)
from nngkit.documents.sync.messages import Diff as DiffReply
from nngkit.documents.sync.replica import Ask, Replica, Settings
from nngkit.documents.sync.timing import Pace, RoundTrips
from nngkit.documents.sync.transfers import Assembly, Transfers
from nngkit.documents.sync.wire import decode_bus, decode_reply, decode_request, encode
from nngkit.documents.versions import EditStream, Versions, covers, merge
from nngkit.testing import network
from nngkit.testing.network import Network, Partition
from tests.documents.greetings import heartbeat
from tests.documents.plain import Disk

DOCS = ("minutes", "table")
CALM = 30.0  # seconds after the last edit within which all peers must converge


@dataclass(frozen=True, kw_only=True)
class Conditions(network.Conditions):
    """Behaviour of the network, and probabilities of a crash and of a partition per action."""

    loss: float = 0.3
    duplication: float = 0.1
    delay: tuple[float, float] = (0.001, 0.04)
    refusal: float = 0.02
    crash: float = 0.02
    split: float = 0.02
    log_edits: int = 4096


@dataclass
class Outcome:
    """Result of a schedule.

    `agreed_after`: seconds until all peers converged, from the last edit, or from the end of the last partition or
    crash if that is later. None: they did not.
    """

    seed: int
    agreed_after: float | None
    messages: int
    edits: int
    acknowledged: int
    problems: list[str] = field(default_factory=list)


class Watched:
    """An engine's document that reports whether an update changed anything."""

    def __init__(self, content: EngineDocument) -> None:
        self.content = content
        self.changed = False
        self.changes_since, self.state, self.digest = content.changes_since, content.state, content.digest
        self.merge = load_engine().merge
        content.observe(self._observed)

    def _observed(self, update: bytes, origin: object) -> None:
        self.changed = True

    def apply(self, update: bytes, origin: object = None) -> bool:
        self.changed = False
        self.content.apply(update, origin)
        return self.changed


class Node:
    """A peer."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.name = str(number)
        self.origin = number.to_bytes(8, "big")
        self.epoch = 0
        self.rng = Random(f"{world.seed}/{number}")
        self.disks = {doc: Disk() for doc in DOCS}
        self.start()

    @property
    def me(self) -> EditStream:
        return EditStream(self.origin, self.epoch)

    @property
    def alive(self) -> bool:
        return self.name in self.world.network.nodes

    @property
    def askable(self) -> bool:
        """Every fourth schedule has one that only dials."""
        return self.number > 0 or self.world.seed % 4 < 3

    def start(self) -> None:
        self.epoch += 1
        self.world.network.start(self.name, receive=self._receive, answer=self._answer_and_step, step=self.step)
        self.pace = Pace(0.02, 0.2)
        self.pace.due = self.world.now
        self.transfers = Transfers()
        self.trips = RoundTrips()
        self.copies: dict[str, LocalCopy] = {}
        self.contents: dict[str, EngineDocument] = {}
        for doc in DOCS:
            content = load_engine().new(self.rng.getrandbits(53))
            versions: Versions = {}
            log = []
            for has, update, record in self.disks[doc].entries:
                if update:
                    content.apply(update)
                versions = merge(versions, has)
                if record is not None:
                    log.append(record)
            settings = Settings(log_edits=self.world.conditions.log_edits)
            replica = Replica(
                doc,
                self.me,
                rng=self.rng,
                versions=versions,
                log=log,
                round_trips=self.trips,
                settings=settings,
                askable=self.askable,
            )
            content.observe(lambda update, origin, doc=doc: self._observed(doc, update, origin))  # type: ignore[misc]
            self.contents[doc] = content
            self.copies[doc] = LocalCopy(replica, Watched(content), log=self.disks[doc], refused=self._refused)
        for other in self.world.nodes:
            if other is not self and other.alive:
                self.meet(other)
                other.meet(self)
        self.world.network.wake(self.name, self.world.now)

    def meet(self, other: Node) -> None:
        for copy in self.copies.values():
            copy.replica.joined(other.me, other.askable)
        self.pace.hurry(self.world.now)

    def crash(self) -> None:
        self.world.network.crash(self.name)
        self.world.note(f"{self.number} crashes")
        if self.world.page is not None:
            self.world.page.lost(self)
        for disk in self.disks.values():
            disk.crash()
        for other in self.world.nodes:
            for copy in other.copies.values():
                copy.replica.left(self.me)

    def _refused(self, peer: EditStream | None, why: str) -> None:
        self.world.problems.append(f"{self.number} refused {peer}: {why}")

    def _observed(self, doc: str, update: bytes, origin: object) -> None:
        if origin is None:
            self.copies[doc].edited(update, self.world.now)

    # ---- editing

    def edit(self) -> None:
        doc = self.rng.choice(DOCS)
        self.world.edits += 1
        self.world.note(f"{self.number} edits {doc}")
        self.world.edit(self, self.contents[doc], self.rng, f"{self.number}.{self.world.edits}")
        self.step()

    def sync(self) -> None:
        """Sync the disk; what was written before is acknowledged from now on."""
        for doc, disk in self.disks.items():
            disk.sync()
            self.world.acknowledged[doc] = merge(self.world.acknowledged[doc], self.copies[doc].replica.versions)

    # ---- the shell

    def step(self) -> None:
        now = self.world.now
        wake = now + 60.0
        for copy in self.copies.values():
            step = copy.step(now)
            self.world.check(copy.replica)
            if step.edited:
                others = len(self.world.nodes) - 1
                self.pace.company(others, others)
                self.pace.changed(now, self.rng.uniform(0.5, 1.0))
            for message in step.publish:
                self._publish(encode(message))
            for ask, request in step.ask:
                self.world.request(self, copy, ask, request)
            wake = min(wake, step.wake)
        if self.pace.due <= now:
            heartbeats = tuple(copy.replica.make_heartbeat(now) for copy in self.copies.values())
            self._publish(encode(heartbeat(self.me, heartbeats)))
            self.pace.sent(now, self.rng.uniform(0.7, 1.0))
        self.world.network.wake(self.name, min(wake, self.pace.due))

    def _publish(self, data: bytes) -> None:
        if self.world.page is not None:
            self.world.page.overhear(self, data)
        self.world.network.broadcast(self.name, (data, self.me))

    def _receive(self, sender: str, message: tuple[bytes, EditStream]) -> None:
        self.hear(*message)

    def hear(self, data: bytes, via: EditStream) -> None:
        message = decode_bus(data)
        now = self.world.now
        if isinstance(message, Heartbeat):
            for one in message.docs:
                self.copies[one.doc].heard(one, via, now)
        else:
            assert isinstance(message, Updates)
            self.copies[message.doc].heard(message, via, now)
        # As in a loop: the step runs after other tasks, which may have sent requests.
        self.world.network.wake(self.name, now + self.rng.choice((0.0, 0.001)))

    def _answer_and_step(self, sender: str, data: bytes) -> bytes:
        answer = self.answer(data)
        self.step()
        return answer

    def answer(self, data: bytes) -> bytes:
        request = decode_request(data)
        if isinstance(request, Pull):
            chunks = self.transfers.chunks(request.transfer, request.indexes, self.world.now)
            return encode(Chunks(self.me, request.transfer, chunks))
        assert isinstance(request, Nack | Want | Give)
        copy = self.copies[request.doc]
        match request:
            case Nack():
                return encode(copy.resend(request))
            case Want():
                update, versions = copy.difference(request)
                body = self.transfers.offer(update, name=self.rng.randbytes(16), now=self.world.now)
                return encode(DiffReply(self.me, copy.name, body, versions))
            case Give():
                return encode(copy.given(request, self.world.now))


class World:
    """The state of a schedule."""

    def __init__(
        self, seed: int, peers: int, conditions: Conditions, *, trace: Callable[[str], None] | None = None
    ) -> None:
        self.seed = seed
        self.conditions = conditions
        self.network = Network(seed, conditions, now=1000.0)
        self.nodes: list[Node] = []
        self.problems: list[str] = []
        self.acknowledged: dict[str, Versions] = {doc: {} for doc in DOCS}
        self.edits = 0
        self.troubles = 0  # partitions that have not healed, and crashed peers
        self.calm_since = self.now
        self.trace = trace
        self.page: Page | None = None
        for number in range(peers):
            self.nodes.append(Node(self, number))

    def note(self, what: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.now - 1000.0:8.4f} {what}")

    # ---- time

    def trouble(self, seconds: float, end: Callable[[], None]) -> None:
        """Begin a fault that ends after `seconds`."""
        self.troubles += 1

        def ended() -> None:
            end()
            self.troubles -= 1
            self.calm_since = self.now

        self.at(self.now + seconds, ended)

    @property
    def now(self) -> float:
        return self.network.now

    def at(self, when: float, what: Callable[[], object]) -> None:
        self.network.call_at(when, what)

    def run_until(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        return self.network.run_until(until, done)

    # ---- the network

    def split(self, side: set[int], seconds: float) -> None:
        """Separate some nodes from the others for a while."""
        self.note(f"{sorted(side)} are cut off")
        partition: Partition = self.network.split([str(number) for number in side])
        self.trouble(seconds, partition.heal)

    def request(self, requester: Node, copy: LocalCopy, ask: Ask, request: SyncRequest) -> None:
        self.note(f"{requester.number} asks {ask}")
        other = next((node for node in self.nodes if node.me == ask.peer), None)

        def failed() -> None:
            copy.failed(ask, self.now)
            requester.step()

        def replied(answer: bytes) -> None:
            reply = decode_reply(answer)
            if other is None or reply.sender != ask.peer or isinstance(reply, Refused):
                failed()  # the peer was restarted; errors are noted there
                return
            body = None
            if isinstance(reply, DiffReply):
                body = self.fetch(other, reply.body) if isinstance(reply.body, Manifest) else reply.body
            copy.replied(ask, reply, self.now, body=body)
            requester.step()

        receiver = "a restarted peer" if other is None else other.name
        self.network.request(requester.name, receiver, encode(request), reply=replied, failure=failed)

    def fetch(self, other: Node, manifest: Manifest) -> bytes:
        assembly = Assembly(manifest, limit=1 << 30)
        for indexes in assembly.wanted():
            chunks = other.transfers.chunks(manifest.transfer, indexes, self.now)
            assembly.take(Chunks(other.me, manifest.transfer, chunks))
        return assembly.whole()

    # ---- invariants

    def check(self, replica: Replica) -> None:
        """Check the invariants of replica.py that are visible from outside."""
        settings = replica.settings
        assert replica.held <= settings.held_edits
        assert len(replica.history._log) <= settings.log_edits
        asked = [peer for peer in replica._peers.values() if peer.asked_at is not None]
        assert len(asked) <= len(replica._peers)
        for stream, held in replica.history.held.items():
            first = replica.versions.get(stream, 0) + 1
            assert min(held) >= first, "what is delivered is held"
            if first in held:
                assert replica.history.waits_for(held[first][0]) is not None, "what could be delivered is held"

    def edit(self, node: Node, content: EngineDocument, rng: Random, mark: str) -> None:
        """Make one random transaction."""
        edit(content, rng, mark)

    def agreed(self) -> bool:
        for doc in DOCS:
            first = self.nodes[0]
            versions = first.copies[doc].replica.versions
            if any(node.copies[doc].replica.versions != versions for node in self.nodes[1:]):
                return False
            digest = first.contents[doc].digest()
            if any(node.contents[doc].digest() != digest for node in self.nodes[1:]):
                return False
        return self.page is None or self.page.agrees()


def edit(content: EngineDocument, rng: Random, mark: str) -> None:
    """Make one random transaction on a text, a map, an array; insertions and deletions."""
    text, cells, rows = content.root("text", "text"), content.root("map", "map"), content.root("array", "array")
    with content.transaction():
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            choice = rng.random()
            if choice < 0.45:
                text.insert(rng.randint(0, len(text)), rng.choice(("x", "añ", "\U0001f600", "wort ")))
            elif choice < 0.65 and len(text):
                at = rng.randrange(len(text))
                text.delete(at, min(len(text), at + rng.randint(1, 4)))
            elif choice < 0.8:
                cells.set(rng.choice("abcd"), rng.choice((mark, 1, 2.5, None, True, [1, "z"])))
            elif choice < 0.9:
                rows.insert(rng.randint(0, len(rows)), mark)
            elif len(rows):
                at = rng.randrange(len(rows))
                rows.delete(at, at + 1)


class Page(Protocol):
    """A peer of another kind, connected to one of the others (schedule_page.py)."""

    def overhear(self, sender: Node, data: bytes) -> None:
        """Handle a BUS message of `sender`."""

    def lost(self, node: Node) -> None:
        """Handle the crash of `node`."""

    def play(self, rng: Random) -> None:
        """Make a random action."""

    def agrees(self) -> bool:
        """Return True if it has the content of its peer."""


def play(
    seed: int,
    *,
    conditions: Conditions | None = None,
    trace: Callable[[str], None] | None = None,
    page: Callable[[World], Page] | None = None,
) -> Outcome:
    """Run one schedule from its seed."""
    rng = Random(f"schedule {seed}")
    world = World(
        seed, rng.choice((2, 3, 3, 4, 5)), conditions or Conditions(log_edits=rng.choice((4, 64, 4096))), trace=trace
    )
    if page is not None:
        world.page = page(world)
    sky = world.conditions
    for _ in range(rng.randint(10, 60)):
        world.run_until(world.now + rng.expovariate(30.0))
        if world.page is not None and rng.random() < 0.4:
            world.page.play(rng)
            continue
        node = rng.choice(world.nodes)
        chance = rng.random()
        if chance < sky.crash and node.alive:
            node.crash()
            world.trouble(rng.uniform(0, 0.5), node.start)
        elif chance < sky.crash + sky.split:
            some = set(rng.sample(range(len(world.nodes)), rng.randint(1, len(world.nodes) - 1)))
            world.split(some, rng.uniform(0, 1.0))
        elif chance < sky.crash + sky.split + 0.15 and node.alive:
            node.sync()
        elif node.alive:
            node.edit()
    world.calm_since = world.now
    done = not world.troubles and world.agreed()
    done = done or world.run_until(world.now + CALM, lambda: not world.troubles and world.agreed())
    after = world.now - world.calm_since if done else None
    outcome = Outcome(seed, after, world.network.stats.sent, world.edits, 0, world.problems)
    if not done:
        outcome.problems.append(f"seed {seed}: not the same after {CALM} s")
    for doc, acknowledged in world.acknowledged.items():
        outcome.acknowledged += sum(acknowledged.values())
        for node in world.nodes:
            if not covers(node.copies[doc].replica.versions, acknowledged):
                outcome.problems.append(f"seed {seed}: acknowledged edits are missing at {node.number}")
    return outcome


def summary(outcomes: list[Outcome], seconds: float) -> str:
    """Return a line that summarizes many outcomes."""
    waits = sorted(one.agreed_after for one in outcomes if one.agreed_after is not None)
    edits, acknowledged = sum(one.edits for one in outcomes), sum(one.acknowledged for one in outcomes)
    bad = sum(bool(one.problems) for one in outcomes)
    text = f"{len(outcomes)} schedules, {edits} edits, {acknowledged} acknowledged: {bad} with problems"
    if waits:
        at = [waits[min(len(waits) - 1, int(len(waits) * part))] for part in (0.5, 0.99)]
        text += f"; the same after {at[0]:.2f} s (median), {at[1]:.2f} s (p99), {waits[-1]:.2f} s (worst)"
    return f"{text}; {seconds:.0f} s"


def main(arguments: list[str] | None = None) -> int:
    """Run many schedules, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--trace", action="store_true", help="say what happens")
    parser.add_argument("--page", action="store_true", help="one of them is a page")
    options = parser.parse_args(arguments)
    began = time.monotonic()

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    outcomes = []
    with ExitStack() as stack:
        page = None
        if options.page:
            sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a script
            from tests.documents.schedule_page import Browser

            page = stack.enter_context(Browser()).page
        for seed in range(options.first, options.first + options.count):
            outcome = play(seed, trace=say if options.trace else None, page=page)
            outcomes.append(outcome)
            if outcome.problems:
                say(f"seed {seed}: {'; '.join(outcome.problems[:3])}")
    say(summary(outcomes, time.monotonic() - began))
    return int(any(one.problems for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
