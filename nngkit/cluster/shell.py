"""Shell of a node of a cluster: its transport, clock, voter's file, journal and tasks. Under trio.

The decisions are in node.py; what a program calls is in endpoint.py, which derives from `NodeShell`.

Effects are carried out at once if none were for `SPACING`, else together with those of the next moment: a busy node so
sends many messages in one frame, and a quiet one waits for nothing.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict
from urllib.parse import urlsplit
from uuid import uuid4

import trio

from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.cluster import place_events as placing
from nngkit.cluster.admission import Authenticator
from nngkit.cluster.crew_sharing import Decide, evenly
from nngkit.cluster.election_limits import Persist, Restored
from nngkit.cluster.frames import check_id, check_kind
from nngkit.cluster.joining import announce, seek
from nngkit.cluster.journaling import ClusterJournal, Door
from nngkit.cluster.load import EVERY, LoadGauge
from nngkit.cluster.messages import ClusterGap, ClusterMessage
from nngkit.cluster.node import ContentChanged, Node, NodeConfig, Refused
from nngkit.cluster.node_queries import Answered, DrainOrdered
from nngkit.cluster.node_voting import Store, VotingEvent
from nngkit.cluster.node_work import JobsEnded
from nngkit.cluster.receiving import Dispatcher
from nngkit.cluster.sharing import Shared
from nngkit.cluster.sockets import SocketTransport
from nngkit.cluster.transport import Transport
from nngkit.cluster.working import Workers
from nngkit.errors import AccessDenied, Closed, ConfigError, TimedOut
from nngkit.protocols import TLS

if TYPE_CHECKING:
    from nngkit.cluster.election_store import VoterStore

__all__ = ["EndpointOptions", "NodeShell"]

log = logging.getLogger("nngkit.cluster")

SPACING: Final = 0.001  # seconds between two times that effects are carried out: the shortest wait of a loop
WILDCARDS: Final = ("0.0.0.0", "::", "*", "")


class EndpointOptions(TypedDict, total=False):
    """Options of both `Host` and `Member`; see Endpoint."""

    discovery: str | Iterable[str]
    advertise: str | None
    preference: int
    store: str | os.PathLike[str] | None
    token: str | None
    ticket: str | None
    authenticator: Authenticator | None
    fanout: int
    slots: int | None
    decide: Decide
    max_members: int
    lease: float
    load: Callable[[], float] | None
    handlers: int
    recv_max_size: int
    tls: TLS | None
    transport: Transport | None
    journal: Door | None
    journal_messages: bool


def _open_store(path: str | os.PathLike[str]) -> VoterStore:
    """Return a voter's store. Raises ConfigError without the extra that it needs."""
    try:
        from nngkit.cluster.election_store import VoterStore
    except ImportError as error:
        raise ConfigError("store", f"it needs the extra nngkit[journal] ({error})", path) from error
    return VoterStore(path)


class NodeShell(UnderTrio):
    """A node of a cluster: `Host` and `Member` are the ways to make one. Use it with `async with`, under trio.

    Args:
        cluster: Name of the cluster.
        listen: Address to accept nodes at; without one the node has no children, and cannot be a voter.
        dial: Address of a node of the cluster, or several; any of them will do.
        daemons: Query addresses of discovery daemons that know nodes of the cluster, instead of `dial` or beside it.
        discovery: Survey addresses of discovery daemons that this node announces itself to, if it listens.
        id: Id of this node, unique in the cluster: printable text of at most 64 bytes. The default is random.
        advertise: Address that the others dial, if it is not the one of `listen`; of a wildcard, the machine's name.
        voters: Addresses of the voters by id: the nodes that elect the host, and may become it. All of them need the
            same ones. A voter's own id is among them.
        preference: Of voters that know the same, the one with the highest preference becomes host.
        store: Folder for a voter's log: what the voters have accepted outlives them all; else it outlives a minority.
        token: Secret of the cluster: shown to the nodes that it joins, and demanded of those that join.
        ticket: Permission to join, instead of the token: see `issue_ticket`.
        authenticator: Function that decides on nodes that join, instead of the token: see nngkit.cluster.admission.
        fanout: Most children.
        slots: Jobs that it does at a time; the default is the concurrency of its functions.
        decide: Policy that divides jobs between this node and its children: see nngkit.cluster.crew_sharing. The
            default fills the emptiest slots first.
        max_members: Nodes of the cluster, while this node is its host; more are refused.
        lease: Seconds until the voters elect another host if they hear nothing of the last one. Equal at all voters.
        load: Function that returns how much it has to do, from 0 to 1: while that is over 0.85 for some seconds, its
            leaves go to other nodes, one after the other. The default is the share of a processor that its loop takes.
        handlers: Handlers of messages that run at a time.
        recv_max_size: Bytes of the largest frame.
        tls: For tls+tcp and wss.
        transport: Carrier of the frames instead of sockets: see nngkit.cluster.transport.
        journal: A Recorder, or another object with its `put`: it gets the ends of jobs while this node is host, what a
            voter learns of the host, and the messages that it sends and receives if `journal_messages` is set.
        alone: It is the only voter.

    Raises:
        ConfigError: An unusable value or address.
        Unreachable: It cannot listen.
    """

    def __init__(
        self,
        cluster: str,
        *,
        listen: str | None = None,
        dial: str | Iterable[str] = (),
        daemons: str | Iterable[str] = (),
        discovery: str | Iterable[str] = (),
        id: str | None = None,
        advertise: str | None = None,
        voters: Mapping[str, str] | None = None,
        preference: int = 0,
        store: str | os.PathLike[str] | None = None,
        token: str | None = None,
        ticket: str | None = None,
        authenticator: Authenticator | None = None,
        fanout: int = 8,
        slots: int | None = None,
        decide: Decide = evenly,
        max_members: int = 20_000,
        lease: float = 0.5,
        load: Callable[[], float] | None = None,
        handlers: int = 64,
        recv_max_size: int = 16 * 1024 * 1024,
        tls: TLS | None = None,
        transport: Transport | None = None,
        journal: Door | None = None,
        journal_messages: bool = False,
        alone: bool = False,
    ) -> None:
        self.cluster = check_kind(cluster, "cluster")
        self.id = uuid4().hex[:16] if id is None else check_id(id)
        self.epoch = time.time_ns() // 1000  # microseconds: two runs of one id never begin in the same one
        self._advertise = advertise
        self._alone = alone
        self._voters = {self.id: ""} if alone else dict(voters or {})  # its address is known once it listens
        self._store_path = store
        self._transport = transport or SocketTransport(listen, recv_max_size=recv_max_size, tls=tls)
        if store is not None and self.id not in self._voters:
            raise ConfigError("store", f"{self.id!r} is not one of the voters: only they keep a log", store)
        for name, value, least in (("fanout", fanout, 1), ("max_members", max_members, 1), ("handlers", handlers, 1)):
            if not isinstance(value, int) or value < least:
                raise ConfigError(name, f"{value!r} is not a whole number from {least}", value)
        if slots is not None and (not isinstance(slots, int) or slots < 0):
            raise ConfigError("slots", f"{slots!r} is not a whole number from 0", slots)
        if not isinstance(lease, (int, float)) or not 0.05 <= lease <= 60.0:
            raise ConfigError("lease", f"{lease!r} is not from 0.05 to 60 s", lease)
        self._settings: dict[str, Any] = {
            "cluster": self.cluster,
            "id": self.id,
            "preference": preference,
            "durable": store is not None,
            "fanout": fanout,
            "token": token,
            "ticket": ticket,
            "authenticator": authenticator,
            "max_members": max_members,
            "decide": decide,
            "recv_max_size": recv_max_size,
            "lease": float(lease),
        }
        self._load = load
        self._dial = (dial,) if isinstance(dial, str) else tuple(dial)
        self._slots = slots
        self._recv_max_size = recv_max_size
        self._background = Background()
        self._dispatcher = Dispatcher(self.id, self._background, handlers)
        self._workers = Workers(self)
        self._journal = (
            None
            if journal is None
            else ClusterJournal(journal, cluster, self.id, self.epoch, messages=journal_messages)
        )
        self._daemons = (daemons,) if isinstance(daemons, str) else tuple(daemons)
        self._discovery = (discovery,) if isinstance(discovery, str) else tuple(discovery)
        self._shared: dict[str, Shared] = {}
        self._to_store: list[Persist] = []
        self._added: list[Callable[[str], object]] = []
        self._removed: list[Callable[[str], object]] = []
        self._answers: dict[int, tuple[trio.Event, list[Answered]]] = {}
        self._refusals: dict[str, str] = {}
        self._final: str | None = None
        self._closed = False
        self._left = False
        self._sent_since = 0
        self._store: VoterStore | None = None

    # ---- life

    async def __aenter__(self) -> Self:
        self._entering()
        await self._background.open()
        try:
            restored = None
            if self._store_path is not None:
                self._store = _open_store(self._store_path)
                restored = await trio.to_thread.run_sync(self._store.open)
            await self._transport.open(self, self._background.start)
            self._node = self._make_node(restored)  # before the loop goes on: a connection may wait
            self._workers.opened()
            self._due, self._storable = WakeUp(), WakeUp()
            self._acted_at, self._act_at = trio.current_time() - SPACING, math.inf
            self._changed = self._seen = trio.Event()  # `_seen`: the first change that no `wait_for_change` returned for
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._transport.aclose()
            self._close_store()
            await self._background.close(*sys.exc_info())
            raise
        self._background.start(self._keep_time)
        if self._store_path is not None:
            self._background.start(self._keep_store)
        if self.address is not None:
            self._background.start(self._watch_load)
        if self._daemons:
            self._background.start(seek, self.cluster, self._daemons, self._seeks, self._found)
        if self._discovery and self.address is not None:
            self._background.start(self._announce, self.address)
        return self

    def _make_node(self, restored: Restored | None) -> Node:
        """Return the pure part of this run. Raises ConfigError."""
        address = self._address_for_others()
        if self.id in self._voters and address is None:
            raise ConfigError("voters", f"{self.id!r} is a voter, and has to listen")
        if self._alone:
            assert address is not None
            self._voters = {self.id: address}
        config = NodeConfig(
            **self._settings,
            address=address,
            seeds=(*self._dial, *self._voters.values()),
            voters=self._voters,
            kinds=self._workers.kinds,
            slots=self._slot_count(),
        )
        return Node(
            config,
            epoch=self.epoch,
            now=trio.current_time(),
            wall=time.time(),
            rng=random.Random(),
            restored=restored,
            wake=self._wake_for_documents,
        )

    async def _announce(self, address: str) -> None:
        async with AsyncExitStack() as stack:
            await announce(stack, self.cluster, self.id, address, self._discovery, self._room)
            await trio.sleep_forever()

    def _room(self) -> tuple[int, int] | None:
        """Return the children and their limit; None without a way to a host, or with too much to do."""
        place = self._node.place
        return (len(place.children), place.fanout) if place.path and not self._node.busy else None

    async def _watch_load(self) -> None:
        """Tell the cluster when this node has too much to do."""
        gauge = LoadGauge()
        wall, used = time.monotonic(), time.thread_time()
        while True:
            await trio.sleep(EVERY)
            before, wall = wall, time.monotonic()
            before_used, used = used, time.thread_time()
            load = (used - before_used) / (wall - before)
            if self._load is not None:
                try:
                    load = self._load()
                except Exception:
                    log.exception("%s: its function `load` failed", self.id)
                    return
            if gauge.add(load):
                log.info("%s: %s", self.id, "it has too much to do" if gauge.busy else "it has time again")
                self._node.set_busy(gauge.busy, trio.current_time())
                self._act_soon()

    def _seeks(self) -> bool:
        return not self._node.place.path

    def _found(self, addresses: list[str]) -> None:
        self._node.place.set_seeds([*addresses, *self._dial], trio.current_time())
        self._act()

    def _slot_count(self) -> int:
        return self._workers.slots if self._slots is None else self._slots

    def _wake_for_documents(self) -> None:
        """Publish the edits of a turn of the loop together, once it is over."""
        trio.lowlevel.current_trio_token().run_sync_soon(self._act_if_open, idempotent=True)

    def _act_if_open(self) -> None:
        if not self._closed:
            self._act_soon()

    def _address_for_others(self) -> str | None:
        if self._advertise is not None:
            return self._advertise
        if self._voters.get(self.id):
            return self._voters[self.id]
        addresses = self._transport.addresses
        if not addresses:
            return None
        parts = urlsplit(addresses[0])
        if parts.hostname is not None and parts.hostname in WILDCARDS:
            return f"{parts.scheme}://{socket.gethostname()}:{parts.port}{parts.path}"
        return addresses[0]

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        finally:
            await self._background.close(kind, value, traceback)

    async def aclose(self) -> None:
        """Leave the cluster at once, and close: children and jobs go elsewhere. `drain` takes its time. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._left:
                self._node.leave(trio.current_time())
                self._act()
        finally:
            self._background.end()
            self._workers.close()
            self._note_change()
            for event, _ in self._answers.values():
                event.set()
            with trio.CancelScope(shield=True):
                await self._transport.aclose()

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the node {self.id!r} has been closed")
        if self._final is not None:
            raise AccessDenied(f"the node {self.id!r} is not wanted in the cluster {self.cluster!r}: {self._final}")

    # ---- what it is

    @property
    def address(self) -> str | None:
        """Address at which other nodes reach it; None if it does not listen."""
        return self._node.config.address

    @property
    def role(self) -> Literal["host", "member", "joining"]:
        """ "host", "member" of a cluster with a host, or "joining": without a way to a host."""
        if self._node.is_host:
            return "host"
        return "member" if self._node.place.path else "joining"

    @property
    def term(self) -> int:
        """Number of the host's election; 0 before the first host is known."""
        return self._node.place.term

    @property
    def host(self) -> str | None:
        """Id of the host; None without a way to one."""
        return self._node.place.host

    @property
    def path(self) -> tuple[str, ...]:
        """Ids from the host to this node; empty without a way to a host."""
        return self._node.place.path

    @property
    def parent(self) -> str | None:
        """Id of the parent; None at the host, and without one."""
        return self._node.place.parent_id

    @property
    def children(self) -> tuple[str, ...]:
        """Ids of the children."""
        return tuple(self._node.place.children.values())

    @property
    def journal_dropped(self) -> int:
        """Records that the journal had no room for."""
        return 0 if self._journal is None else self._journal.dropped

    async def joined(self, timeout: float | None = None) -> None:
        """Wait until the node has a way to a host, or is it.

        Raises:
            AccessDenied: All nodes that answered have refused it for what it is.
            TimedOut: `timeout` seconds have passed; it says what was tried.
            Closed: The node was closed.
        """
        with trio.move_on_after(math.inf if timeout is None else timeout):
            while not self._node.place.path:
                self._check_open()
                await self._changed.wait()
            return
        refusals = "; ".join(f"{address}: {why}" for address, why in self._refusals.items())
        if refusals:
            raise AccessDenied(f"not joined in {timeout} s: {refusals}")
        raise TimedOut(f"{self!r} has found no host in {timeout} s{self._hint()}", timeout)

    async def wait_for_change(self) -> None:
        """Wait until the role, the host, its term or the parent has changed since the last wait, or since the start.

        Raises:
            AccessDenied: The cluster does not want this node.
            Closed: The node was closed.
        """
        self._check_open()
        await self._seen.wait()
        self._seen = self._changed
        self._check_open()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _hint(self) -> str:
        """Return what a voter waits for, for an error message."""
        voting = self._node.voting
        return "" if voting is None else f": {voting.waits_for()}"

    # ---- for the transport

    def link_up(self, link: int, peer: str, dialed: str | None) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._node.link_up(link, peer, dialed, trio.current_time())
        self._act_soon()

    def link_down(self, link: int, why: str) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._node.link_down(link, trio.current_time())
        self._act_soon()

    def dial_failed(self, address: str, why: str) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._node.dial_failed(address, why, trio.current_time())
        self._act_soon()

    def received(self, link: int, frames: Sequence[bytes]) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._node.received(link, frames, trio.current_time())
        self._act_soon()

    # ---- effects

    async def _keep_time(self) -> None:
        node = self._node
        while True:
            at = min(self._act_at, max(node.wake_at, self._acted_at + SPACING))
            with trio.move_on_at(at):
                await self._due.wait()
                continue  # an earlier time has been set
            now = trio.current_time()
            if now >= node.wake_at:
                node.tick(now, time.time())
            self._act()

    def _act_soon(self) -> None:
        """Carry out what the node asks for: now, or together with what comes until `SPACING` after the last time."""
        if self._act_at != math.inf:
            return
        if trio.current_time() >= self._acted_at + SPACING:
            self._act()
        else:
            self._act_at = self._acted_at + SPACING
            self._due.wake()

    def _act(self) -> None:
        """Carry out what the node asks for."""
        self._acted_at, self._act_at = trio.current_time(), math.inf
        effects = self._node.take(self._acted_at)
        transport = self._transport
        for link, frames, droppable in effects.sends:
            transport.send(link, frames, droppable=droppable)
        for link in effects.drops:
            transport.drop(link)
        for address in effects.dials:
            try:
                transport.dial(address)
            except ConfigError as error:
                log.warning("%s: an address that cannot be dialed: %s", self.id, error)
                self._node.dial_failed(address, str(error), trio.current_time())
        for line in effects.warnings:
            log.warning("%s: %s", self.id, line)
        for event in effects.events:
            self._happened(event)
        self._due.wake()

    def _happened(self, event: object) -> None:
        """Tell the program of an event."""
        match event:
            case ClusterMessage():
                self._record_message(event, self.id if event.direct else None)
                self._dispatcher.put(event)
            case ClusterGap():
                self._dispatcher.report_gap(event)
            case placing.MemberAdded(member, before) if before is None or before.epoch != member.epoch:
                self._notify(self._added, member.id)
            case placing.MemberRemoved(member):
                self._notify(self._removed, member.id)
            case placing.Refused(why, final):
                if final:
                    self._final = why
                    log.error("%s: the cluster does not want this node: %s", self.id, why)
                else:
                    self._refusals["a node"] = why
                self._note_change()
            case Refused(address, why):
                if len(self._refusals) < 16:
                    self._refusals[address] = why
            case placing.Attached() | placing.Detached() | placing.TermChanged():
                if self._node.place.path:
                    self._refusals.clear()
                self._note_change()
            case placing.Left():
                self._left = True
                self._note_change()
            case Answered():
                if (waiting := self._answers.get(event.number)) is not None:
                    waiting[1].append(event)
                    waiting[0].set()
            case DrainOrdered():
                self._background.start(self._leave_and_close)
            case ContentChanged(names):
                for name in names & self._shared.keys():
                    self._shared[name]._notify()
            case Store(steps):
                self._to_store += steps
                self._storable.wake()
            case VotingEvent(news):
                if self._journal is not None:
                    self._journal.election(news)
            case JobsEnded(ends):
                if self._journal is not None:
                    self._journal.ends(ends)
            case _:
                self._workers.happened(event)

    async def _keep_store(self) -> None:
        """Write what the voter has to remember before it may answer."""
        store, voting = self._store, self._node.voting
        assert store is not None
        assert voting is not None
        try:
            while True:
                while not self._to_store:
                    await self._storable.wait()
                steps, self._to_store = self._to_store, []
                await trio.to_thread.run_sync(store.write, steps)
                voting.persisted(steps[-1].token, trio.current_time())
                self._act()
        finally:
            self._close_store()  # here, as a thread may write until this task ends

    async def _leave(self) -> None:
        self._check_open()
        await self._workers.drain()
        self._node.leave(trio.current_time())
        self._act_soon()
        while not self._left and not self._closed:
            await self._changed.wait()

    async def _leave_and_close(self) -> None:
        log.info("%s: drained by order", self.id)
        with suppress(Closed):
            await self._leave()
        await self.aclose()

    def _notify(self, functions: Sequence[Callable[[str], object]], id: str) -> None:
        for function in functions:
            try:
                function(id)
            except Exception:
                self._dispatcher.failed += 1
                log.exception("%s: a function for clients failed", self.id)

    def _record_message(self, message: ClusterMessage, to: str | None = None) -> None:
        if self._journal is not None and self._journal.messages:
            self._journal.message(message.kind, message.origin, message.epoch, message.sequence, message.body, to)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.cluster}>"
