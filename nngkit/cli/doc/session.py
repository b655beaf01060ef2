"""One person at one document: who else is there and where, and on how many disks all of it is.

::

    session = Session(peer, document, "body", name="Ada")
    nursery.start_soon(session.run)
    session.others(), session.status(), session.told        # told: an event, a new one each time something changes
    await session.save(timeout)                             # what to say to whoever pressed Ctrl-S
"""

from __future__ import annotations

from typing import Any, Final

import trio

from nngkit.cli.doc.status import disks
from nngkit.cli.doc.view import Other, Span, Style
from nngkit.documents import Document, DocumentPeer
from nngkit.errors import AccessDenied, NngkitError, TimedOut

__all__ = ["Session"]

HUES: Final = 8  # as the page of `doc serve` has them
SETTLE: Final = 0.3  # seconds without a change before others are asked what is on their disks
LOOK: Final = 1.0  # seconds between two looks at who is there
ASKED: Final = 9  # others who are asked


class Session:
    """`name`: who sits here. `message`: what is to be said, "" for nothing."""

    def __init__(self, peer: DocumentPeer, document: Document, root: str, *, name: str, stored: bool) -> None:
        self.peer = peer
        self.document = document
        self.text = document.text(root)
        self.root = root
        self.name = name
        self.stored = stored
        self.message = ""
        self.told = trio.Event()
        self.changed_at = trio.Event()  # the document has changed
        self._changes = 1
        self._on_disk = 0  # the number of the change up to which all is on our disk
        self._elsewhere = (0, 0)  # up to which change, on how many others'
        self._denied: str | None = None
        self._colour = peer.me.origin[0] % HUES
        document.engine.observe(self._changed)

    def _changed(self, update: bytes, origin: object) -> None:
        self._changes += 1
        self.changed_at.set()
        self.tell()

    def tell(self) -> None:
        """Something is to be shown."""
        self.told.set()

    # ------------------------------------------------------------------ others

    def place(self, at: int) -> None:
        """Let others see our cursor."""
        cursor = self.document.awareness.cursor(self.root, at)
        state = {"user": {"name": self.name, "color": self._colour}, "cursor": cursor}
        if self.document.awareness.local != state:
            self.document.awareness.local = state

    def others(self) -> list[Other]:
        """Those who have a cursor in this text."""
        found = []
        for client, state in self.document.awareness.states.items():
            if client != self.document.client_id:
                place = self.document.awareness.find(state.get("cursor"))
                if place is not None and place[0] == self.root:
                    found.append(Other(place[2], _name(state), _colour(state, client)))
        return sorted(found)

    def people(self) -> list[tuple[str, int]]:
        """The names and colours of all others who are in the document."""
        me, states = self.document.client_id, self.document.awareness.states
        return sorted((_name(state), _colour(state, client)) for client, state in states.items() if client != me)

    # ------------------------------------------------------------------ the line below

    def status(self) -> list[Span]:
        """The document, who is here, the connection, and where all of it is kept."""
        plain = Style(reverse=True)
        spans = [Span(f" {self.document.name}  {self.kept()}  {self.connection()}  ", plain)]
        people = self.people()
        for name, colour in people:
            spans += [Span(f" {name} ", Style(colour, reverse=True)), Span(" ", plain)]
        if not people:
            spans.append(Span("nobody else here", plain))
        return spans

    def connection(self) -> str:
        """Whom we are connected with."""
        if self._denied is not None:
            return f"refused: {self._denied}"
        there = len(self.peer.peers)
        return f"{there} {'peer' if there == 1 else 'peers'}" if there else "alone"

    def kept(self) -> str:
        """`on my disk / on 2 others' disks`."""
        others = self._elsewhere[1] if self._elsewhere[0] == self._changes else 0
        elsewhere = f"on {others} {'other' if others == 1 else 'others'}' disk{'s' if others > 1 else ''}"
        elsewhere = elsewhere.replace("other'", "other's")
        if not self.stored:
            return elsewhere if others else "on no disk yet"
        mine = "on my disk" if self.is_on_disk else "writing ..."
        return f"{mine} / {elsewhere}"

    @property
    def is_on_disk(self) -> bool:
        """Whether our disk has all of it."""
        return self._on_disk == self._changes

    @property
    def is_kept(self) -> bool:
        """Whether any disk has, as far as is known."""
        return self.is_on_disk or (self._elsewhere[0] == self._changes and self._elsewhere[1] > 0)

    @property
    def is_as_it_began(self) -> bool:
        """Whether there has been no change at all."""
        return self._changes == 1

    # ------------------------------------------------------------------ keeping

    async def run(self) -> None:
        """Watch, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_people)
            nursery.start_soon(self._watch_peers)
            nursery.start_soon(self._watch_disks)
            nursery.start_soon(self._wait_for_denial)
            if self.stored:
                nursery.start_soon(self._watch_disk)

    async def _watch_people(self) -> None:
        async for _ in self.document.awareness.changes():
            self.tell()

    async def _watch_peers(self) -> None:
        while True:
            await trio.sleep(LOOK)
            self.tell()

    async def _wait_for_denial(self) -> None:
        try:
            await self.peer.wait_for_peers(1)
        except AccessDenied as error:
            self._denied = str(error)
        self.tell()

    async def _watch_disk(self) -> None:
        try:
            while True:
                number = self._changes
                await self.document.durable()
                self._on_disk = number
                self.tell()
                if number == self._changes:
                    self.changed_at = trio.Event()
                    await self.changed_at.wait()
        except NngkitError as error:
            self.message = f"the disk: {error}"
            self.tell()

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
                self.tell()

    async def save(self, timeout: float) -> str:
        """Wait until it is on a disk: ours, else another's. What to say."""
        number = self._changes
        try:
            if self.stored:
                await self.document.durable()
                self._on_disk = max(self._on_disk, number)
                return "saved: it is on my disk"
            await self.document.synced(1, timeout)
        except TimedOut:
            return f"NOT saved: nobody has had it on a disk for {timeout:g} s"
        except NngkitError as error:
            return f"NOT saved: {error}"
        self._elsewhere = (number, max(1, self._elsewhere[1]))
        return "saved: it is on another's disk"


def _user(state: dict[str, Any]) -> dict[str, Any]:
    user = state.get("user")
    return user if isinstance(user, dict) else {"name": user}


def _name(state: dict[str, Any]) -> str:
    name = _user(state).get("name")
    return name if isinstance(name, str) and name else "somebody"


def _colour(state: dict[str, Any], client: int) -> int:
    colour = _user(state).get("color")
    return colour if type(colour) is int and 0 <= colour < HUES else client % HUES
