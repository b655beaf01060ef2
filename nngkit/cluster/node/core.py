"""Parts of a node, and how it sends: to neighbours, to one node over the tree, and to all. Pure. See node.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from nngkit.cluster.admission import TokenAuthenticator
from nngkit.cluster.content.part import ClusterDocuments
from nngkit.cluster.election.values import Restored
from nngkit.cluster.frames import (
    Channel,
    Hello,
    Routed,
    pack_body,
    routed_frame,
)
from nngkit.cluster.jobs.part import WorkPart
from nngkit.cluster.messages import ClusterMessage
from nngkit.cluster.node.greetings import Greetings
from nngkit.cluster.node.letters import Letter, Letters
from nngkit.cluster.node.log_lines import LogLines
from nngkit.cluster.node.questions import QueryPart
from nngkit.cluster.node.values import NodeChance, NodeConfig, NodeEffects, NodeStats
from nngkit.cluster.node.voting import VotingPart
from nngkit.cluster.tree import values as placing
from nngkit.cluster.tree.place import Place
from nngkit.cluster.tree.root import BUSY
from nngkit.envelope import decode
from nngkit.errors import BadMessage
from nngkit.mesh.state import MeshState

__all__ = ["NodeCore"]

HEARTBEAT: Final = 0.4  # seconds between heartbeats of links: three are missed before one is dropped
MOST_KINDS_BYTES: Final = 300  # of the kinds in a node's facts, which have 512


class NodeCore:
    """One run of a node. `epoch`: microseconds since 1970, different for each run of an id.

    `restored`: what a voter's store has of its earlier run. `wall`: seconds since 1970. `wake`: called when an edit of
    a document has made something to take. Raises ConfigError.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        epoch: int,
        now: float,
        wall: float,
        rng: NodeChance,
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
        is_voter = config.id in config.voters
        hello = Hello(config.cluster, config.id, epoch, False, config.token, config.ticket)
        self.greetings = Greetings(
            hello,
            {name: address for name, address in config.voters.items() if name != config.id} if is_voter else {},
            config.authenticator or TokenAuthenticator(config.cluster, config.token, self._wall_now),
            rng=rng,
            now=now,
            wall=self.wall,
        )
        self._now = now
        self.mesh = MeshState(config.id, epoch, now, config.mesh)
        self.letters = Letters(epoch, config.letters)
        self.work = WorkPart(
            config.id, epoch, kinds=config.kinds, slots=config.slots, decide=config.decide, rng=rng, wall=self.wall
        )
        self.voting: VotingPart | None = None
        if is_voter:
            self.voting = VotingPart(
                config.id,
                config.voters,
                self.work,
                epoch=epoch,
                now=now,
                rng=rng,
                preference=config.preference,
                durable=config.durable,
                lease=config.lease,
                restored=restored,
            )
        self.documents = ClusterDocuments(config.id, epoch, now=now, rng=rng, wake=wake)
        self.queries = QueryPart(self)
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
        )
        self.place.join(now)

    def _facts(self) -> dict[str, Any]:
        kinds: list[str] = []
        for kind in sorted(self.work.kinds):  # as many as the facts of a node have room for
            if sum(map(len, kinds)) + len(kind) > MOST_KINDS_BYTES:
                break
            kinds.append(kind)
        return {**self.config.facts, "slots": self.work.crew.slots, "kinds": kinds} | (
            {BUSY: True} if self.busy else {}
        )

    def wall(self, now: float) -> float:
        """Return seconds since 1970 for a monotonic time."""
        return now + self._wall_offset

    def _wall_now(self) -> float:
        return self._now + self._wall_offset

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

    def _warn(self, line: str) -> None:
        if (said := self._log_lines.add(line, self._now)) is not None:
            self._effects.warnings.append(said)

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

    def _forward(self, link: int, frame: bytes, head: Routed, now: float) -> None:
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
        else:
            self.stats.forwarded += 1
            self._send(way, frame)

    def _deliver(self, channel: int, sender: str, epoch: int, row: list[Any], now: float) -> None:
        """Take in the content of a routed frame for this node. Raises BadMessage."""
        if channel == Channel.WORK:
            self.work.from_node(sender, epoch, row, now)
        elif channel == Channel.LETTERS:
            for letter in self.letters.receive(sender, epoch, row, now):
                self._tell_letter(letter)
        elif channel == Channel.DOCUMENTS:
            self.documents.unicast(sender, row, now)
        elif channel == Channel.QUERY:
            self.queries.receive(sender, row, now)
        else:
            self.stats.unknown += 1

    def _tell_letter(self, letter: Letter) -> None:
        message = ClusterMessage(letter.sender, letter.epoch, letter.number, letter.kind, letter.body, direct=True)
        self._effects.events.append(message)

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
