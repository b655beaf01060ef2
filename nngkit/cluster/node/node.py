"""One node of a cluster, without sockets and clocks: its parts, and the frames between them. Pure.

::

    node = Node(NodeConfig(cluster="render", id="b", ...), epoch=epoch, now=now, wall=time.time(), rng=rng,
                entropy=secrets.token_bytes)
    node.link_up(7, "tcp://a:7000", None, now)      # events of the transport
    node.received(7, frames, now)
    node.broadcast("chat", [b"hello"], now)         # calls of the program
    if now >= node.wake_at: node.tick(now, wall)
    effects = node.take(now)                        # what to dial, drop, send, store, start, and to tell the program

The parts know nothing of each other; this module carries what one decides to those that it concerns:

==============  ==========================================================================================
greetings.py    admission of links, links between voters
tree.place      the tree: parent, children, path to the host, routes to all nodes below
MeshState       messages to all nodes, over the links of the tree (nngkit.mesh)
letters.py      messages to one node
questions.py    questions to the host, and its answers
voting.py       at voters: the election, the replicated log, and the table of jobs
jobs.part       jobs: submissions, workers, and at the host the queue
content.part    documents and shared objects
==============  ==========================================================================================

With a `judge` in its settings a node takes a routed frame, or a message to all nodes, from the link below which its
sender is, or else from above: see nngkit.cluster.rights. What a neighbour may not send is counted, and has no effect.

A frame that cannot be read is counted, logged with the address of the neighbour that sent it, and has no other effect;
a neighbour that sends many is cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from nngkit.chance import Chance
from nngkit.cluster.admission import TokenAuthenticator, make_secret
from nngkit.cluster.content.part import ClusterDocuments
from nngkit.cluster.election.values import Deposed, Elected, HostChanged, Restored
from nngkit.cluster.frames import (
    DOCUMENTS,
    ROUTED,
    Channel,
    Greeting,
    Routed,
    local_frame,
    pack_body,
    parse_body,
    parse_local,
    parse_routed,
    routed_frame,
)
from nngkit.cluster.jobs import messages as work_messages
from nngkit.cluster.jobs.part import WorkPart
from nngkit.cluster.log_clock import NEVER
from nngkit.cluster.messages import ClusterGap, ClusterMessage
from nngkit.cluster.node.greetings import Greetings, NodeLink
from nngkit.cluster.node.letters import Letter, Letters
from nngkit.cluster.node.questions import Questions
from nngkit.cluster.node.values import ContentChanged, DialRefused, NodeConfig, NodeEffects, NodeStats
from nngkit.cluster.node.voting import VotingPart
from nngkit.cluster.rights import NodeRights
from nngkit.cluster.tree import messages as place_messages
from nngkit.cluster.tree import values as placing
from nngkit.cluster.tree.place import Place
from nngkit.cluster.tree.root import BUSY
from nngkit.envelope import decode
from nngkit.errors import BadMessage, TooLarge
from nngkit.log_lines import LogLines
from nngkit.mesh.state import MeshState
from nngkit.mesh.values import MeshMessage
from nngkit.mesh.wire import DATA

HEARTBEAT: Final = 0.4  # seconds between heartbeats of links: three are missed before one is dropped
MOST_KINDS_BYTES: Final = 300  # of the kinds in a node's facts, which have 512
MOST_BAD: Final = 100  # unreadable frames of one link after which it is cut off: an honest neighbour sends none
POLICY: Final = 0.5  # seconds between two looks whether the policy has changed
ROUNDS: Final = 1000  # of carrying effects between the parts: a handful happen, more is an endless exchange


class Node:
    """One run of a node. `epoch`: microseconds since 1970, different for each run of an id.

    `restored`: what a voter's store has of its earlier run. `wall`: seconds since 1970. `wake`: called when an edit of
    a document has made something to take. `entropy` returns random bytes that cannot be predicted. Raises ConfigError.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        epoch: int,
        now: float,
        wall: float,
        rng: Chance,
        entropy: Callable[[int], bytes],
        restored: Restored | None = None,
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self.config = config
        self.id, self.epoch = config.id, epoch
        self.stats = NodeStats()
        self.busy = False
        self._leaving = False
        self._wall_offset = wall - now
        self._effects = NodeEffects()
        self._bad: dict[int, int] = {}
        self._log_lines = LogLines()
        self._tree: dict[int, str] = {}  # links of the tree that messages may use, and the ids there
        self._above: set[int] = set()  # those to the parent, and to the one before until that link ends
        self.rights = None if config.judge is None else NodeRights(config.judge, config.cluster, config.id)
        self._policy = None if config.judge is None else config.judge.policy
        self._policy_at = NEVER if config.judge is None else now + POLICY
        is_voter = config.id in config.voters
        self.greetings = Greetings(
            Greeting(config.cluster, config.id, epoch, False),
            {name: address for name, address in config.voters.items() if name != config.id} if is_voter else {},
            config.authenticator or TokenAuthenticator(config.cluster, config.token, lambda: self.wall(self._now)),
            secret=make_secret(config.cluster, config.token, config.ticket, lambda: self.wall(self._now)),
            entropy=entropy,
            rng=rng,
            now=now,
            wall=self.wall,
            rights=self.rights,
        )
        self._now = now
        voices = None if self.rights is None else _TreeVoices(self, self.rights)
        self.mesh = MeshState(config.id, epoch, now, config.mesh, voices=voices)
        self.letters = Letters(epoch, config.letters)
        self.work = WorkPart(
            config.id,
            epoch,
            kinds=config.kinds,
            slots=config.slots,
            decide=config.decide,
            rng=rng,
            wall=self.wall,
            rights=self.rights,
            may_do=None if self.rights is None else self._may_do,
            screen=None if self.rights is None else self._screened,
        )
        self.voting: VotingPart | None = None
        if is_voter:
            self.voting = VotingPart(config, self.work, epoch=epoch, now=now, rng=rng, restored=restored)
        self.documents = ClusterDocuments(config.id, epoch, now=now, rng=rng, wake=wake)
        self.place = Place(
            config.id,
            epoch,
            address=config.address,
            seeds=[seed for seed in config.seeds if seed != config.address],
            voters=config.voters,
            fanout=config.fanout,
            may_host=is_voter,
            now=now,
            rng=rng,
            limits=placing.PlaceLimits(members=config.max_members, heartbeat=HEARTBEAT),
            facts=self._facts(),
            unfit=None if self.rights is None else self._unfit_parent,
        )
        if self.rights is not None:
            self.place.take_children(self.rights.takes_children, now)
        self.questions = Questions(
            config,
            place=self.place,
            voter_link=self.greetings.voter_link,
            grants=lambda now: self.voting is not None and self.voting.holds_lease(now),
            work=self.work,
            stats=self.stats,
            post=self.post,
            report=self.report,
            rights=self.rights,
        )
        self.place.join(now)

    # ---- what it knows

    @property
    def wake_at(self) -> float:
        """When to call `tick`, in seconds of `now`."""
        return min(
            self.greetings.wake_at,
            self.place.wake_at,
            self.mesh.wake_at if self._tree else NEVER,
            self.letters.wake_at,
            self.work.wake_at,
            self.documents.wake_at,
            self.questions.wake_at,
            self._policy_at,
            NEVER if self.voting is None else self.voting.voter.wake_at,
        )

    @property
    def is_host(self) -> bool:
        """True if this node is the host, and has told the tree so."""
        return self.place.leading

    @property
    def tree_links(self) -> list[int]:
        """Links to the parent and the children."""
        return list(self._tree)

    def reach(self, id: str) -> bool:
        """Return True if a frame for this node can leave: the node is below, or there is a way up."""
        return id == self.id or self.place.route(id) is not None or (self.place.parent is not None)

    # ---- events of the transport

    def link_up(self, link: int, peer: str, dialed: str | None, now: float, who: str | None = None) -> None:
        """Take in a new connection. `who`: the name that it proves."""
        self.greetings.link_up(link, peer, dialed, now, who)

    def link_down(self, link: int, now: float) -> None:
        """Forget a connection that has ended."""
        self._bad.pop(link, None)
        found = self.greetings.link_down(link, now)
        if found is not None:
            self._closed(found, now)

    def _closed(self, link: NodeLink, now: float) -> None:
        """Tell the parts that an open link has ended."""
        if link.voter:
            if self.voting is not None:
                self.voting.voter.peer_down(link.id, now)
        else:
            self.place.link_down(link.link, now)

    def dial_failed(self, address: str, why: str, now: float) -> None:
        """Note that an address could not be connected to."""
        if not self.greetings.dial_failed(address, now):
            self.place.dial_failed(address, now)

    def received(self, link: int, frames: Sequence[bytes], now: float) -> None:
        """Take in frames of a neighbour."""
        self._now = now
        greetings = self.greetings
        while (there := greetings.opened(link)) is None:
            if not frames or not greetings.knows(link):
                return  # it was dropped, or has more to say
            first, *frames = frames
            self._greeted(link, first, now)
        if not frames:
            return
        there.heard = now
        if not there.voter:
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
                    self._forward(there, frame, parse_routed(frame, greetings.peer(link)), now)
                else:
                    row = parse_local(frame, limit=self.config.recv_max_size, peer=greetings.peer(link))
                    self._take_local(there, row, now)
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
            self._carry_greetings(now)  # at once: the answer is the first frame in the other direction
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
        if count >= MOST_BAD:
            self._warn(f"{self.greetings.peer(link)} is cut off after {count} frames that cannot be read")
            if (ended := self.greetings.end(link, now)) is not None:
                self._closed(ended, now)

    def _take_mesh(self, link: int, frames: list[bytes], now: float) -> None:
        if link in self._tree:
            self.mesh.receive(link, frames, now)
        else:
            self.stats.early += len(frames)  # the mesh asks for them once the link is part of the tree

    def _take_local(self, there: NodeLink, row: list[Any], now: float) -> None:
        link, peer = there.link, self.greetings.peer(there.link)
        channel, content = row[0], row[1:]
        if channel == Channel.ELECTION and there.voter:
            if self.voting is not None:
                self.voting.receive(there.id, content, now)
        elif channel == Channel.PLACE and not there.voter:
            message = place_messages.KINDS.parse(content, peer)
            if message is not None and self.rights is not None:
                message = self._fitting(self.rights, there, message)
            if message is not None:
                self.place.receive(link, message, now)
                self._carry_place(now)  # at once: frames behind it may be of a new child
        elif channel == Channel.WORK and not there.voter:
            self.work.from_neighbour(link, content, peer, from_parent=link == self.place.parent, now=now)
        elif channel == Channel.HEARTBEAT:
            pass
        else:
            if channel == Channel.ELECTION and self.rights is not None:
                self.rights.may_host(there.id)  # counted
            self.stats.unknown += 1  # of a later version

    # ---- names

    def _unfit_parent(self, link: int, path: Sequence[str]) -> str | None:
        there = self.greetings.opened(link)
        if there is None or self.rights is None:
            return None
        return self.rights.unfit_parent(there.who, there.id, path)

    def _fitting(
        self, rights: NodeRights, there: NodeLink, message: place_messages.Message
    ) -> place_messages.Message | None:
        """Return a message about places as far as its sender may say it; None if it may not. Raises BadMessage."""
        match message:
            case place_messages.Hello(id, epoch) if (id, epoch) != (there.id, there.epoch):
                rights.judge.misspeaks(there.who, id)
                why = f"it is {id!r} after it was {there.id!r}"
                raise BadMessage("place message", why, self.greetings.peer(there.link))
            case place_messages.Alive(id) if id != there.id and not self.place.below(there.link, id):
                rights.judge.misspeaks(there.who, id)
                return None
            case place_messages.Members(added) if any(member.id != there.id for member in added):
                return message if rights.brings(there.who) else None
            case place_messages.Join() | place_messages.Attach() if not rights.may_carry(there.who):
                return replace(message, fanout=0)
        return message

    def _spoken(self, there: NodeLink, sender: str, *, quiet: bool = False) -> bool:
        """Return True if a neighbour may send in the name of a node."""
        place, link = self.place, there.link
        below = sender == there.id or place.below(link, sender)
        fine = sender != self.id if place.above(link) else below
        if not fine and not quiet and self.rights is not None:
            self.rights.judge.misspeaks(there.who, sender)
        return fine

    def _may_do(self, link: int | None, kind: str) -> bool:
        """Return True if the child of a link, or this node, may do jobs of a kind. With others below, a child may."""
        assert self.rights is not None
        if link is None:
            return self.rights.works_on(self.id, kind)
        there = self.greetings.opened(link)
        return there is not None and (self.place.carries(link) or self.rights.works_on(there.id, kind))

    def _screened(self, link: int, message: work_messages.Message) -> work_messages.Message | None:
        """Return a child's message about jobs if it may say that; else None."""
        rights, there, crew = self.rights, self.greetings.opened(link), self.work.crew
        if rights is None or there is None:
            return None
        if isinstance(message, work_messages.Results) and not self._spoken(there, message.worker):
            return None
        if self.place.carries(link):
            return message
        if isinstance(message, work_messages.Demand):
            for kind in {kind for row in message.rows for kind in row.kinds or ()}:
                rights.may_work(there.id, kind)  # counted; no job follows, see `_may_do`
        elif not rights.works(there.id) and not all(
            crew.at(link, *grant) for grant in work_messages.grants_in(message)
        ):
            rights.may_work(there.id, "*")
            return None
        return message

    def _look_at_policy(self, rights: NodeRights, now: float) -> None:
        """Apply a policy that has changed to the neighbours."""
        self._policy_at = now + POLICY
        if rights.judge.policy is self._policy:
            return
        self._policy = rights.judge.policy
        for ended in self.greetings.look_again(now):
            self._closed(ended, now)
        self.place.take_children(rights.takes_children, now)
        self.place.look_again(now)

    # ---- routed frames

    def post(self, channel: Channel, to: str, row: Sequence[object], now: float) -> bool:
        """Send a row to one node, or to the host if `to` is "". Return False if there is no way to it now."""
        if to == self.id or (not to and self.is_host):
            self._deliver(channel, self.id, self.epoch, list(row), now)
            return True
        link = self._way(to, None)
        if link is None:
            self.stats.unroutable += 1
            return False
        self._send(link, routed_frame(channel, to, self.id, self.epoch, row))
        return True

    def _way(self, to: str, source: int | None) -> int | None:
        """Return the link over which a frame gets nearer to its node; None if there is none but where it came from."""
        link = self.place.route(to) if to else None
        if link is None:
            link = self.place.parent
        return None if link == source else link

    def _forward(self, there: NodeLink, frame: bytes, head: Routed, now: float) -> None:
        link = there.link
        if self.rights is not None:
            if link not in self._tree:
                self.stats.early += 1
                return
            if not self._spoken(there, head.sender):
                return
            if self.place.above(link) and self.place.route(head.sender) is not None:
                self.stats.astray += 1  # its sender has moved here meanwhile, and sends again what matters
                return
        if head.to == self.id or (not head.to and self.is_host):
            row = decode(
                frame[head.start :],
                what="routed frame",
                limit=self.config.recv_max_size,
                peer=self.greetings.peer(link),
            )
            if type(row) is not list:
                raise BadMessage("routed frame", "its content is not an array", self.greetings.peer(link))
            self._deliver(head.channel, head.sender, head.epoch, row, now)
            return
        if head.channel == Channel.QUERY and not head.to and self.place.has_earlier(head.sender, head.epoch):
            return  # "joined" has no answer before one of the two has left; the other questions are asked again too
        way = self._way(head.to, link)
        if way is None:
            self.stats.unroutable += 1
        elif self.rights is not None and link in self._above and way in self._above:
            self.stats.astray += 1  # from the parent before: the new one would refuse it; its sender sends it again
        else:
            self.stats.forwarded += 1
            self._send(way, frame)

    def _deliver(self, channel: int, sender: str, epoch: int, row: list[Any], now: float) -> None:
        """Take in the content of a routed frame for this node. Raises BadMessage."""
        if channel == Channel.WORK:
            self.work.from_node(sender, row, now)
        elif channel == Channel.LETTERS:
            for letter in self.letters.receive(sender, epoch, row, now):
                self._tell_letter(letter)
        elif channel == Channel.DOCUMENTS:
            self.documents.unicast(sender, row, now)
        elif channel == Channel.QUERY:
            self.questions.receive(sender, row, now)
        else:
            self.stats.unknown += 1

    def _tell_letter(self, letter: Letter) -> None:
        message = ClusterMessage(letter.sender, letter.epoch, letter.number, letter.kind, letter.body, direct=True)
        self._effects.events.append(message)

    # ---- calls of the program

    def _facts(self) -> dict[str, Any]:
        kinds: list[str] = []
        for kind in sorted(self.work.crew.kinds):  # as many as the facts of a node have room for
            if sum(map(len, kinds)) + len(kind) > MOST_KINDS_BYTES:
                break
            kinds.append(kind)
        return {**self.config.facts, "slots": self.work.crew.slots, "kinds": kinds} | (
            {BUSY: True} if self.busy else {}
        )

    def set_work(self, kinds: Mapping[str, int], slots: int, now: float) -> None:
        """Change the kinds of jobs that the node does, how many of each at a time, and how many in all."""
        if self.rights is not None:
            for kind in kinds:
                self.rights.may_work(self.id, kind)  # told here, where the program is
        self.work.crew.set_work(kinds, slots, now)
        self.place.set_facts(self._facts(), now)

    def set_busy(self, busy: bool, now: float) -> None:
        """Say that the node has too much to do, or has not any more: the host moves its leaves elsewhere."""
        self.busy = busy
        self.place.set_facts(self._facts(), now)

    def leave(self, now: float) -> None:
        """Leave the cluster: children and the host's place go to others first. The event `Left` reports the end."""
        if self.voting is not None:
            self.voting.voter.step_down(now)
        self._leaving = True
        self.work.crew.leave(now)
        self.place.leave(now)

    def broadcast(self, kind: str, payloads: Iterable[bytes], now: float) -> int:
        """Send messages to all other nodes; return the number of the last one in this run."""
        frames = self.mesh.send([pack_body(kind, payload) for payload in payloads], now)
        for link in self._tree:
            self._effects.sends.append((link, list(frames), True))
        return self.mesh.sent

    def letter(self, to: str, kind: str, body: bytes, now: float) -> int:
        """Send a message to one node; return its number. Raises Full."""
        if to == self.id:
            number = self.letters.own()
            self._tell_letter(Letter(self.id, self.epoch, number, kind, body))
            return number
        return self.letters.send(to, kind, body, now)

    # ---- time

    def tick(self, now: float, wall: float) -> None:
        """Do what is due. Sets `wake_at`."""
        self._wall_offset = wall - now
        if self.rights is not None and now >= self._policy_at:
            self._look_at_policy(self.rights, now)
        for link in self.greetings.tick(now):
            self._closed(link, now)
        if self.voting is not None:
            self.voting.tick(now)
        if now >= self.place.wake_at:
            self.place.tick(now)
        if self._tree and now >= self.mesh.wake_at:
            self.mesh.tick(now)
        self.letters.tick(now)
        self.stats.given_up = self.letters.given_up
        self.work.tick(now)
        if now >= self.documents.wake_at:
            self.documents.tick(now)
        self.questions.tick(now)

    def wall(self, now: float) -> float:
        """Return seconds since 1970 for a monotonic time."""
        return now + self._wall_offset

    # ---- effects

    def take(self, now: float) -> NodeEffects:
        """Return what is to be done since the last call."""
        for _ in range(ROUNDS):
            if not self._carry(now):
                break
        else:
            raise AssertionError(f"the parts of {self.id!r} exchange effects without end")
        effects, self._effects = self._effects, NodeEffects()
        effects.warnings = [line for each in effects.warnings if (line := self._log_lines.add(each, now)) is not None]
        return effects

    def _carry(self, now: float) -> bool:
        """Carry the effects of each part to those that they concern. Return True if an earlier one has new effects."""
        moved = False
        self._carry_greetings(now)
        if self.voting is not None:
            self._carry_voting(self.voting, now)
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

    def _carry_greetings(self, now: float) -> None:
        effects = self.greetings.take()
        for link, frame in effects.sends:
            self._send(link, frame)
        self._effects.drops += effects.drops
        self._effects.dials += effects.dials
        for line in effects.warnings:
            self._warn(line)
        for address, why in effects.refused:
            self.place.dial_failed(address, now)
            self._effects.events.append(DialRefused(address, why))

    def _carry_place(self, now: float) -> bool:
        if self.rights is not None:
            self._carry_mesh(now)  # what a node has sent comes before the news that it has left
        effects = self.place.take()
        for link, message in effects.sends:
            self._send(link, local_frame(Channel.PLACE, place_messages.KINDS.pack(message)))
        self._effects.dials += effects.dial
        for link in effects.drop:
            self.greetings.end(link, now)
        for event in effects.events:
            self._placed(event, now)
        return bool(effects.events or effects.drop)

    def _placed(self, event: placing.PlaceEvent | DialRefused, now: float) -> None:
        """Tell the parts of a change in the tree."""
        match event:
            case placing.ParentUp(link, id):
                self._tree[link] = id
                self._above.add(link)
                self.mesh.link_up(link, now)
                self.work.parent_up(link)
            case placing.ChildUp(link, id):
                self._tree[link] = id
                self.mesh.link_up(link, now)
                self.work.crew.child_up(link)
            case placing.ParentDown(link, _):
                self._tree.pop(link, None)
                self._above.discard(link)
                self.mesh.link_down(link, now)
                self.work.parent_down(link)
            case placing.ChildDown(link, _):
                self._tree.pop(link, None)
                self.mesh.link_down(link, now)
                self.work.crew.child_down(link, now)
            case placing.Attached(term, host, _):
                if self.is_host:
                    self.documents.lead(term, now)
                self.work.attached(term, now)
                self.letters.attached(now)
                self.documents.attached(term, host, self.place.parent_id or "", now)
                self.questions.attached(now)
            case placing.Detached():
                self.work.detached(now)
            case placing.MemberRemoved(member):
                self.documents.member_removed(member.id, now)
            case placing.Silent(id, address, seconds):
                self._warn(f"{id}{address and ' at '}{address}: nothing heard for {seconds:.0f} s; connecting again")
            case placing.ParentUnfit(id, address, why):
                self._warn(f"{id}{address and ' at '}{address} is no parent for this node: {why}")
                event = DialRefused(address or id, why)
            case placing.OtherVoters(id, voters):
                own = ", ".join(sorted(self.config.voters))
                self._warn(f"the voters are {own} here and {', '.join(voters)} at {id}: all voters need the same list")
            case placing.Greeted(id=id, known=term) if self.voting is not None:
                if self.voting.voter.outranked(term, now):
                    self._warn(f"{id} knows term {term}, later than this host's: it stands for one after that")
            case _:
                pass
        self._effects.events.append(event)

    def _carry_voting(self, voting: VotingPart, now: float) -> None:
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

    def _carry_work(self, now: float) -> bool:
        work = self.work
        if work.host is not None and self.voting is not None:
            work.host.granting = self.voting.holds_lease(now)
        effects = work.take(now)
        for link, row in effects.neighbours:
            self._send(link, local_frame(Channel.WORK, row))
        for to, row in effects.nodes:
            self.post(Channel.WORK, to, row, now)
        if effects.entries and self.voting is not None:
            self.voting.propose(effects.entries, now)
        self._effects.events += effects.events
        return bool(effects.nodes or effects.entries)

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
                # a new parent would refuse what comes from the one before: its origins are not below this node
                apart = self._above if self.rights is not None and link in self._above else {link}
                frames = [frame for frame, source in effects.relays if source not in apart]
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

    def _warn(self, line: str) -> None:
        self._effects.warnings.append(line)

    def _send(self, link: int, frame: bytes, *, droppable: bool = False) -> None:
        """Queue a frame for a neighbour, beside others that go the same way."""
        sends = self._effects.sends
        if sends and sends[-1][0] == link and sends[-1][2] == droppable:
            sends[-1][1].append(frame)
        else:
            sends.append((link, [frame], droppable))

    def report(self, event: object) -> None:
        """Tell the program something."""
        self._effects.events.append(event)


class _TreeVoices:
    """In whose names the neighbours in the tree may send messages to all nodes: see nngkit.mesh.limits.Voices."""

    def __init__(self, node: Node, rights: NodeRights) -> None:
        self._node, self._rights = node, rights

    def _fine(self, link: int, origin: str, *, quiet: bool) -> bool:
        node = self._node
        there = node.greetings.opened(link)
        if there is None:
            return False
        # what is kept of a node that has left comes from those below which it was: nodes with others below them
        kept = node.is_host and node.place.route(origin) is None and origin != node.id and node.place.carries(link)
        if kept or node.place.above(link):
            return True
        return node._spoken(there, origin, quiet=quiet)

    def speaks(self, link: int, origin: str) -> bool:
        return self._fine(link, origin, quiet=False)

    def tells(self, link: int, origin: str) -> bool:
        return self._fine(link, origin, quiet=True)

    def carries(self, link: int) -> bool:
        return not self._node.place.above(link) or bool(self._node.place.children)
