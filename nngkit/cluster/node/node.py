"""One node of a cluster, without sockets and clocks: its parts, and the frames between them. Pure.

::

    node = Node(NodeConfig(cluster="render", id="b", ...), epoch=epoch, now=now, wall=time.time(), rng=rng)
    node.link_up(7, "tcp://a:7000", None, now)      # events of the transport
    node.received(7, frames, now)
    node.broadcast("chat", [b"hello"], now)         # calls of the program
    if now >= node.wake_at: node.tick(now, wall)
    effects = node.take(now)                        # what to dial, drop, send, store, start, and to tell the program

The parts know nothing of each other; this module carries what one decides to those that it concerns:

==============  ==========================================================================================
greetings.py    admission of links, links between voters
place.py        the tree: parent, children, path to the host, routes to all nodes below
MeshState       messages to all nodes, over the links of the tree (nngkit.fanout)
letters.py      messages to one node
node_voting.py  at voters: election.py, the replicated log, and the table of jobs
node_work.py    jobs: submissions, workers, and at the host the queue
documents.py    documents and shared objects
==============  ==========================================================================================

A frame that cannot be read is counted, logged with the address of the neighbour that sent it, and has no other effect;
a neighbour that sends many is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nngkit.cluster.election.values import Deposed, Elected, HostChanged
from nngkit.cluster.frames import (
    DOCUMENTS,
    ROUTED,
    Channel,
    local_frame,
    parse_body,
    parse_local,
    parse_routed,
)
from nngkit.cluster.messages import ClusterGap, ClusterMessage
from nngkit.cluster.node.core import NodeCore
from nngkit.cluster.node.greetings import OpenLink
from nngkit.cluster.node.values import ContentChanged, NodeEffects, Refused
from nngkit.cluster.node.voting import VotingPart
from nngkit.cluster.tree import messages as place_messages
from nngkit.cluster.tree import values as placing
from nngkit.errors import BadMessage, TooLarge
from nngkit.mesh.values import MeshMessage
from nngkit.mesh.wire import DATA

__all__ = ["Node"]

MOST_BAD: Final = 100  # unreadable frames of one link after which it is cut off: an honest neighbour sends none
ROUNDS: Final = 1000  # of carrying effects between the parts: a handful happen, more is an endless exchange


class Node(NodeCore):
    """One run of a node. `epoch`: microseconds since 1970, different for each run of an id.

    `restored`: what a voter's store has of its earlier run. `wall`: seconds since 1970. `wake`: called when an edit of
    a document has made something to take. Raises ConfigError.
    """

    # ---- what it knows

    @property
    def wake_at(self) -> float:
        """When to call `tick`, in seconds of `now`."""
        return min(
            self.greetings.wake_at,
            self.place.wake_at,
            self.mesh.wake_at if self._tree else float("inf"),
            self.letters.wake_at,
            self.work.wake_at,
            self.documents.wake_at,
            self.queries.wake_at,
            float("inf") if self.voting is None else self.voting.wake_at,
        )

    # ---- events of the transport

    def link_up(self, link: int, peer: str, dialed: str | None, now: float) -> None:
        """Take in a new connection."""
        self._now = now
        self.greetings.link_up(link, peer, dialed, now)

    def link_down(self, link: int, now: float) -> None:
        """Forget a connection that has ended."""
        self._now = now
        self._bad.pop(link, None)
        found = self.greetings.link_down(link, now)
        if found is not None:
            self._closed(found, now)

    def _closed(self, link: OpenLink, now: float) -> None:
        """Tell the parts that an open link has ended."""
        if link.voter:
            if self.voting is not None and self.greetings.voter_link(link.id) is None:
                self.voting.peer_down(link.id, now)
        else:
            self.place.link_down(link.link, now)

    def dial_failed(self, address: str, why: str, now: float) -> None:
        """Note that an address could not be connected to."""
        self._now = now
        if not self.greetings.dial_failed(address, now):
            self.place.dial_failed(address, now)

    def received(self, link: int, frames: Sequence[bytes], now: float) -> None:
        """Take in frames of a neighbour."""
        self._now = now
        greetings = self.greetings
        if not greetings.is_open(link):
            if not greetings.knows(link):
                return  # it was dropped
            first, *frames = frames
            self._greeted(link, first, now)
            if not frames or not greetings.is_open(link):
                return
        if greetings.is_voter(link):
            greetings.heard(link, now)
        else:
            self.place.heard(link, now)
        mesh: list[bytes] = []
        for frame in frames:
            first_byte = frame[0] if frame else 0
            if first_byte == DATA or 0xA0 <= first_byte <= 0xBF:
                mesh.append(frame)
                continue
            if mesh:
                self._take_mesh(link, mesh, now)
                mesh = []
            try:
                if first_byte == ROUTED:
                    self._forward(link, frame, parse_routed(frame, greetings.peer(link)), now)
                else:
                    row = parse_local(frame, limit=self.config.recv_max_size, peer=greetings.peer(link))
                    self._take_local(link, row, now)
            except (BadMessage, TooLarge) as error:
                self._count_bad(link, error, now)
                if not greetings.knows(link):
                    return
        if mesh:
            self._take_mesh(link, mesh, now)

    def _greeted(self, link: int, frame: bytes, now: float) -> None:
        try:
            row = parse_local(frame, limit=self.config.recv_max_size, peer=self.greetings.peer(link))
            found = self.greetings.greet(link, row, now)
            self._carry_greetings()  # at once: the answer is the first frame in the other direction
        except (BadMessage, TooLarge) as error:
            self.stats.bad += 1
            self._warn(str(error))
            self.greetings.end(link, now)
            return
        if found is None:
            return
        opened, replaced = found
        if opened.voter:
            if replaced is not None:
                self._effects.drops.append(replaced)
            if self.voting is not None:
                self.voting.peer_up(opened.id, now)
        else:
            self.place.link_up(link, now, dialed=opened.dialed)

    def _count_bad(self, link: int, error: Exception, now: float) -> None:
        self.stats.bad += 1
        count = self._bad[link] = self._bad.get(link, 0) + 1
        self._warn(str(error))
        if count >= MOST_BAD and self.greetings.knows(link):
            self._warn(f"{self.greetings.peer(link)} is cut off after {count} frames that cannot be read")
            opened = self.greetings.opened(link)
            self.greetings.end(link, now)
            if opened is not None:
                self._closed(opened, now)

    def _take_mesh(self, link: int, frames: list[bytes], now: float) -> None:
        if link in self._tree:
            self.mesh.receive(link, frames, now)
        else:
            self.stats.early += len(frames)  # the mesh asks for them once the link is part of the tree

    def _take_local(self, link: int, row: list[Any], now: float) -> None:
        peer = self.greetings.peer(link)
        channel, content = row[0], row[1:]
        voter = self.greetings.is_voter(link)
        if channel == Channel.ELECTION and voter:
            if self.voting is not None:
                self.voting.receive(self.greetings.id_of(link), content, now)
        elif channel == Channel.PLACE and not voter:
            message = place_messages.KINDS.parse(content, peer)
            if message is not None:
                self.place.receive(link, message, now)
                self._carry_place(now)  # at once: frames behind it may be of a new child
        elif channel == Channel.WORK and not voter:
            self.work.from_neighbour(link, content, peer, from_parent=link == self.place.parent, now=now)
        elif channel == Channel.HEARTBEAT:
            pass
        else:
            self.stats.unknown += 1  # of a later version

    # ---- routed frames

    # ---- calls of the program

    def set_work(self, kinds: Mapping[str, int], slots: int, now: float) -> None:
        """Change the kinds of jobs that the node does, how many of each at a time, and how many in all."""
        self.work.crew.set_work(kinds, slots, now)
        self.place.set_facts(self._facts(), now)

    def set_busy(self, busy: bool, now: float) -> None:
        """Say that the node has too much to do, or has not any more: the host moves its leaves elsewhere."""
        self.busy = busy
        self.place.set_facts(self._facts(), now)

    def leave(self, now: float) -> None:
        """Leave the cluster: children and the host's place go to others first. The event `Left` reports the end."""
        if self.voting is not None:
            self.voting.step_down(now)
        self._leaving = True
        self.work.crew.leave(now)
        self.place.leave(now)

    # ---- time

    def tick(self, now: float, wall: float) -> None:
        """Do what is due. Sets `wake_at`."""
        self._now = now
        self._wall_offset = wall - now
        for link in self.greetings.tick(now):
            self._closed(link, now)
        if self.voting is not None:
            self.voting.tick(now)
        if now >= self.place.wake_at:
            self.place.tick(now)
        if self._tree and now >= self.mesh.wake_at:
            self.mesh.tick(now)
        self.letters.tick(now)
        self.work.tick(now)
        if now >= self.documents.wake_at:
            self.documents.tick(now)
        self.queries.tick(now)

    # ---- effects

    def take(self, now: float) -> NodeEffects:
        """Return what is to be done since the last call."""
        for _ in range(ROUNDS):
            if not self._carry(now):
                break
        else:
            raise AssertionError(f"the parts of {self.id!r} exchange effects without end")
        effects, self._effects = self._effects, NodeEffects()
        return effects

    def _carry(self, now: float) -> bool:
        """Carry the effects of each part to those that they concern. Return True if there were any."""
        moved = self._carry_greetings()
        if self.voting is not None:
            moved |= self._carry_voting(self.voting, now)
        if self._leaving:  # first what is for the parent: the place may end the link to it
            moved |= self._carry_work(now)
        moved |= self._carry_place(now)
        moved |= self._carry_work(now)
        moved |= self._carry_documents(now)
        for to, row in self.letters.take():
            moved = True
            self.post(Channel.LETTERS, to, row, now)
        moved |= self._carry_mesh(now)
        return moved

    def _carry_greetings(self) -> bool:
        effects = self.greetings.take()
        for link, frame in effects.sends:
            self._send(link, frame)
        self._effects.drops += effects.drops
        self._effects.dials += effects.dials
        for line in effects.warnings:
            self._warn(line)
        for address, why in effects.refused:
            self.place.dial_failed(address, self._now)
            self._effects.events.append(Refused(address, why))
        return bool(effects.refused or effects.sends or effects.drops)

    def _carry_place(self, now: float) -> bool:
        effects = self.place.take()
        for link, message in effects.sends:
            self._send(link, local_frame(Channel.PLACE, place_messages.KINDS.pack(message)))
        self._effects.dials += effects.dial
        for link in effects.drop:
            self.greetings.end(link, now)
        for event in effects.events:
            self._placed(event, now)
        return bool(effects.events or effects.drop)

    def _placed(self, event: placing.PlaceEvent, now: float) -> None:
        """Tell the parts of a change in the tree."""
        match event:
            case placing.ParentUp(link, id):
                self._tree[link] = id
                self.mesh.link_up(link, now)
                self.work.parent_up(link)
            case placing.ChildUp(link, id):
                self._tree[link] = id
                self.mesh.link_up(link, now)
                self.work.child_up(link)
            case placing.ParentDown(link, _):
                self._tree.pop(link, None)
                self.mesh.link_down(link, now)
                self.work.parent_down(link)
            case placing.ChildDown(link, _):
                self._tree.pop(link, None)
                self.mesh.link_down(link, now)
                self.work.child_down(link, now)
            case placing.Attached(term, host, _):
                if self.is_host:
                    self.documents.lead(term, now)
                self.work.attached(term, now)
                self.letters.attached(now)
                self.documents.attached(term, host, self.place.parent_id or "", now)
                self.queries.attached(now)
            case placing.Detached():
                self.work.detached(now)
            case placing.MemberRemoved(member):
                self.documents.member_removed(member.id, now)
            case placing.Silent(id, address, seconds):
                self._warn(f"{id}{address and ' at '}{address}: nothing heard for {seconds:.0f} s; connecting again")
            case placing.OtherVoters(id, voters):
                own = ", ".join(sorted(self.config.voters))
                self._warn(f"the voters are {own} here and {', '.join(voters)} at {id}: all voters need the same list")
            case placing.Greeted(id=id, known=term) if self.voting is not None and self.voting.outranked(term, now):
                self._warn(f"{id} knows term {term}, later than this host's: it stands for one after that")
            case _:
                pass
        self._effects.events.append(event)

    def _carry_voting(self, voting: VotingPart, now: float) -> bool:
        effects = voting.take(now)
        for voter, row in effects.sends:
            link = self.greetings.voter_link(voter)
            if link is not None:
                self._send(link, local_frame(Channel.ELECTION, row))
        self._effects.events += effects.events
        for line in effects.warnings:
            self._warn(line)
        for change in effects.changes:
            match change:
                case Elected(term):
                    self.place.lead(term, now)
                case Deposed(term):
                    self.place.follow(term, None, None, now)
                case HostChanged(term, host):
                    self.place.follow(term, host, None if host is None else self.config.voters[host], now)
        return bool(effects.changes or effects.events or effects.sends)

    def _carry_work(self, now: float) -> bool:
        work = self.work
        if work.hosting and self.voting is not None:
            work.set_granting(self.voting.holds_lease(now))
        effects = work.take(now)
        for link, row in effects.neighbours:
            self._send(link, local_frame(Channel.WORK, row))
        for to, row in effects.nodes:
            self.post(Channel.WORK, to, row, now)
        if effects.entries and self.voting is not None:
            self.voting.propose(effects.entries, now)
        self._effects.events += effects.events
        return bool(effects.neighbours or effects.nodes or effects.entries)

    def _carry_documents(self, now: float) -> bool:
        effects = self.documents.take(now)
        if effects.broadcasts:
            self.broadcast(DOCUMENTS, effects.broadcasts, now)
        for to, row in effects.sends:
            self.post(Channel.DOCUMENTS, to, row, now)
        for refused in effects.events:
            self._warn(f"{refused.what}, from {refused.node}: {refused.why}")
        if effects.changed:
            self._effects.events.append(ContentChanged(frozenset(effects.changed)))
        return bool(effects.sends or effects.broadcasts)

    def _carry_mesh(self, now: float) -> bool:
        effects = self.mesh.take()
        tree = self._tree
        if effects.relays:
            for link in tree:
                frames = [frame for frame, source in effects.relays if source != link]
                if frames:
                    self._effects.sends.append((link, frames, True))
        for link, frame in effects.sends:
            self._send(link, frame, droppable=True)
        if effects.digests:
            for link in tree:
                self._effects.sends.append((link, list(effects.digests), True))
        for line in effects.warnings:
            self._warn(line)
        for event in effects.events:
            self._heard(event, now)
        return bool(effects.events)

    def _heard(self, event: object, now: float) -> None:
        """Take in a message to all nodes, or a gap in those of an origin."""
        if not isinstance(event, MeshMessage):
            gap = ClusterGap(event.origin, event.epoch, event.first, event.last, event.reason)  # type: ignore[attr-defined]
            self.documents.gap(gap.origin, gap.epoch, now)
            self._effects.events.append(gap)
            return
        try:
            kind, payload = parse_body(event.body)
        except BadMessage as error:
            self.stats.bad += 1
            self._warn(f"{error}, from {event.origin}")
            return
        if kind == DOCUMENTS:
            self.documents.received(event.origin, event.epoch, payload, now)
        else:
            self._effects.events.append(ClusterMessage(event.origin, event.epoch, event.sequence, kind, payload))
