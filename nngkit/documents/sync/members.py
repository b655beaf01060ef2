"""Members of the BUS: which connection belongs to which peer, its REP addresses, and whether it was heard recently.

A BUS tells the connection of a message, not its author. So the first message on a connection is a heartbeat with the
peer's identity; from then on the connection carries that peer's messages only, unless the peer is a relay. Pure:
connections are numbers, `now` is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nngkit.documents.sync.addresses import resolved
from nngkit.documents.sync.messages import MANY_DOCUMENTS, Aware, BusMessage, Bye, DocumentHeartbeat, Heartbeat, Updates
from nngkit.documents.versions import EditStream
from nngkit.envelope import shown

SILENT: Final = 3.0  # seconds of silence after which a peer is not asked any more: 15 heartbeats of 0.2 s
LATELY: Final = 1.0  # seconds after an edit for which a peer counts as editing
ENDED: Final = 256  # closed connections remembered, because messages of theirs may still be read; and peers cut off
MOST: Final = 1024  # members: a mesh of that many would send 1,700 heartbeats a second to each


@dataclass(slots=True)
class Member:
    """Another peer. `repair`: REP addresses that we can reach.

    `heard`: time of its last message; `edited`: time of the last edit from it, its own or relayed. `who`: its name
    under a trust.
    """

    stream: EditStream
    name: str | None = None
    address: str | None = None
    repair: tuple[str, ...] = ()
    relay: bool = False
    heard: float = 0.0
    edited: float = float("-inf")
    present: bool = True
    new: bool = True  # its first heartbeat has not been answered by ours
    opened: set[str] = field(default_factory=set)  # documents announced first by its last heartbeat
    pipes: set[int] = field(default_factory=set)
    docs: dict[str, DocumentHeartbeat] = field(default_factory=dict)  # the last heartbeat about each document
    clients: dict[str, int] = field(default_factory=dict)
    who: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        who = self.name or self.stream.origin.hex()
        return who if self.address is None else f"{who} ({self.address})"


class Members:
    """All members. Excludes the local peer; its id is rejected."""

    def __init__(self, me: EditStream) -> None:
        self.me = me
        self.known: dict[EditStream, Member] = {}
        self.early = 0
        self._authors: dict[int, EditStream] = {}
        self._ended: dict[int, bool] = {}
        self._cut: dict[EditStream, bool] = {}

    def present(self) -> list[Member]:
        """Return the members that sent a message recently."""
        return [member for member in self.known.values() if member.present]

    def editing(self, now: float) -> int:
        """Return the number of members that have edited recently."""
        return sum(now - member.edited < LATELY for member in self.known.values() if member.present)

    def heard(self, message: BusMessage, pipe: int, address: str | None, now: float) -> Member | str | None:
        """Return the member that sent a message; None to ignore it; a string, the reason, to reject it."""
        author = self._authors.get(pipe)
        if author in self._cut or (isinstance(message, Heartbeat) and message.sender in self._cut):
            return None
        if isinstance(message, Heartbeat):
            if pipe in self._ended:  # a late heartbeat identifies the messages after it, but revives no peer
                self._authors.setdefault(pipe, message.sender)
                return None
            if message.sender == self.me:
                return None if author is None else "it claims to be this peer"  # ourselves, through our own address
            if author is None:
                if len(self.known) >= MOST and message.sender not in self.known:
                    return f"the limit of {MOST} peers is reached"
                self._authors[pipe] = author = message.sender
            elif author != message.sender:
                return f"it sends for {message.sender}, but is {author}"
            return self._heartbeat(message, pipe, address, now)
        if author is None:
            self.early += 1
            return None
        member = self.known.get(author) or Member(author, present=False)
        who = message.stream if isinstance(message, Updates) else message.sender
        if who != author and not (member.relay and isinstance(message, Updates | Aware)):
            return f"it sends for {who}, but is {author}"
        if not isinstance(message, Bye) and pipe not in self._ended:
            member.heard, member.present = now, True
            if isinstance(message, Updates):
                member.edited = now
        return member

    def _heartbeat(self, heartbeat: Heartbeat, pipe: int, address: str | None, now: float) -> Member:
        member = self.known.get(heartbeat.sender)
        if member is None:
            member = self.known[heartbeat.sender] = Member(heartbeat.sender, address=address)
        member.pipes.add(pipe)
        member.heard, member.present = now, True
        about = heartbeat.about
        member.name, member.relay = about.name and shown(about.name), about.relay
        places = (resolved(place, address) for place in about.repair)
        member.repair = tuple(place for place in places if place is not None)
        member.opened = {one.doc for one in heartbeat.docs} - member.docs.keys()
        for one in heartbeat.docs:
            member.docs.pop(one.doc, None)
            member.docs[one.doc] = one
        while len(member.docs) > MANY_DOCUMENTS:
            del member.docs[next(iter(member.docs))]
        if len(member.clients) + len(about.clients) <= MANY_DOCUMENTS:
            member.clients.update((each.doc, each.client) for each in about.clients)
        return member

    def left(self, pipe: int) -> Member | None:
        """Handle the end of a connection; return the member that left with it."""
        author = self._authors.get(pipe)
        self._ended[pipe] = True
        if len(self._ended) > ENDED:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self._authors.pop(oldest, None)
        if author is None or (member := self.known.get(author)) is None:
            return None
        member.pipes.discard(pipe)
        return None if member.pipes else self.known.pop(author)

    def cut(self, peer: EditStream) -> set[int]:
        """Ignore a peer from now on; return its connections."""
        self._cut[peer] = True
        if len(self._cut) > ENDED:
            del self._cut[next(iter(self._cut))]
        return {pipe for pipe, author in self._authors.items() if author == peer}

    def has_cut(self, peer: EditStream) -> bool:
        """Return True if the peer is ignored."""
        return peer in self._cut

    def silent(self, now: float) -> list[Member]:
        """Mark and return members that have just become silent; any message revives them."""
        gone = [member for member in self.present() if now - member.heard > SILENT]
        for member in gone:
            member.present = False
        return gone
