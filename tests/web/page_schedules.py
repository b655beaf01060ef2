"""Random schedules in which pages take part: real Yjs under Node beside peers in Python, on one clock.

The world is that of tests/documents/schedules.py: a network that loses, repeats, delays, reorders and splits, peers
that crash and come back. A page is connected to one peer, its home, which relays; it can crash and lose what its
browser had not kept yet. `nngkit/web/doc/tests/schedule.js` says how it is driven::

    python -m tests.web.page_schedules 1000            seeds 0 to 999; prints what it found
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from nngkit.documents.local import LocalCopy
from nngkit.documents.messages import REQUEST_LIMIT, Chunks, Pull
from nngkit.documents.versions import Stream, Versions, covers, merge
from nngkit.documents.wire import decode_request, encode
from tests.documents import schedules

DOC = schedules.DOCS[0]
SCRIPT = Path(__file__).parents[2] / "nngkit/web/doc/tests/schedule.js"
ROOTS = {"text": "body", "map": "cells", "array": "rows"}  # those of schedules.edit
BEAT = 0.2  # seconds between the beats of a page
GIVEN_UP = 0.5  # seconds after which a request without a reply counts as lost


class Node:
    """The process in which one page after the other lives."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def say(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in answer, f"{command}: {answer['error']}"
        return answer


@contextmanager
def node() -> Generator[Node]:
    """A process of Node.js; ended with the block."""
    process = subprocess.Popen(["node", str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield Node(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


class Peer(schedules.Node):
    """A peer in Python; peer 0 is home to the page."""

    def start(self) -> None:
        super().start()
        if self.number == 0:
            for copy in self.copies.values():
                copy._relay = True
            if self.world.page is not None:
                self.world.page.connect()

    def meet(self, other: schedules.Node) -> None:
        for copy in self.copies.values():
            copy.replica.joined(other.me, askable=not isinstance(other, Page))
        self.pace.hurry(self.world.now)

    def crash(self) -> None:
        super().crash()
        if self.number == 0 and self.world.page is not None and self.world.page.alive:
            self.world.page.tell({"do": "disconnected"})

    def answer(self, data: bytes) -> bytes:
        request = decode_request(data)
        if not isinstance(request, Pull):
            return super().answer(data)
        chunks = self.transfers.chunks(request.transfer, request.indexes, self.world.now)
        return encode(Chunks(self.me, request.transfer, chunks))

    world: World


class Page(schedules.Node):
    """A page, as the world sees it."""

    world: World

    def __init__(self, world: World, number: int, process: Node) -> None:
        self.world = world
        self.number = number
        self.origin = number.to_bytes(8, "big")
        self.epoch = 1
        self.rng = Random(f"{world.seed}/{number}")
        self.copies: dict[str, LocalCopy] = {}
        self.alive = True
        self._process = process
        start = {"do": "start", "doc": DOC, "origin": self.origin.hex(), "epoch": 1, "client": self.rng.getrandbits(32)}
        process.say(start | {"now": world.now, "seed": self.rng.getrandbits(32), "roots": ROOTS})
        self._kept: Versions = {}
        self._beat_due = world.now

    # ---- what the world does to it

    def connect(self) -> None:
        """Its home is there."""
        home = self.world.nodes[0]
        if not (self.alive and home.alive):
            return
        home.meet(self)
        self.tell(
            {"do": "connected", "home": [home.origin.hex(), home.epoch], "max_update": REQUEST_LIMIT - 128 * 1024}
        )
        self._beat_due = self.world.now
        self.step()

    def meet(self, other: schedules.Node) -> None:
        """Whom it meets it hears of from its home."""

    def start(self) -> None:
        self.alive = True
        self.epoch += 1
        self.tell({"do": "restart", "epoch": self.epoch, "client": self.rng.getrandbits(32), "crash": True})
        self.connect()

    def crash(self) -> None:
        self.alive = False
        for other in self.world.nodes:
            for copy in other.copies.values():
                copy.replica.left(self.me)

    def edit(self) -> None:
        self.world.edits += 1
        self.tell({"do": "edit", "edit": ["random"]})

    def sync(self) -> None:
        """The browser has kept what is here: it is acknowledged from now on."""
        self.tell({"do": "kept"})
        self.world.acknowledged[DOC] = merge(self.world.acknowledged[DOC], self.versions)

    def hear(self, data: bytes, via: Stream) -> None:
        self.tell({"do": "deliver", "message": data.hex()})

    def step(self) -> None:
        if self.world.now >= self._beat_due:
            self._beat_due = self.world.now + BEAT
            self.tell({"do": "beat"})
        else:
            self.tell({"do": "tick"})

    # ---- what it does

    def tell(self, command: dict[str, Any]) -> None:
        answer = self._process.say(command | {"now": self.world.now})
        for message in answer["bus"]:
            self.world.publish(self, bytes.fromhex(message))
        for ask in answer["ask"]:
            self.ask(ask["id"], bytes.fromhex(ask["message"]))
        wake = self._beat_due if answer["wake"] is None else min(answer["wake"], self._beat_due)
        self.world.wake(self, max(wake, self.world.now + 0.001))

    def ask(self, number: int, request: bytes) -> None:
        """Over REQ, to its home."""
        world, home, epoch = self.world, self.world.nodes[0], self.world.nodes[0].epoch

        def reply(message: bytes | None) -> None:
            if self.alive and home.epoch == epoch:
                self.tell({"do": "reply", "id": number, "message": None if message is None else message.hex()})

        def arrive() -> None:
            if not world.linked(self, home) or home.epoch != epoch or world.rng.random() < world.weather.refuse:
                world.at(world.now + GIVEN_UP, lambda: reply(None))
                return
            answer = home.answer(request)
            home.step()
            lost = not world.linked(self, home)
            world.at(world.now + world.delay(), lambda: reply(None if lost else answer))

        world.at(world.now + world.delay(), arrive)

    # ---- what it has

    def state(self) -> dict[str, Any]:
        return self._process.say({"do": "state", "now": self.world.now})

    @property
    def versions(self) -> Versions:
        return {Stream(bytes.fromhex(origin), epoch): seq for origin, epoch, seq in self.state()["versions"]}


class World(schedules.World):
    """Peers, and one page."""

    def __init__(self, seed: int, peers: int, weather: schedules.Weather, process: Node) -> None:
        self.page: Page | None = None
        super().__init__(seed, 0, weather)
        for number in range(peers):
            self.nodes.append(Peer(self, number))
        self.page = Page(self, peers, process)
        self.nodes.append(self.page)
        self.page.connect()

    def linked(self, a: schedules.Node, b: schedules.Node) -> bool:
        if isinstance(a, Page) or isinstance(b, Page):
            return 0 in (a.number, b.number) and super().linked(a, b)
        return super().linked(a, b)

    def agreed(self) -> bool:
        """Looked at only when the peers agree: asking the page costs more than the rest."""
        nodes, page = self.nodes, self.page
        assert page is not None
        try:
            self.nodes = [one for one in nodes if one is not page]
            if not super().agreed():
                return False
        finally:
            self.nodes = nodes
        state, copy = page.state(), nodes[0].copies[DOC]
        versions = sorted([stream.origin.hex(), stream.epoch, seq] for stream, seq in copy.replica.versions.items())
        return bool(state["versions"] == versions and state["content"] == nodes[0].contents[DOC].digest().hex())


def play(seed: int, process: Node) -> schedules.Outcome:
    """One schedule, from its seed alone."""
    rng = Random(f"page schedule {seed}")
    sky = schedules.Weather(log_edits=rng.choice((4, 64, 4096)), crash=0.03)
    world = World(seed, rng.choice((1, 2, 3)), sky, process)
    page = world.page
    assert page is not None
    for _ in range(rng.randint(10, 60)):
        world.run_until(world.now + rng.expovariate(30.0))
        one = page if rng.random() < 0.4 else rng.choice(world.nodes)
        chance = rng.random()
        if chance < sky.crash and one.alive:
            one.crash()
            world.at(world.now + rng.uniform(0, 0.5), one.start)
        elif chance < sky.crash + sky.split:
            other = rng.choice(world.nodes)
            cut = frozenset((one.number, other.number))
            world.cut.add(cut)
            world.at(world.now + rng.uniform(0, 1.0), lambda cut=cut: world.cut.discard(cut))  # type: ignore[misc]
        elif chance < sky.crash + sky.split + 0.15 and one.alive:
            one.sync()
        elif one.alive:
            one.edit()
    last = world.now
    world.run_until(last + 1.1)  # all splits heal, all who crashed are back
    looked = [0.0]

    def agreed() -> bool:
        if world.now < looked[0]:
            return False
        looked[0] = world.now + 0.02
        return all(one.alive for one in world.nodes) and world.agreed()

    done = world.run_until(last + schedules.CALM, agreed)
    outcome = schedules.Outcome(
        seed, world.now - last if done else None, world.messages, world.edits, 0, world.problems
    )
    state = page.state()
    if not done:
        outcome.problems.append(f"seed {seed}: not the same after {schedules.CALM} s; the page: {state}")
    if state["refused"]:
        outcome.problems.append(f"seed {seed}: the page has refused {state['refused']}")
    for doc, acknowledged in world.acknowledged.items():
        outcome.acknowledged += sum(acknowledged.values())
        everybody = [one.copies[doc].replica.versions for one in world.nodes if doc in one.copies]
        if doc == DOC:
            everybody.append(page.versions)
        if not all(covers(versions, acknowledged) for versions in everybody):
            outcome.problems.append(f"seed {seed}: acknowledged edits are missing")
    return outcome


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Many of them, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    began, bad, edits, acknowledged, waits = time.monotonic(), 0, 0, 0, [0.0]
    with node() as process:
        for seed in range(options.first, options.first + options.count):
            outcome = play(seed, process)
            edits += outcome.edits
            acknowledged += outcome.acknowledged
            waits += [outcome.agreed_at] if outcome.agreed_at is not None else []
            if outcome.problems:
                bad += 1
                say(f"seed {seed}: {'; '.join(outcome.problems[:3])}")
    waits.sort()
    say(
        f"{options.count} schedules, {edits} edits, {acknowledged} acknowledged: {bad} with problems; the same after"
        f" {waits[len(waits) // 2]:.2f} s (median), {waits[-1]:.2f} s (worst); {time.monotonic() - began:.0f} s"
    )
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
