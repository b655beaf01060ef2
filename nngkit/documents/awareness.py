"""Awareness: small ephemeral states, such as names and cursors, of the peers at work in a document.

::

    doc.awareness.local = {"user": {"name": "Ada"}, "cursor": doc.awareness.cursor("body", 3)}
    for client, state in doc.awareness.states.items():
        print(state["user"], doc.awareness.find(state["cursor"]))      # ("body", 3, 3), wherever the text has moved
    async for change in doc.awareness.changes(): ...

Each peer publishes its own state with a number (`clock`) and renews it before it expires; states with an older number
are ignored. A state ends when its peer removes it, says bye, or has been silent for 30 seconds. States are not stored.
On the wire a state is a CBOR map of at most 16 KiB: the fields, and `client`, the engine's client id. A cursor is
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
from nngkit.messages import Fields, Maps, Natural

STATE_LIMIT: Final = 16 * 1024  # bytes: a name, a colour, a few cursors; all peers get it at each cursor movement
TIMEOUT: Final = 30.0  # seconds, as in Yjs
RENEW: Final = 10.0  # seconds: two of three renewals may be lost before a state expires
_WHAT: Final = "awareness"


@dataclass(frozen=True, slots=True)
class AwarenessChange:
    """Client ids of states that were added, updated and removed. `local`: the local state changed."""

    added: frozenset[int] = frozenset()
    updated: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()
    local: bool = False


@dataclass(slots=True)
class _Entry:
    clock: int
    seen: float
    client: int | None  # None: removed; the entry is kept for its clock
    state: dict[str, Any]


class Awareness:
    """The awareness states of one document. `clock` (seconds, monotonic) is used where a call has no `now`."""

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
        """Number of the last local state, for the wire."""

    # Local state

    @property
    def local(self) -> dict[str, Any] | None:
        """The local state; None: not visible to others. Set it as a whole.

        Raises TooLarge, and TypeError or ValueError for values that cannot be encoded; the state is then unchanged.
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
            self._broadcast.send(AwarenessChange(added=mine, local=True))
        elif new is None:
            self._broadcast.send(AwarenessChange(removed=mine, local=True))
        else:
            self._broadcast.send(AwarenessChange(updated=mine, local=True))

    @property
    def encoded(self) -> bytes | None:
        """The local state as sent; None: removed."""
        return self._encoded(self._local)

    def renew(self) -> None:
        """Publish the local state again under a new number. The peer calls it every RENEW seconds."""
        if self._local is not None:
            self._say(self.encoded)

    def _encoded(self, state: dict[str, Any] | None) -> bytes | None:
        if state is None:
            return None
        return envelope.encode(state | {"client": self._client}, limit=STATE_LIMIT)

    def _say(self, encoded: bytes | None) -> None:
        self.clock += 1
        self._publish(encoded)

    # All states

    @property
    def states(self) -> dict[int, dict[str, Any]]:
        """All current states by client id, including the local one."""
        states = {entry.client: dict(entry.state) for entry in self._entries.values() if entry.client is not None}
        if self._local is not None:
            states[self._client] = dict(self._local)
        return states

    def changes(self) -> ChangeReader[AwarenessChange]:
        """Return a reader of changes, as `doc.changes()`."""
        return self._broadcast.reader()

    # Called by the peer

    def clock_of(self, source: Hashable) -> int:
        """Return the number of the newest known state of `source`; 0 for none."""
        entry = self._entries.get(source)
        return 0 if entry is None else entry.clock

    def known(self) -> list[tuple[Hashable, int, bytes]]:
        """Return the states of other peers as received: source, number, state. A relay forwards them."""
        return [
            (source, entry.clock, envelope.encode(entry.state | {"client": entry.client}, limit=STATE_LIMIT))
            for source, entry in self._entries.items()
            if entry.client is not None
        ]

    def receive(
        self, source: Hashable, clock: int, state: bytes | None, *, now: float | None = None, peer: str | None = None
    ) -> bool:
        """Take a state from the wire: number `clock` of `source` (a stream); None: removed.

        Returns True if it changed anything. Raises BadMessage or TooLarge for an invalid state, or one with the client
        id of another source.
        """
        now = self._now() if now is None else now
        fields = {} if state is None else _decoded(state, peer)
        client = fields.pop("client", None)
        known = self._entries.get(source)
        if client is not None and (client == self._client or self._sources.get(client, source) != source):
            raise BadMessage(_WHAT, f"client id {client} belongs to another peer", peer)
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
            self._broadcast.send(
                AwarenessChange(
                    added=frozenset() if client is None or client == before else frozenset((client,)),
                    updated=frozenset((client,)) if client is not None and client == before else frozenset(),
                    removed=frozenset() if before is None or client == before else frozenset((before,)),
                )
            )
        return not same

    def bye(self, source: Hashable) -> int | None:
        """Remove the state of `source`, which has left or is silent; its messages still in flight are ignored.

        Returns the number of the removal for a relay to forward; None if there was no state.
        """
        entry = self._entries.get(source)
        if entry is None or entry.client is None:
            return None
        clock = entry.clock + 1  # only one more: a peer that was silent for a while returns with the number after it
        self.receive(source, clock, None)
        return clock

    def expire(self, now: float | None = None) -> frozenset[int]:
        """Remove states that were silent for TIMEOUT seconds; return their client ids."""
        now = self._now() if now is None else now
        gone = [source for source, entry in self._entries.items() if now - entry.seen >= TIMEOUT]
        clients = frozenset(client for source in gone if (client := self._entries.pop(source).client) is not None)
        for client in clients:
            del self._sources[client]
        if clients:
            self._broadcast.send(AwarenessChange(removed=clients))
        return clients

    def end(self) -> None:
        """End the readers of changes."""
        self._broadcast.end()

    # Cursors

    def cursor(self, text: str, anchor: int, head: int | None = None) -> dict[str, Any]:
        """Return a cursor, or a selection from `anchor` to `head` (code points), in the root `text`, for a state."""
        root = self._text(text)
        head = anchor if head is None else head
        return {"text": text, "anchor": root.cursor(anchor), "head": root.cursor(head)}

    def find(self, cursor: object) -> tuple[str, int, int] | None:
        """Return the current place of a state's cursor: the root's name, anchor and head.

        None if it is not in this document yet.
        """
        if not isinstance(cursor, Mapping):
            return None
        name, anchor, head = cursor.get("text"), cursor.get("anchor"), cursor.get("head")
        if type(name) is not str or type(anchor) is not bytes or type(head) is not bytes:
            return None
        if (root := self._opened(name)) is None or root.kind != "text":
            return None  # remote input must not open a root
        at, to = root.locate(anchor), root.locate(head)
        return None if at is None or to is None else (name, at, to)


class _State(Fields, frozen=True):
    """Field of a state that nngkit reads; the others are the program's."""

    client: Natural


_STATES: Final = Maps[_State](_WHAT, _State)


def _decoded(state: bytes, peer: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = envelope.decode(state, what=_WHAT, limit=STATE_LIMIT, peer=peer)
    _STATES.parse(fields, peer)
    return fields
