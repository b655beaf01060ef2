"""A user's session in a document: the cursors of others, and how many disks have all edits.

::

    session = Session(peer, document, "body", name="Ada", stored=True)
    nursery.start_soon(session.run)
    session.others(), session.status(), session.notified    # a WakeUp to redraw the screen
    await session.save(timeout)                             # False if no disk has all edits; `message` says more
"""

from __future__ import annotations

from typing import Any, Final

import trio

from nngkit.background import WakeUp
from nngkit.cli.doc.editor.rows import Fragment, Other, shown
from nngkit.cli.doc.status import disks
from nngkit.documents import Document, DocumentPeer
from nngkit.errors import AccessDenied, NngkitError, TimedOut

# of 256 colours, light enough for black text; eight as on the page of `doc serve`
COLOURS: Final = ("#ff5f5f", "#87d787", "#ffd75f", "#5fafff", "#d787d7", "#5fd7d7", "#ffaf5f", "#afafff")
SETTLE: Final = 0.3  # seconds without a change before peers are asked for durability
LOOK: Final = 1.0  # seconds between two questions whether peers refuse this one
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
        self._changed = WakeUp()
        self._changes = 1
        self._on_disk = 0  # number of the last change on the local disk
        self._elsewhere = (0, 0)  # number of the last change on peers' disks, and of these disks
        self._denied = ""
        self._colour = peer.me.origin[0] % len(COLOURS)
        document.engine.observe(self._observed)

    def _observed(self, update: bytes, origin: object) -> None:
        self._changes += 1
        self._changed.wake()
        self.notified.wake()

    def say(self, message: str) -> None:
        """Show a message in the last line."""
        self.message = message
        self.notified.wake()

    def place(self, at: int) -> None:
        """Publish the cursor."""
        cursor = self.document.awareness.cursor(self.root, at)
        state = {"user": {"name": self.name, "color": self._colour}, "cursor": cursor}
        if self.document.awareness.local != state:
            self.document.awareness.local = state

    def others(self) -> list[Other]:
        """Return the others in the document; at -1 if their cursor is not in this text."""
        found = []
        for client, state in self.document.awareness.states.items():
            if client != self.document.client_id:
                place = self.document.awareness.find(state.get("cursor"))
                at = place[2] if place is not None and place[0] == self.root else -1
                found.append(Other(at, *_user(state, client)))
        return sorted(found)

    # ------------------------------------------------------------------ the status line

    def status(self) -> list[Fragment]:
        """Return the status line: document, durability, connection, others."""
        there = len(self.peer.peers)
        peers = self._denied or (f"{there} {'peer' if there == 1 else 'peers'}" if there else "alone")
        found = [("reverse", shown(f" {self.document.name}  {self._kept()}  {peers}  "))]
        for _, name, style in sorted(self.others(), key=lambda other: other[1:]):
            found += [(style, f" {shown(name)} "), ("reverse", " ")]
        return found if len(found) > 1 else [*found, ("reverse", "no other users")]

    def _kept(self) -> str:
        """Return the durability: `on my disk / on 2 others' disks`."""
        others = self._elsewhere[1] if self._elsewhere[0] == self._changes else 0
        elsewhere = "on 1 other's disk" if others == 1 else f"on {others} others' disk{'s' if others else ''}"
        if not self.stored:
            return elsewhere if others else "on no disk yet"
        return f"{'on my disk' if self._on_disk == self._changes else 'writing ...'} / {elsewhere}"

    @property
    def is_kept(self) -> bool:
        """Return True if some disk is known to have all edits."""
        return self._on_disk == self._changes or (self._elsewhere[0] == self._changes and self._elsewhere[1] > 0)

    @property
    def is_as_it_began(self) -> bool:
        """Return True if nothing has changed."""
        return self._changes == 1

    # ------------------------------------------------------------------ durability

    async def run(self) -> None:
        """Watch others, peers and disks until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_disks)
            nursery.start_soon(self._watch_denial)
            if self.stored:
                nursery.start_soon(self._watch_disk)
            async for _ in self.document.awareness.changes():
                self.notified.wake()

    async def _watch_denial(self) -> None:
        while True:
            denied = ""
            try:
                await self.peer.wait_for_peers(1)
            except AccessDenied as error:
                denied = f"refused: {error}"
            if denied != self._denied:
                self._denied = denied
                self.notified.wake()
            await trio.sleep(LOOK)

    async def _watch_disk(self) -> None:
        try:
            while True:
                number = self._changes
                await self.document.durable()
                self._on_disk = number
                self.notified.wake()
                if number == self._changes:
                    await self._changed.wait()
        except NngkitError as error:
            self.say(f"the disk: {error}")

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
                self.notified.wake()

    async def save(self, timeout: float) -> bool:
        """Wait until the local disk, or else a peer's, has all edits so far; return False if it has not."""
        number = self._changes
        try:
            if self.stored:
                await self.document.durable()
                self._on_disk = max(self._on_disk, number)
            else:
                await self.document.synced(1, timeout)
                self._elsewhere = (number, max(1, self._elsewhere[1]))
        except NngkitError as error:
            late = isinstance(error, TimedOut)
            self.say(f"NOT saved: {f'no peer had it on a disk in {timeout:g} s' if late else error}")
            return False
        self.say("saved on my disk" if self.stored else "saved on another's disk")
        return True


def _user(state: dict[str, Any], client: int) -> tuple[str, str]:
    """Return the name of another user, and the style of the cursor."""
    user = state.get("user")
    name, colour = (user.get("name"), user.get("color")) if isinstance(user, dict) else (user, None)
    number = colour if type(colour) is int and 0 <= colour < len(COLOURS) else client % len(COLOURS)
    return name if isinstance(name, str) and name else "anonymous", f"fg:{COLOURS[number]} bg:#000000 reverse"
