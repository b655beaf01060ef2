"""A page with real Yjs as a peer of a schedule: nngkit/web/doc/tests/schedule.js under Node, line by line.

The page is connected to one of the Python peers, as a browser is: it receives that peer's BUS, and sends requests to it
alone. The connection keeps the order and loses little; it ends with partitions and crashes, and the page reconnects.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from nngkit.documents.sync.messages import Heartbeat, Updates
from nngkit.documents.sync.wire import decode_bus
from nngkit.documents.versions import EditStream, Versions, covers
from tests.documents.schedules import DOCS, Node, World

SCRIPT: Final = Path(__file__).parents[2] / "nngkit/web/doc/tests/schedule.js"
DOC: Final = DOCS[0]
LOSS: Final = 0.05  # of the peer's messages: a full queue
ORIGIN: Final = b"the page"


class Browser:
    """Node, for many consecutive schedules. A context manager: it ends Node."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["node", str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10.0)
        finally:
            self._process.kill()
            self._process.stdout.close()

    def command(self, **command: Any) -> dict[str, Any]:
        """Send one command; return its reply."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer

    def page(self, world: World) -> Page:
        """Return a page in `world`."""
        return Page(self, world)


class Page:
    """A `schedules.Page`."""

    def __init__(self, browser: Browser, world: World) -> None:
        self.browser = browser
        self.world = world
        self.epoch = 1
        self.load = 0  # number of the connection: replies to an earlier one are late
        self.home: Node | None = None
        self.home_me: EditStream | None = None
        self.due = float("inf")
        self.rng = Random(f"{world.seed}/page")
        for node in world.nodes:
            for copy in node.copies.values():
                copy.relay = True
        self._command(
            "start", doc=DOC, origin=ORIGIN.hex(), epoch=1, client=self.rng.getrandbits(52) + 1, seed=world.seed
        )
        self._connect()
        self._pulse()

    @property
    def me(self) -> EditStream:
        return EditStream(ORIGIN, self.epoch)

    # ------------------------------------------------------------------ its peer

    def _connect(self) -> None:
        there = [node for node in self.world.nodes if node.alive]
        if self.home is not None or not there:
            return
        self.home = self.rng.choice(there)
        self.home_me = self.home.me
        self.load += 1
        self.home.copies[DOC].replica.joined(self.me, False)
        self.world.note(f"the page connects to {self.home.number}")
        self._command("connected", home=[self.home.origin.hex(), self.home.epoch], max_update=4 << 20)

    def _disconnect(self) -> None:
        home, self.home = self.home, None
        if home is None:
            return
        self.load += 1
        if home.alive and home.me == self.home_me:
            home.copies[DOC].replica.left(self.me)
        self.world.note("the page is disconnected")
        self._command("disconnected")
        self.world.trouble(self.rng.uniform(0.0, 0.3), self._connect)

    def lost(self, node: Node) -> None:
        if node is self.home:
            self._disconnect()

    def _pulse(self) -> None:
        """Send a heartbeat; reconnect if disconnected."""
        if self.home is None and not self.world.troubles:
            self._connect()
        self._command("heartbeat")
        self.world.at(self.world.now + 0.2, self._pulse)

    # ------------------------------------------------------------------ actions

    def play(self, rng: Random) -> None:
        chance = rng.random()
        if chance < 0.04:
            self._disconnect()
        elif chance < 0.08:
            self._disconnect()
            self.epoch += 1
            self.world.note("the page is loaded again")
            self._command("restart", epoch=self.epoch, client=rng.getrandbits(52) + 1, crash=rng.random() < 0.5)
        elif chance < 0.2:
            self._command("kept")
            versions = self._state()["versions"]
            ours = self.world.acknowledged[DOC]
            for origin, epoch, seq in versions:
                if bytes.fromhex(origin) == ORIGIN:  # it may request edits of others again
                    ours[EditStream(ORIGIN, epoch)] = max(seq, ours.get(EditStream(ORIGIN, epoch), 0))
        else:
            self.world.edits += 1
            self.world.note("the page edits")
            self._command("edit", edit=["random"])

    def overhear(self, sender: Node, data: bytes) -> None:
        if sender is self.home and self.rng.random() >= LOSS:
            self._later(lambda: self._command("deliver", message=data.hex()))

    def _later(self, what: Callable[[], object], seconds: float = 0.005) -> None:
        """Run `what` later, unless the connection ends. The delay is constant: a connection keeps the order."""
        load = self.load

        def now() -> None:
            if self.load == load:
                what()

        self.world.at(self.world.now + seconds, now)

    def _command(self, do: str, **more: Any) -> dict[str, Any]:
        """Send a command, and handle its results."""
        answer = self.browser.command(do=do, now=self.world.now, **more)
        for message in answer["bus"]:
            self._later(partial(self._publish, bytes.fromhex(message)))
        for ask in answer["ask"]:
            self._later(partial(self._ask, ask["id"], bytes.fromhex(ask["message"])))
        if answer["wake"] is not None and not self.world.now < self.due <= answer["wake"]:
            self.due = max(answer["wake"], self.world.now + 0.001)
            self.world.at(self.due, self._tick)
        return answer

    def _tick(self) -> None:
        if self.world.now == self.due:
            self.due = float("inf")
            self._command("tick")

    def _publish(self, data: bytes) -> None:
        home = self.home
        if home is None or not home.alive:
            return
        message = decode_bus(data)
        if isinstance(message, Heartbeat):
            assert message.sender == self.me
            home.copies[DOC].replica.joined(self.me, False)
        else:
            assert isinstance(message, Updates)
            assert message.stream == self.me
        home.hear(data, self.me)

    def _ask(self, number: int, data: bytes) -> None:
        home = self.home
        assert home is not None
        if self.rng.random() < self.world.conditions.refusal:
            self._later(lambda: self._command("reply", id=number, message=None), 0.5)
            return
        answer = home.answer(data)
        home.step()
        self._later(lambda: self._command("reply", id=number, message=answer.hex()))

    # ------------------------------------------------------------------ content

    def _state(self) -> dict[str, Any]:
        return self._command("state")

    def agrees(self) -> bool:
        """Return True if versions and content are those of the other peers, which agree."""
        if self.home is None:
            return False
        state = self._state()
        versions: Versions = {EditStream(bytes.fromhex(origin), epoch): seq for origin, epoch, seq in state["versions"]}
        copy = self.home.copies[DOC]
        if state["refused"]:
            self.world.problems.append(f"the page refused {state['refused']} messages")
        return (
            covers(copy.replica.versions, versions)
            and covers(versions, copy.replica.versions)
            and bytes.fromhex(state["content"]) == copy.content.digest()
        )
