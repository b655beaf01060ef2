"""Who is here, and where: small states that are not part of the document, and that nobody keeps.

::

    doc.awareness.local = {"user": {"name": "Ada"}, "cursor": doc.awareness.cursor("body", 3)}
    for client, state in doc.awareness.states.items():
        print(state["user"], doc.awareness.find(state["cursor"]))      # ("body", 3, 3), wherever the text has moved
    async for change in doc.awareness.changes(): ...

Each peer says its own state, numbered (`clock`), and says it again before it is forgotten; one that is older than what
is known changes nothing. A state ends when its peer says so, says bye, or has been silent for 30 seconds. On the wire
it is a CBOR map of at most 16 KiB: ours, and `client`, the engine's number of who edits. A cursor in it is
{"text": name of the root, "anchor": position, "head": position}, with positions as Yjs encodes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nngkit import envelope
from nngkit.documents.changes import Broadcast, ChangeReader
from nngkit.documents.shared import Text
from nngkit.errors import BadMessage

__all__ = ["RENEW", "STATE_LIMIT", "TIMEOUT", "Awareness", "AwarenessChange"]

STATE_LIMIT: Final = 16 * 1024  # bytes: a name, a colour, a few cursors; it goes to everybody at each step of a cursor
TIMEOUT: Final = 30.0  # seconds, as Yjs has it
RENEW: Final = 10.0  # seconds: two of three may be lost before anybody is forgotten
_CLIENTS: Final = 2**53
_WHAT: Final = "awareness"


@dataclass(frozen=True, slots=True)
class AwarenessChange:
    """Client ids of states that came, changed and went. `local`: it was ours."""

    added: frozenset[int] = frozenset()
    updated: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()
    local: bool = False


@dataclass(slots=True)
class _Entry:
    clock: int
    seen: float
    client: int | None  # None: gone, kept for its clock
    state: dict[str, Any]


class Awareness:
    """Of one document. `clock` (seconds, monotonic) is for those calls that are not given `now`."""

    def __init__(
        self,
        client_id: int,
        *,
        publish: Callable[[bytes | None], None],
        text: Callable[[str], Text],
        opened: Callable[[str], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client_id
        self._publish = publish
        self._text = text
        self._opened = opened
        self._now = clock
        self._local: dict[str, Any] | None = None
        self._entries: dict[Hashable, _Entry] = {}
        self._sources: dict[int, Hashable] = {}
        self._broadcast: Broadcast[AwarenessChange] = Broadcast()
        self.clock = 0
        """The number of our last state, for the wire."""

    # Ours

    @property
    def local(self) -> dict[str, Any] | None:
        """Our state; None: nobody is to see us. Set it whole. Raises TooLarge, and TypeError or ValueError for what may
        not cross the wire; the state is then as it was.
        """
        return None if self._local is None else dict(self._local)

    @local.setter
    def local(self, state: Mapping[str, Any] | None) -> None:
        new = None if state is None else dict(state)
        encoded = self._encoded(new)
        before, self._local = self._local, new
        if before is None and new is None:
            return
        mine = frozenset((self._client,))
        self._say(encoded)
        if before is None:
            self._broadcast.tell(AwarenessChange(added=mine, local=True))
        elif new is None:
            self._broadcast.tell(AwarenessChange(removed=mine, local=True))
        else:
            self._broadcast.tell(AwarenessChange(updated=mine, local=True))

    @property
    def encoded(self) -> bytes | None:
        """Our state for the wire; None: gone."""
        return self._encoded(self._local)

    def renew(self) -> None:
        """Say our state again, with a new number; every RENEW seconds, by whoever holds the document."""
        if self._local is not None:
            self._say(self.encoded)

    def _encoded(self, state: dict[str, Any] | None) -> bytes | None:
        if state is None:
            return None
        return envelope.encode(state | {"client": self._client}, limit=STATE_LIMIT)

    def _say(self, encoded: bytes | None) -> None:
        self.clock += 1
        self._publish(encoded)

    # Everybody's

    @property
    def states(self) -> dict[int, dict[str, Any]]:
        """The states of all who are here, by client id, ours among them."""
        states = {entry.client: dict(entry.state) for entry in self._entries.values() if entry.client is not None}
        if self._local is not None:
            states[self._client] = dict(self._local)
        return states

    def changes(self) -> ChangeReader[AwarenessChange]:
        """Read along, as `doc.changes()`."""
        return self._broadcast.reader()

    # What the peer calls

    def clock_of(self, source: Hashable) -> int:
        """The number of the newest state of `source` that is known, 0 for none."""
        entry = self._entries.get(source)
        return 0 if entry is None else entry.clock

    def known(self) -> list[tuple[Hashable, int, bytes]]:
        """The states of others as they came: source, number, state. For who passes on what one says to the others."""
        return [
            (source, entry.clock, envelope.encode(entry.state | {"client": entry.client}, limit=STATE_LIMIT))
            for source, entry in self._entries.items()
            if entry.client is not None
        ]

    def receive(
        self, source: Hashable, clock: int, state: bytes | None, *, now: float | None = None, peer: str | None = None
    ) -> bool:
        """A state off the wire: `source` (its stream) says it, as its number `clock`; None: it is gone. Whether that
        was news. BadMessage or TooLarge for what is no state, or speaks for a client that is somebody else's.
        """
        now = self._now() if now is None else now
        fields = {} if state is None else _decoded(state, peer)
        client = fields.pop("client", None)
        known = self._entries.get(source)
        if client is not None and (client == self._client or self._sources.get(client, source) != source):
            raise BadMessage(_WHAT, f"client {client} is somebody else", peer)
        if known is not None and clock <= known.clock:
            return False
        before = known.client if known is not None else None
        same = known is not None and known.client == client and known.state == fields
        self._entries[source] = _Entry(clock, now, client, fields)
        if before is not None and before != client:
            del self._sources[before]
        if client is not None:
            self._sources[client] = source
        if not same:
            self._broadcast.tell(
                AwarenessChange(
                    added=frozenset() if client is None or client == before else frozenset((client,)),
                    updated=frozenset((client,)) if client is not None and client == before else frozenset(),
                    removed=frozenset() if before is None or client == before else frozenset((before,)),
                )
            )
        return not same

    def bye(self, source: Hashable) -> int | None:
        """`source` has left, or is silent; its last word, if that is still under way, changes nothing any more. The
        number that says so, None if it was not seen here: for who passes on what one says to the others.
        """
        entry = self._entries.get(source)
        if entry is None or entry.client is None:
            return None
        clock = entry.clock + 1  # no more: who was silent for a while comes back with the one after it
        self.receive(source, clock, None)
        return clock

    def expire(self, now: float | None = None) -> frozenset[int]:
        """Forget whoever has been silent for TIMEOUT; their client ids."""
        now = self._now() if now is None else now
        gone = [source for source, entry in self._entries.items() if now - entry.seen >= TIMEOUT]
        clients = frozenset(client for source in gone if (client := self._entries.pop(source).client) is not None)
        for client in clients:
            del self._sources[client]
        if clients:
            self._broadcast.tell(AwarenessChange(removed=clients))
        return clients

    def end(self) -> None:
        """Nothing will change any more."""
        self._broadcast.end()

    # Cursors

    def cursor(self, text: str, anchor: int, head: int | None = None) -> dict[str, Any]:
        """A cursor (or what is selected from `anchor` to `head`, code points) in the root `text`, for a state."""
        root = self._text(text)
        head = anchor if head is None else head
        return {"text": text, "anchor": root.cursor(anchor), "head": root.cursor(head)}

    def find(self, cursor: object) -> tuple[str, int, int] | None:
        """Where a state's cursor is now: the root's name, anchor and head. None: nowhere in what is here (yet)."""
        if not isinstance(cursor, Mapping):
            return None
        name, anchor, head = cursor.get("text"), cursor.get("anchor"), cursor.get("head")
        if type(name) is not str or type(anchor) is not bytes or type(head) is not bytes:
            return None
        if (root := self._opened(name)) is None or root.kind != "text":
            return None  # a stranger's word opens no root
        at, to = root.locate(anchor), root.locate(head)
        return None if at is None or to is None else (name, at, to)


def _decoded(state: bytes, peer: str | None) -> dict[str, Any]:
    value = envelope.decode(state, what=_WHAT, limit=STATE_LIMIT, peer=peer)
    fields = envelope.as_map(value, what=_WHAT, peer=peer)
    envelope.field(fields, "client", int, what=_WHAT, peer=peer, low=0, high=_CLIENTS - 1)
    return fields
