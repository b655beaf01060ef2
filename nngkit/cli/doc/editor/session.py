"""A user's session in a document: the cursors of others, and how many disks have all edits.

::

    session = Session(peer, document, "body", name="Ada")
    nursery.start_soon(session.run)
    session.others(), session.status(), session.notified    # a WakeUp to redraw the screen
    await session.save(timeout)                             # the message for the user
"""

from __future__ import annotations

from typing import Any, Final

import trio

from nngkit.background import WakeUp
from nngkit.cli.doc.editor.view import Other, Span, Style
from nngkit.cli.doc.status import disks
from nngkit.documents import Document, DocumentPeer
from nngkit.errors import AccessDenied, NngkitError, TimedOut

__all__ = ["Session"]

HUES: Final = 8  # as on the page of `doc serve`
SETTLE: Final = 0.3  # seconds without a change before peers are asked for durability
LOOK: Final = 1.0  # seconds between updates of the number of peers
ASKED: Final = 9  # peers that are asked


class Session:
    """A session. `name` is the user's, `message` the text of the last line, "" for none."""

    def __init__(self, peer: DocumentPeer, document: Document, root: str, *, name: str, stored: bool) -> None:
        self.peer = peer
        self.document = document
        self.text = document.text(root)
        self.root = root
        self.name = name
        self.stored = stored
        self.message = ""
        self.notified = WakeUp()
        self.changed = WakeUp()  # when the document changes
        self._changes = 1
        self._on_disk = 0  # number of the last change on the local disk
        self._elsewhere = (0, 0)  # number of the last change on peers' disks, and of these disks
        self._denied: str | None = None
        self._colour = peer.me.origin[0] % HUES
        document.engine.observe(self._changed)

    def _changed(self, update: bytes, origin: object) -> None:
        self._changes += 1
        self.changed.wake()
        self.notify()

    def notify(self) -> None:
        """Have the screen drawn again."""
        self.notified.wake()

    # ------------------------------------------------------------------ others

    def place(self, at: int) -> None:
        """Publish the cursor."""
        cursor = self.document.awareness.cursor(self.root, at)
        state = {"user": {"name": self.name, "color": self._colour}, "cursor": cursor}
        if self.document.awareness.local != state:
            self.document.awareness.local = state

    def others(self) -> list[Other]:
        """Return the others' cursors in this text."""
        found = []
        for client, state in self.document.awareness.states.items():
            if client != self.document.client_id:
                place = self.document.awareness.find(state.get("cursor"))
                if place is not None and place[0] == self.root:
                    found.append(Other(place[2], _name(state), _colour(state, client)))
        return sorted(found)

    def people(self) -> list[tuple[str, int]]:
        """Return the names and colours of all others in the document."""
        me, states = self.document.client_id, self.document.awareness.states
        return sorted((_name(state), _colour(state, client)) for client, state in states.items() if client != me)

    # ------------------------------------------------------------------ the status line

    def status(self) -> list[Span]:
        """Return the status line: document, durability, connection, others."""
        plain = Style(reverse=True)
        spans = [Span(f" {self.document.name}  {self.kept()}  {self.connection()}  ", plain)]
        people = self.people()
        for name, colour in people:
            spans += [Span(f" {name} ", Style(colour, reverse=True)), Span(" ", plain)]
        if not people:
            spans.append(Span("no other users", plain))
        return spans

    def connection(self) -> str:
        """Return the state of the connection."""
        if self._denied is not None:
            return f"refused: {self._denied}"
        there = len(self.peer.peers)
        return f"{there} {'peer' if there == 1 else 'peers'}" if there else "alone"

    def kept(self) -> str:
        """Return the durability: `on my disk / on 2 others' disks`."""
        others = self._elsewhere[1] if self._elsewhere[0] == self._changes else 0
        elsewhere = f"on {others} {'other' if others == 1 else 'others'}' disk{'s' if others > 1 else ''}"
        elsewhere = elsewhere.replace("other'", "other's")
        if not self.stored:
            return elsewhere if others else "on no disk yet"
        mine = "on my disk" if self.is_on_disk else "writing ..."
        return f"{mine} / {elsewhere}"

    @property
    def is_on_disk(self) -> bool:
        """Return True if the local disk has all edits."""
        return self._on_disk == self._changes

    @property
    def is_kept(self) -> bool:
        """Return True if some disk is known to have all edits."""
        return self.is_on_disk or (self._elsewhere[0] == self._changes and self._elsewhere[1] > 0)

    @property
    def is_as_it_began(self) -> bool:
        """Return True if nothing has changed."""
        return self._changes == 1

    # ------------------------------------------------------------------ durability

    async def run(self) -> None:
        """Watch others, peers and disks until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_people)
            nursery.start_soon(self._watch_peers)
            nursery.start_soon(self._watch_disks)
            nursery.start_soon(self._watch_denial)
            if self.stored:
                nursery.start_soon(self._watch_disk)

    async def _watch_people(self) -> None:
        async for _ in self.document.awareness.changes():
            self.notify()

    async def _watch_peers(self) -> None:
        while True:
            await trio.sleep(LOOK)
            self.notify()

    async def _watch_denial(self) -> None:
        while True:
            denied = None
            try:
                await self.peer.wait_for_peers(1)
            except AccessDenied as error:
                denied = str(error)
            if denied != self._denied:
                self._denied = denied
                self.notify()
            await trio.sleep(LOOK)

    async def _watch_disk(self) -> None:
        try:
            while True:
                number = self._changes
                await self.document.durable()
                self._on_disk = number
                self.notify()
                if number == self._changes:
                    await self.changed.wait()
        except NngkitError as error:
            self.message = f"the disk: {error}"
            self.notify()

    async def _watch_disks(self) -> None:
        asked: tuple[int, int] | None = None
        while True:
            now = (self._changes, sum(other.askable for other in self.peer.peers))
            await trio.sleep(SETTLE)
            if now[0] != self._changes or not now[1] or (now == asked and self._elsewhere[1] >= min(now[1], ASKED)):
                continue
            asked = now
            found = await disks(self.document, min(now[1], ASKED))
            if now[0] == self._changes:
                self._elsewhere = (now[0], found)
                self.notify()

    async def save(self, timeout: float) -> str:
        """Wait until the local disk, or else a peer's, has all edits; return a message."""
        number = self._changes
        try:
            if self.stored:
                await self.document.durable()
                self._on_disk = max(self._on_disk, number)
                return "saved on my disk"
            await self.document.synced(1, timeout)
        except TimedOut:
            return f"NOT saved: no peer had it on a disk in {timeout:g} s"
        except NngkitError as error:
            return f"NOT saved: {error}"
        self._elsewhere = (number, max(1, self._elsewhere[1]))
        return "saved on another's disk"


def _user(state: dict[str, Any]) -> dict[str, Any]:
    user = state.get("user")
    return user if isinstance(user, dict) else {"name": user}


def _name(state: dict[str, Any]) -> str:
    name = _user(state).get("name")
    return name if isinstance(name, str) and name else "anonymous"


def _colour(state: dict[str, Any], client: int) -> int:
    colour = _user(state).get("color")
    return colour if type(colour) is int and 0 <= colour < HUES else client % HUES
