"""Options and read-only state of an endpoint."""

from __future__ import annotations

import logging
import math
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict
from uuid import uuid4

import trio

from nngkit.background import Background, UnderTrio
from nngkit.cluster.admission import Authenticator, check_secret
from nngkit.cluster.election.values import Persist
from nngkit.cluster.frames import check_id, check_kind
from nngkit.cluster.jobs.sharing import Decide, evenly
from nngkit.cluster.journaling import ClusterJournal, Door
from nngkit.cluster.node.node import Node
from nngkit.cluster.node.questions import Answered
from nngkit.cluster.shell.handlers import Dispatcher
from nngkit.cluster.shell.options import (
    check_addresses,
    check_function,
    check_methods,
    check_number,
    check_store,
)
from nngkit.cluster.shell.sharing import Shared
from nngkit.cluster.shell.sockets import SocketTransport
from nngkit.cluster.shell.workers import Workers
from nngkit.cluster.transport import Transport
from nngkit.errors import AccessDenied, Closed, ConfigError, TimedOut
from nngkit.messages import MOST_NUMBER
from nngkit.protocols import TLS
from nngkit.protocols.own_host import is_everywhere, own_host, with_host

if TYPE_CHECKING:
    from nngkit.cluster.shell.store import VoterStore

__all__ = ["EndpointOptions", "ShellCore"]

log = logging.getLogger("nngkit.cluster")

LEAST_FRAME: Final = 1024 * 1024  # bytes: room for the largest payload, change and part, and for what nodes exchange
SOME_NODE: Final = "a node"  # that has refused this one for now, as the cluster is full
REFUSED: Final = 10.0  # seconds for another node to accept it: three times the longest pause between two tries
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds until the host is asked again; the parents tell it in some 10 ms


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


def _each(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{address}: {why}" for address, why in reasons.items())


class ShellCore(UnderTrio):
    """A node of a cluster: `Host` and `Member` are the ways to make one. Use it with `async with`, under trio.

    Args:
        cluster: Name of the cluster.
        listen: Address to accept nodes at; without one the node has no children, and cannot be a voter.
        dial: Address of a node of the cluster, or several; any of them will do.
        daemons: Query addresses of discovery daemons that know nodes of the cluster, instead of `dial` or beside it.
        discovery: Survey addresses of discovery daemons that this node announces itself to, if it listens.
        id: Id of this node, unique in the cluster: printable text of at most 64 bytes. The default is random.
        advertise: Address that the others dial, if it is not the one of `listen`. If that is at all interfaces, the
            default is this host's address towards the nodes and daemons given here, or that of the default route.
        voters: Addresses of the voters by id: the nodes that elect the host, and may become it. All of them need the
            same ones. A voter's own id is among them.
        preference: Of voters that know the same, the one with the highest preference becomes host.
        store: Folder for a voter's log: what the voters have accepted outlives them all; else it outlives a minority.
        token: Secret of the cluster: shown to the nodes that it joins, and demanded of those that join.
        ticket: Permission to join, instead of the token: see `issue_ticket`.
        authenticator: Function that decides on nodes that join, instead of the token: see nngkit.cluster.admission.
        fanout: Most children.
        slots: Jobs that it does at a time; the default is the concurrency of its functions.
        decide: Policy that divides jobs between this node and its children: see nngkit.cluster.jobs.sharing. The
            default fills the emptiest slots first.
        max_members: Nodes of the cluster, while this node is its host; more are refused.
        lease: Seconds until the voters elect another host if they hear nothing of the last one. Equal at all voters.
        load: Function that returns how much it has to do, from 0 to 1: while that is over 0.85 for some seconds, its
            leaves go to other nodes, one after the other. The default is the share of a processor that its loop takes.
        handlers: Handlers of messages that run at a time.
        recv_max_size: Bytes of the largest frame, 1 MiB at least.
        tls: For tls+tcp and wss.
        transport: Carrier of the frames instead of sockets: see nngkit.cluster.transport.
        journal: A Recorder, or another object with its `put`: it gets the ends of jobs while this node is host, what a
            voter learns of the host, and the messages that it sends and receives if `journal_messages` is set.
        alone: It is the only voter.

    Raises:
        ConfigError: An unusable value, address or store.
        Unreachable: It cannot listen.
        NotStored: At the end of the block, which is cancelled: the store's disk is full, or has failed. It is logged,
            and the cause of the Closed that calls then raise. A block of nngkit.blocking is not cancelled.
    """

    _node: Node  # this one and those below exist once it is open
    _clock: trio.abc.Clock  # it may be read in any thread
    _changed: trio.Event
    _seen: trio.Event

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
        check_store(store)
        if store is not None and self.id not in self._voters:
            raise ConfigError("store", f"{self.id!r} is not one of the voters: only they keep a log", store)
        self._store_path = store
        for name, value, least in (("fanout", fanout, 1), ("max_members", max_members, 1), ("handlers", handlers, 1)):
            check_number(name, value, least)
        check_number("preference", preference, -MOST_NUMBER)
        check_number("recv_max_size", recv_max_size, LEAST_FRAME)
        if slots is not None:
            check_number("slots", slots, 0)
        check_secret("token", token)
        check_secret("ticket", ticket)
        for name, function in (("authenticator", authenticator), ("load", load), ("decide", decide)):
            check_function(name, function)
        check_methods("transport", transport, "open", "aclose", "dial", "send", "drop", "busy")
        check_methods("journal", journal, "put")
        if advertise is not None:
            check_addresses("advertise", advertise)
        self._listen = listen
        self._own_host: str | None = None  # in place of all interfaces
        self._transport = transport or SocketTransport(listen, recv_max_size=recv_max_size, tls=tls)
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
        self._dial = check_addresses("dial", dial)
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
        self._daemons = check_addresses("daemons", daemons)
        self._discovery = check_addresses("discovery", discovery)
        self._shared: dict[str, Shared] = {}
        self._to_store: list[Persist] = []
        self._added: list[Callable[[str], object]] = []
        self._removed: list[Callable[[str], object]] = []
        self._answers: dict[int, tuple[trio.Event, list[Answered]]] = {}
        self._refusals: dict[str, str] = {}  # by address, as those below
        self._unreached: dict[str, str] = {}
        self._final: str | None = None
        self._closed = False
        self._left = False
        self._accepted = False  # the host has confirmed it, since it has a way to a host
        self._sent_since = 0
        self._store: VoterStore | None = None

    def _slot_count(self) -> int:
        return self._workers.slots if self._slots is None else self._slots

    async def _choose_host(self) -> None:
        """Find the address of this host for others, if it listens at all interfaces. Waits for a peer's name."""
        if self._advertise is not None or self._voters.get(self.id) or self._listen is None:
            return
        if is_everywhere(self._listen):
            peers = dict.fromkeys((*self._dial, *filter(None, self._voters.values()), *self._daemons, *self._discovery))
            self._own_host = await own_host(peers, listen=self._listen)
            log.info("%s: advertises %s in place of %s", self.id, self._own_host, self._listen)

    def _address_for_others(self) -> str | None:
        if self._advertise is not None:
            return self._advertise
        if self._voters.get(self.id):
            return self._voters[self.id]
        addresses = self._transport.addresses
        if not addresses:
            return None
        return addresses[0] if self._own_host is None else with_host(addresses[0], self._own_host)

    def _check_open(self) -> None:
        if self._left and not self._closed:
            raise Closed(f"the node {self.id!r} has been drained: it has left the cluster")
        self._check_not_closed()

    def _check_not_closed(self) -> None:
        if self._closed:
            if (failure := self._background.failure) is not None:
                raise Closed(f"the node {self.id!r} has ended: {failure}") from failure
            raise Closed(f"the node {self.id!r} has been closed")
        if self._final is not None:
            raise AccessDenied(f"the node {self.id!r} is not wanted in the cluster {self.cluster!r}: {self._final}")

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
    def holds_lease(self) -> bool:
        """True if this node is the host, and no other node can be giving out work now.

        A host that is cut off from the voters loses the lease 0.8 `lease` after it last heard from a majority, before
        another can be elected; its `role` changes when it steps down, a whole `lease` later. For what only one node
        may do, look at this, and pass `term` on: it is higher at each later host.
        """
        voting = self._node.voting
        return voting is not None and self._node.is_host and voting.holds_lease(self._clock.current_time())

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
        """Wait until the node has a way to a host, which counts it among its members, or is the host.

        Raises:
            AccessDenied: All nodes that answered have refused it for what it is: at `timeout`; without one, after 10 s.
                Or its id is taken by another node.
            TimedOut: `timeout` seconds have passed; it says what was tried.
            Closed: The node was closed.
        """
        with trio.move_on_after(math.inf if timeout is None else timeout):
            while True:
                self._check_open()
                if not self._node.place.path:
                    with trio.move_on_after(REFUSED) as quiet:
                        await self._changed.wait()
                    if timeout is None and quiet.cancelled_caught and self._refused_by_all():
                        raise AccessDenied(f"not joined: {_each({**self._unreached, **self._refusals})}")
                elif self._accepted or self._node.is_host or await self._confirmed():
                    self._accepted = True
                    return
        if self._refusals:
            tried = {**self._unreached, **self._refusals}
            raise AccessDenied(f"not joined in {timeout} s: {_each(tried)}")
        raise TimedOut(f"{self!r} has found no host in {timeout} s: {self._hint()}", timeout)

    def _refused_by_all(self) -> bool:
        """Return True if no node that answered wants this one; a voter waits for other voters, if one is left."""
        refused = self._refusals.keys() - {SOME_NODE}
        others = set(self._voters.values()) - {self.address}
        return bool(refused) and (self._node.voting is None or others <= refused)

    async def _confirmed(self) -> bool:
        """Return True once the host has answered that this run is a member; False to look at the place again."""
        questions = self._node.questions
        number = questions.ask("joined", str(self.epoch), trio.current_time())
        event, found = self._answers[number] = trio.Event(), list[Answered]()
        pause = FIRST_PAUSE
        try:
            while self._node.place.path and not event.is_set():
                self._act_soon()
                with trio.move_on_after(pause):
                    await event.wait()
                if not event.is_set():
                    pause = min(LONGEST_PAUSE, 2 * pause)
                    questions.attached(trio.current_time())
        finally:
            del self._answers[number]
            questions.forget(number)
        # another answer is one to the other node of this id; an earlier version refuses the question
        return any(answer.content == str(self.epoch) or answer.why is not None for answer in found)

    async def wait_for_change(self) -> None:
        """Wait until the role, the host, its term or the parent has changed since the last wait, or since the start.

        Raises:
            AccessDenied: The cluster does not want this node.
            Closed: The node was closed.
        """
        self._check_not_closed()
        await self._seen.wait()
        self._seen = self._changed
        self._check_not_closed()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _hint(self) -> str:
        """Return what it waits for, for an error message."""
        if self._node.place.path:
            return f"{self._node.place.host}, the host, has not confirmed it"
        if (voting := self._node.voting) is not None:
            return voting.waits_for()
        if self._unreached:
            return _each(self._unreached)
        if self._node.config.seeds:
            return f"{', '.join(self._node.config.seeds)}: connected, without a way to a host"
        return f"{', '.join(self._daemons)}: no daemon knows a node with room" if self._daemons else "none to dial"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.cluster}>"

    @abstractmethod
    def _act_soon(self) -> None:
        """Carry out what the node asks for: now, or soon."""

    @abstractmethod
    def _set_work(self) -> None:
        """Tell the node which jobs its functions can do."""
