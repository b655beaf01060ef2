"""Who is on the BUS: which connection speaks for whom, who can be asked where, and who has not been heard for long.

A BUS says which connection a message came by, and no more. So the first message on each is a heartbeat, which says who
is there, and from then on that connection speaks for that one alone, unless it says that it relays for others. Pure:
connections are their numbers, `now` is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nngkit.documents.sync.addresses import resolved
from nngkit.documents.sync.messages import MANY_DOCUMENTS, Aware, BusMessage, Bye, DocumentHeartbeat, Heartbeat, Updates
from nngkit.documents.versions import EditStream

__all__ = ["Member", "Members"]

SILENT: Final = 3.0  # seconds without a word after which a peer is not asked any more: 15 beats of 0.2 s
LATELY: Final = 1.0  # seconds after an edit during which somebody counts as editing
ENDED: Final = 256  # connections that ended, and may have said something that was not read yet
MOST: Final = 1024  # members: a mesh of that many would say 1,700 beats a second to each


@dataclass(slots=True)
class Member:
    """Another peer. `repair`: where it can be asked, by which of its addresses we can reach it. `heard`: when, last;
    `edited`: when last we heard an edit from it, its own or one it passed on."""

    stream: EditStream
    name: str | None = None
    address: str | None = None
    repair: tuple[str, ...] = ()
    relay: bool = False
    heard: float = 0.0
    edited: float = float("-inf")
    present: bool = True
    new: bool = True  # until somebody has said so
    opened: set[str] = field(default_factory=set)  # documents that its last beat was the first to tell of
    pipes: set[int] = field(default_factory=set)
    docs: dict[str, DocumentHeartbeat] = field(default_factory=dict)  # what it last said of each
    clients: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        who = self.name or self.stream.origin.hex()
        return who if self.address is None else f"{who} ({self.address})"


class Members:
    """All of them. `me` is nobody of them, and nobody may speak for it."""

    def __init__(self, me: EditStream) -> None:
        self.me = me
        self.known: dict[EditStream, Member] = {}
        self.early = 0
        self._speaks: dict[int, EditStream] = {}
        self._ended: dict[int, bool] = {}

    def present(self) -> list[Member]:
        """Those who were heard lately."""
        return [member for member in self.known.values() if member.present]

    def editing(self, now: float) -> int:
        """How many of them have edited lately."""
        return sum(now - member.edited < LATELY for member in self.known.values() if member.present)

    def heard(self, message: BusMessage, pipe: int, address: str | None, now: float) -> Member | str | None:
        """Who said it; None if it is too early to know; or why it is refused."""
        speaker = self._speaks.get(pipe)
        if isinstance(message, Heartbeat):
            if pipe in self._ended:  # who said it has gone, and brings nobody back; what else was said is theirs
                self._speaks.setdefault(pipe, message.sender)
                return None
            if message.sender == self.me:
                return None if speaker is None else "it speaks for us"  # ourselves, by way of our own address
            if speaker is None:
                if len(self.known) >= MOST and message.sender not in self.known:
                    return f"there are {MOST} peers already"
                self._speaks[pipe] = speaker = message.sender
            elif speaker != message.sender:
                return f"it speaks for {message.sender}, and said that it is {speaker}"
            return self._heartbeat(message, pipe, address, now)
        if speaker is None:
            self.early += 1
            return None
        member = self.known.get(speaker) or Member(speaker, present=False)
        who = message.stream if isinstance(message, Updates) else message.sender
        if who != speaker and not (member.relay and isinstance(message, Updates | Aware)):
            return f"it speaks for {who}, and said that it is {speaker}"
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
        member.name, member.relay = heartbeat.name, heartbeat.relay
        places = (resolved(place, address) for place in heartbeat.repair)
        member.repair = tuple(place for place in places if place is not None)
        member.opened = {one.doc for one in heartbeat.docs} - member.docs.keys()
        for one in heartbeat.docs:
            member.docs.pop(one.doc, None)
            member.docs[one.doc] = one
        while len(member.docs) > MANY_DOCUMENTS:
            del member.docs[next(iter(member.docs))]
        if len(member.clients) + len(heartbeat.clients) <= MANY_DOCUMENTS:
            member.clients.update(heartbeat.clients)
        return member

    def left(self, pipe: int) -> Member | None:
        """A connection ended; whom it leaves us without."""
        speaker = self._speaks.get(pipe)
        self._ended[pipe] = True
        if len(self._ended) > ENDED:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self._speaks.pop(oldest, None)
        if speaker is None or (member := self.known.get(speaker)) is None:
            return None
        member.pipes.discard(pipe)
        return None if member.pipes else self.known.pop(speaker)

    def silent(self, now: float) -> list[Member]:
        """Who has just become too silent to be asked; a word brings them back."""
        gone = [member for member in self.present() if now - member.heard > SILENT]
        for member in gone:
            member.present = False
        return gone
