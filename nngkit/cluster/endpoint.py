"""Endpoint: a node of a cluster as a program uses it; `Host` and `Member` (hosting.py) are the ways to make one.

::

    async with Host("render", listen="tcp://0.0.0.0:7000", id="a", token="s3cret") as host: ...

    async with Member("render", dial=["tcp://a:7000"], token="s3cret", slots=4) as node:
        await node.joined(timeout=5)

        @node.on("chat")
        async def heard(message): print(message.origin, message.body)

        await node.send("chat", b"hello")

        @node.work("render")
        async def render(job): return draw(job.payload)

        job = await node.submit("render", b"scene 1")
        picture = await job.result()

The decisions are made by nngkit.cluster.node; this carries them out, by the transport, the clock, the voter's disk, the
journal and tasks. Effects are carried out at once if none were for `SPACING`, else together with those of the next
moment: a busy node so sends many messages in one frame, and a quiet one waits for nothing.
"""

from __future__ import annotations

import logging
import math
import os
import random
import secrets
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from typing import Any, Final, Literal, Self, TypedDict, TypeVar
from uuid import uuid4

import trio

from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.calls.middleware import Middleware, check_middleware
from nngkit.cluster.admission import Authenticator, check_secret
from nngkit.cluster.containing import contained, plain
from nngkit.cluster.content.order import SharedObject
from nngkit.cluster.election.values import Restored
from nngkit.cluster.frames import as_bytes, check_id, check_kind
from nngkit.cluster.jobs.part import JobsEnded
from nngkit.cluster.jobs.sharing import Decide, evenly
from nngkit.cluster.messages import ClusterGap, ClusterMessage
from nngkit.cluster.node.greetings import ITSELF
from nngkit.cluster.node.node import Node
from nngkit.cluster.node.questions import Answered, DrainOrdered
from nngkit.cluster.node.values import ContentChanged, DialRefused, NodeConfig
from nngkit.cluster.node.voting import Store, VotingEvent
from nngkit.cluster.rights import RIGHT
from nngkit.cluster.shell.asking import Asking
from nngkit.cluster.shell.discovery import announce, seek
from nngkit.cluster.shell.disk import VoterDisk
from nngkit.cluster.shell.handlers import Dispatcher
from nngkit.cluster.shell.jobs import Job
from nngkit.cluster.shell.journal import ClusterJournal, Door
from nngkit.cluster.shell.options import (
    check_addresses,
    check_function,
    check_methods,
    check_number,
    check_shared_object,
    check_store,
)
from nngkit.cluster.shell.sharing import Shared
from nngkit.cluster.shell.sockets import SocketTransport
from nngkit.cluster.shell.stats import EndpointStats, endpoint_stats
from nngkit.cluster.shell.workers import Workers
from nngkit.cluster.status import ClusterStatus, ClusterTree
from nngkit.cluster.transport import Transport
from nngkit.cluster.tree import values as placing
from nngkit.cluster.tree.load import EVERY, LoadGauge
from nngkit.errors import AccessDenied, Broken, Closed, ConfigError, NotFound, TimedOut, TooLarge
from nngkit.headers import Headers
from nngkit.messages import MOST_NUMBER
from nngkit.protocols import TLS
from nngkit.protocols.own_host import check_guarded, is_everywhere, own_host, with_host
from nngkit.trust import OPEN, Choice, Rights, Trust, chosen
from nngkit.trust.rights import own_id

log = logging.getLogger("nngkit.cluster")

F = TypeVar("F", bound=Callable[..., Any])

SEND_MANY: Final = 64  # messages between two looks at the queues
ROOM_PAUSE: Final = 0.005  # seconds between two looks: a quarter of a queue is written in 20 ms
LEAST_FRAME: Final = 1024 * 1024  # bytes: room for the largest payload, change and part, and for what nodes exchange
SOME_NODE: Final = "a node"  # that has refused this one for now, as the cluster is full
REFUSED: Final = 10.0  # seconds for another node to accept it: three times the longest pause between two tries
LATE: Final = 0.05  # seconds after a due time: the loop stood still; also the time to take in what came meanwhile
CATCHING_UP: Final = 5  # times LATE at most: a node with too much to do is late all the time
ECHO: Final = 1.0  # seconds that the host has to answer a node that leaves: without, some jobs may take a second longer
MOST_REASONS: Final = 16  # addresses that the error of `joined` names
SPACING: Final = 0.001  # seconds between two times that effects are carried out: the shortest wait of a loop


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
    middleware: Iterable[Middleware]
    recv_max_size: int
    tls: TLS | None
    trust: Choice | None
    transport: Transport | None
    journal: Door | None
    journal_messages: bool


def _each(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{address}: {why}" for address, why in reasons.items())


class Endpoint(UnderTrio):
    """A node of a cluster; `Host` and `Member` (hosting) are the ways to make one. Use it under trio, in `async with`.

    Args:
        cluster: Name of the cluster.
        listen: Address to accept nodes at; without one the node has no children, and cannot be a voter.
        dial: Address of a node of the cluster, or several; any of them will do.
        daemons: Query addresses of discovery daemons that know nodes of the cluster, instead of `dial` or beside it.
        discovery: Survey addresses of discovery daemons that this node announces itself to, if it listens.
        id: Id of this node, unique in the cluster: printable text of at most 64 bytes. The default is random. With a
            trust it is the name of the pass, or NAME:WORD, which is the default of members, with a random word.
        advertise: Address that the others dial, if it is not the one of `listen`. If that is at all interfaces, the
            default is this host's address towards the nodes and daemons given here, or that of the default route.
        voters: Addresses of the voters by id: the nodes that elect the host, and may become it. All of them need the
            same ones. A voter's own id is among them.
        preference: Of voters that know the same, the one with the highest preference becomes host.
        store: Folder for a voter's log: what the voters have accepted outlives them all; else it outlives a minority.
        token: Secret of the cluster: proven by each end of a link to the other, and never sent.
        ticket: Permission to join, instead of the token, proven as that is: see `issue_ticket`. A voter needs one for
            its id.
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
        middleware: Async functions around each try of a job that this node does, the first one outermost: see
            nngkit.calls.middleware. The call is the JobRun, and the body of the Reply the result; None of a generator.
        recv_max_size: Bytes of the largest frame, 1 MiB at least.
        tls: For tls+tcp and wss.
        trust: For all connections: a Trust, or OPEN. The default is that of NNGKIT_TRUST. A listener that other
            machines can reach needs one, or a token, ticket, authenticator, or certificates of its peers. With a Trust
            ids are names of passes, the policy says what they may do, and there is neither token nor ticket.
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
    _asking: Asking
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
        middleware: Iterable[Middleware] = (),
        recv_max_size: int = 16 * 1024 * 1024,
        tls: TLS | None = None,
        trust: Choice | None = None,
        transport: Transport | None = None,
        journal: Door | None = None,
        journal_messages: bool = False,
        alone: bool = False,
    ) -> None:
        self.cluster = check_kind(cluster, "cluster")
        self._trust = trust = chosen(trust, tls)
        if isinstance(trust, Trust):  # several members may have one pass
            self.id = own_id(trust, id, instance=True)
        else:
            self.id = uuid4().hex[:16] if id is None else check_id(id)
        self._rights = Rights(trust, "cluster", carry=f"cluster:{cluster}")
        for name, secret in (("token", token), ("ticket", ticket)):
            if secret is not None and isinstance(trust, Trust):
                raise ConfigError(name, "a trust takes its place: give one of both")
        self.epoch = time.time_ns() // 1000  # microseconds: two runs of one id never begin in the same one
        self._advertise = advertise
        self._alone = alone
        self._voters = {self.id: ""} if alone else dict(voters or {})  # its address is known once it listens
        check_store(store)
        if store is not None and self.id not in self._voters:
            raise ConfigError("store", f"{self.id!r} is not one of the voters: only they keep a log", store)
        self._disk = None if store is None else VoterDisk(store, cluster, self.id)
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
        if trust is None and (token is not None or ticket is not None or authenticator is not None):
            trust = OPEN
        if listen is not None and transport is None:
            check_guarded((listen,), trust, tls)
        self._transport = transport or SocketTransport(listen, recv_max_size=recv_max_size, tls=tls, trust=trust)
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
            "judge": None if self._rights.trust is None else self._rights,
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
        self._workers = Workers(self, check_middleware(middleware))
        self._journal = (
            None
            if journal is None
            else ClusterJournal(journal, cluster, self.id, self.epoch, messages=journal_messages)
        )
        self._daemons = check_addresses("daemons", daemons)
        self._discovery = check_addresses("discovery", discovery)
        self._shared: dict[str, Shared] = {}
        self._added: list[Callable[[str], object]] = []
        self._removed: list[Callable[[str], object]] = []
        self._refusals: dict[str, str] = {}  # by address, as those below
        self._unreached: dict[str, str] = {}
        self._not_found = ""  # why the daemons were last of no help
        self._final: str | None = None
        self._closed = False
        self._left = False
        self._accepted = False  # the host has confirmed it, since it has a way to a host
        self._sent_since = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.cluster}>"

    # ---- its place in the cluster

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
    def refused(self) -> dict[str, int]:
        """Refusals of what other nodes called themselves or wanted to do, by code: "binding", "right". With a trust."""
        return dict(self._rights.refusals)

    @property
    def stats(self) -> EndpointStats:
        """Counters of this node and of its parts."""
        return endpoint_stats(self._node)

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
                elif self._accepted or self._node.is_host or await self._asking.confirmed(self.epoch, self._has_way):
                    self._accepted = True
                    return
        if self._refusals:
            tried = {**self._unreached, **self._refusals}
            raise AccessDenied(f"not joined in {timeout} s: {_each(tried)}")
        raise TimedOut(f"{self.cluster}: no host in {timeout} s: {self._hint()}", timeout)

    def _refused_by_all(self) -> bool:
        """Return True if no node that answered wants this one; a voter waits for other voters, if one is left."""
        refused = self._refusals.keys() - {SOME_NODE}
        others = set(self._voters.values()) - {self.address}
        return bool(refused) and (self._node.voting is None or others <= refused)

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
        if not self._daemons:
            return "none to dial"
        return self._not_found or f"{', '.join(self._daemons)}: no daemon knows a node with room"

    # ---- messages

    def on(self, kind: str | None = None) -> Callable[[F], F]:
        """Decorate a function that is called with each `ClusterMessage` of a kind; without one, of all other kinds.

        An async function runs as a task, a plain one in a worker thread. Messages of one origin are handled one after
        the other, in order; those of different origins side by side. An exception is logged, and counted.

        Raises ConfigError for a second handler of a kind.
        """

        def decorate(function: F) -> F:
            self._dispatcher.register(None if kind is None else check_kind(kind), function)
            return function

        return decorate

    def on_gap(self, function: Callable[[ClusterGap], object]) -> None:
        """Call `function(gap)` for messages that will not come: this node was away for longer than others keep them.

        See `on_client_added`.
        """
        self._dispatcher.on_gap(function)

    def on_client_added(self, function: Callable[[str], object]) -> None:
        """Call `function(id)` for each node that joins below this one; at the host, each of the cluster.

        It is a plain function, which is called in the loop. An exception is logged, and counted. Raises ConfigError for
        an async one.
        """
        self._added.append(plain(function))

    def on_client_removed(self, function: Callable[[str], object]) -> None:
        """Call `function(id)` for each node that has left below this one; at the host, each of the cluster.

        See `on_client_added`.
        """
        self._removed.append(plain(function))

    async def send(self, kind: str, body: bytes, *, to: str | None = None) -> int:
        """Send a message to all other nodes, or to one; return its number in this run of the node.

        It comes once to each node, in the order in which this node sent. To one node: it is sent again until that has
        acknowledged it, for 30 s; messages to all and those to one node keep no order among each other. Without a way
        to the host it waits in this node's memory, and in that of the nodes that it can reach. Waits while the
        neighbours have no room. If cancelled, it was not sent.

        Raises:
            ConfigError: An unusable kind.
            TooLarge: More than half of `recv_max_size`.
            Closed: The node was closed.
        """
        check_kind(kind)
        body = self._checked(body)
        self._check_open()
        if to is None:
            await self._wait_for_room(1)
            return self._broadcast(kind, (body,))
        check_id(to)
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._node.letters.room(to):  # acknowledgements are not worth an event each
            await trio.sleep(ROOM_PAUSE)
            self._check_open()
        number = self._node.letter(to, kind, body, trio.current_time())
        self._record_message(ClusterMessage(self.id, self.epoch, number, kind, body), to)
        self._act_soon()
        return number

    async def send_many(self, kind: str, bodies: Iterable[bytes]) -> int:
        """Send messages to all other nodes, in order; return how many. If cancelled, the first ones were sent."""
        check_kind(kind)
        held = [self._checked(body) for body in bodies]
        for start in range(0, len(held), SEND_MANY):
            part = held[start : start + SEND_MANY]
            await self._wait_for_room(len(part))
            self._broadcast(kind, part)
        return len(held)

    def _checked(self, body: bytes) -> bytes:
        body = as_bytes("a message", body)
        if 2 * len(body) > self._recv_max_size:
            raise TooLarge(len(body), self._recv_max_size // 2)
        return body

    def _broadcast(self, kind: str, bodies: Sequence[bytes]) -> int:
        """Send messages to all other nodes; return the number of the last one."""
        last: int = self._node.broadcast(kind, bodies, trio.current_time())
        for number, body in enumerate(bodies, last - len(bodies) + 1):
            self._record_message(ClusterMessage(self.id, self.epoch, number, kind, body))
        self._act_soon()
        return last

    async def _wait_for_room(self, count: int) -> None:
        """Yield every 64 messages, and wait while the queues of all neighbours are over a quarter full."""
        self._check_open()
        self._sent_since += count
        if self._sent_since < SEND_MANY:
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        self._sent_since = 0
        await trio.lowlevel.checkpoint()
        while self._transport.busy(self._node.tree_links):  # noqa: ASYNC110  # no event says that a queue has room
            await trio.sleep(ROOM_PAUSE)
        self._check_open()

    # ---- jobs

    def work(self, kind: str, *, concurrency: int = 1, timeout: float | None = None) -> Callable[[F], F]:
        """Decorate the function that does jobs of a kind: it is called with a `JobRun` and returns the result, bytes.

        An async function runs as a task, a plain one in a worker thread. A generator yields parts of the result; the
        result is empty then. An exception makes the job fail: it is tried again, at this node or another, unless it is
        JobFailed. `concurrency`: runs of it at a time. `timeout`: seconds that a run may take, beside that of the job.

        Raises ConfigError for a second function of a kind.
        """

        def decorate(function: F) -> F:
            self._workers.register(check_kind(kind), function, concurrency, timeout)
            if "_node" in self.__dict__:
                self._set_work()
            return function

        return decorate

    async def submit(
        self,
        kind: str,
        payload: bytes,
        *,
        key: bytes | str | None = None,
        priority: int = 0,
        tries: int = 3,
        visibility: float = 30.0,
        deadline: float | None = None,
        delay: float = 0.0,
        stream: bool = False,
        timeout: float | None = None,
        headers: Headers | None = None,
    ) -> Job:
        """Submit a job; return it once the host has accepted it: it will end then, whichever nodes die.

        It is done at least once, and its result is taken once. Waits while the host's queue has no room for this node
        (backpressure), and while there is no host. If cancelled, the job may be accepted or not: use a key. One with a
        key goes on then, and a second call under the key gets its result; one without is cancelled.

        Args:
            kind: Kind of the job: some node has a function for it, now or later.
            payload: Bytes for that function.
            key: Idempotency key: of all jobs of a kind with one key, one is done, and all get its result; a cancelled
                one frees its key.
            priority: 0 to 15; jobs of a higher one are given out first.
            tries: Starts of the job, until it is given up as dead.
            visibility: Seconds without a sign of the worker's node, until it is given to another. While the node is
                alive and connected, it says each third of them that the function runs.
            deadline: Seconds until it fails, from its acceptance; None: never.
            delay: Seconds until it may start.
            stream: Send the parts that the function yields or sends to this node; see `Job.parts`.
            timeout: Seconds that its function may run; then it is cancelled, and the job tried again. None: for ever.
            headers: Metadata beside the payload: `JobRun.headers` of each try.

        Raises:
            ConfigError: An unusable value.
            TooLarge: The payload is over the host's limit, or the headers are over theirs.
            AccessDenied: The policy of a trust does not let this node ``submit`` jobs of the kind.
            Closed: The node was closed.
        """
        self._check_open()
        await trio.lowlevel.checkpoint_if_cancelled()
        options = {
            "priority": priority,
            "tries": tries,
            "visibility": float(visibility),
            "deadline": None if deadline is None else float(deadline),
            "delay": float(delay),
            "stream": stream,
            "timeout": None if timeout is None else float(timeout),
            "headers": headers,
        }
        name = key.encode() if isinstance(key, str) else None if key is None else as_bytes("a key", key)
        return await self._workers.submit(check_kind(kind), as_bytes("a payload", payload), name, options)

    async def map(
        self,
        kind: str,
        payloads: Iterable[bytes] | AsyncIterable[bytes],
        *,
        in_flight: int = 1000,
        progress: Callable[[int], object] | None = None,
        **options: Any,
    ) -> AsyncGenerator[bytes, None]:
        """Submit a job for each payload, and yield the results in the order of the payloads.

        At most `in_flight` of them are submitted and not yielded. `progress` is called with the number of ended jobs.
        `options` are those of `submit` but `key`. An abandoned iteration cancels the jobs that have not ended.

        An asynchronous iterable is iterated over by a task beside, which submits each payload as it comes: the next one
        may depend on the last result. An async generator is closed at the end. A plain iterable must not block here; in
        nngkit.blocking it may.

        Raises JobFailed of the first job that has ended without a result; the rest are cancelled.
        """
        self._check_open()
        if "key" in options:
            raise ConfigError("key", "jobs of a map have none: under one key, all would have one result")
        async with aclosing(self._workers.map(check_kind(kind), payloads, in_flight, progress, options)) as results:
            async for result in results:
                yield result

    # ---- documents

    def document(self, name: str) -> Any:
        """Open a document of nngkit.documents that all nodes of the cluster may edit; needs the extra `documents`."""
        self._check_open()
        document = self._node.documents.open(name, trio.current_time())
        self._act_soon()
        return document

    def share(self, name: str, content: SharedObject) -> Shared:
        """Share an object of the program's: it has `update(fragment)`, `full_state()` and `load(state)`.

        Its changes are applied at all nodes in one order, which the host decides; the host has to share it too. The
        methods are plain functions, which are called in the loop. Raises ConfigError for an unusable or a used name,
        and for an object that lacks a method or has an async one.
        """
        self._check_open()
        check_shared_object(content)
        self._node.documents.share(name, content, trio.current_time())
        shared = self._shared[name] = Shared(name, content, self._node.documents, self._act, self._check_open)
        self._act_soon()
        return shared

    def request_full_document(self, name: str) -> None:
        """Ask for the full content of a document, as after a suspected fault."""
        self._check_open()
        self._node.documents.request_full(name, trio.current_time())
        self._act_soon()

    # ---- questions to the host

    async def status(self, timeout: float | None = 5.0) -> ClusterStatus:
        """Return the state of the cluster, from its host. Raises TimedOut, Broken, Closed, BadMessage."""
        answer = await self._asking.ask("status", "", timeout)
        return ClusterStatus.parse(answer.content, answer.sender)

    async def tree(self, timeout: float | None = 5.0) -> ClusterTree:
        """Return the members in their tree, from the host. Raises TimedOut, Broken, Closed, BadMessage."""
        answer = await self._asking.ask("tree", "", timeout)
        return ClusterTree.parse(answer.content, answer.sender)

    async def drain(self, id: str | None = None, timeout: float | None = 5.0) -> None:
        """Have a node leave the cluster, and take no more jobs; by default this one, after its jobs have ended.

        Its own jobs have an hour to end; then the host has taken their results, unless there is none for 5 s. Several
        tasks may drain at once. A work function cannot drain its own node, as it would wait for its own end: start the
        call in a task or a thread beside it. For another node: return once the host has passed it on.

        Raises NotFound, TimedOut, Closed, RuntimeError in a work function of this node, and, for another node,
        AccessDenied if a trust's policy does not let this one ``vote``.
        """
        if id is None or id == self.id:
            await self._leave()
            return
        answer = await self._asking.ask("drain", check_id(id), timeout)
        if answer.why is not None:
            raise AccessDenied(answer.why) if answer.why.startswith(RIGHT) else NotFound(answer.why)

    # ---- life

    async def __aenter__(self) -> Self:
        self._entering()
        if self._closed or "_node" in self.__dict__:
            raise Closed(f"the node {self.id!r} has been opened before: make another one, which is a run of its own")
        await self._background.open()
        try:
            restored = None
            if self._disk is not None:
                restored = await self._disk.open()
            await self._choose_host()  # before it listens: this may wait
            await self._transport.open(self, self._background.start)
            self._node = self._make_node(restored)  # before the loop goes on: a connection may wait
            self._asking = Asking(repr(self), self._node.questions, self._act_soon, self._check_open)
            self._node.set_work(self._workers.concurrency, self._slot_count(), trio.current_time())
            self._workers.opened()
            self._due = WakeUp()
            self._acted_at, self._act_at = trio.current_time() - SPACING, math.inf
            self._clock = trio.lowlevel.current_clock()
            self._changed = trio.Event()  # the next change
            self._seen = self._changed  # the first one for which no `wait_for_change` has returned
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._transport.aclose()
            if self._disk is not None:
                self._disk.close()
            await self._background.close(*sys.exc_info())
            raise
        self._background.start(self._keep_time)
        if self._disk is not None:
            self._background.start(self._disk.write, self._persisted)
        if self.address is not None:
            self._background.start(self._watch_load)
        if self._daemons:
            self._background.start(
                seek,
                self.cluster,
                self._daemons,
                lambda: not self._has_way(),
                self._found,
                self._note_not_found,
                self._trust,
            )
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
            entropy=secrets.token_bytes,
            restored=restored,
            wake=self._wake_for_documents,
        )

    def _set_work(self) -> None:
        """Tell the node which jobs its functions can do."""
        self._node.set_work(self._workers.concurrency, self._slot_count(), trio.current_time())
        self._act_soon()

    async def _announce(self, address: str) -> None:
        async with AsyncExitStack() as stack:
            await announce(stack, self.cluster, self.id, address, self._discovery, self._room, self._trust)
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
                    load = float(self._load())
                except BaseException as error:
                    contained(error)
                    log.exception("%s: `load` has failed; from now on its loop's share of a processor counts", self.id)
                    self._load = None
            if gauge.add(load):
                log.info("%s: %s", self.id, "it has too much to do" if gauge.busy else "it has time again")
                self._node.set_busy(gauge.busy, trio.current_time())
                self._act_soon()

    def _has_way(self) -> bool:
        return bool(self._node.place.path)

    def _note_not_found(self, why: str) -> None:
        self._not_found = why

    def _found(self, addresses: list[str]) -> None:
        self._not_found = ""
        self._node.place.set_seeds([*addresses, *self._dial], trio.current_time())
        self._act()

    def _wake_for_documents(self) -> None:
        """Publish the edits of a turn of the loop together, once it is over."""
        trio.lowlevel.current_trio_token().run_sync_soon(self._act_if_open, idempotent=True)

    def _act_if_open(self) -> None:
        if not self._closed:
            self._act_soon()

    async def _before_end(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the cluster at once, and close: children and jobs go elsewhere. `drain` takes its time. Idempotent.

        In a function that the node has called, as for a job or a message, return at once: the node leaves once that
        has returned.
        """
        if self._background.is_inside:
            self._background.put_off(partial(self._background.start, self._close))
        else:
            await self._close()

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if (failure := self._background.failure) is not None:  # a thread's block goes on until its next call
            log.error("%s: the node has ended: %s", self.id, failure)
        try:
            if not self._left:
                self._node.leave(trio.current_time())
                self._act()
        finally:
            self._background.end()
            self._workers.close()
            self._note_change()
            self._wake_waits()
            with trio.CancelScope(shield=True):
                await self._transport.aclose()

    def _wake_waits(self) -> None:
        """Have those that wait for an answer, or a change of a shared object, look whether the node is still open."""
        self._asking.wake()
        for shared in self._shared.values():
            shared._notify()

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

    # ---- for the transport

    def link_up(self, link: int, peer: str, dialed: str | None, who: str | None = None) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._unreached.pop(dialed or "", None)
        self._node.link_up(link, peer, dialed, trio.current_time(), who)
        self._act_soon()

    def link_down(self, link: int, why: str) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._node.link_down(link, trio.current_time())
        self._act_soon()

    def dial_failed(self, address: str, why: str) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._note_unreached(address, why)
        self._node.dial_failed(address, why, trio.current_time())
        self._act_soon()

    def received(self, link: int, frames: Sequence[bytes]) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._node.received(link, frames, trio.current_time())
        self._act_soon()

    def _note_unreached(self, address: str, why: str) -> None:
        if not self._node.place.path and len(self._unreached) < MOST_REASONS:
            self._unreached[address] = why

    # ---- effects

    async def _keep_time(self) -> None:
        node = self._node
        while True:
            at = min(self._act_at, max(node.wake_at, self._acted_at + SPACING))
            with trio.move_on_at(at):
                await self._due.wait()
                continue  # an earlier time has been set
            if trio.current_time() >= node.wake_at:
                await self._catch_up(node.wake_at)
                node.tick(trio.current_time(), time.time())
            self._act()

    async def _catch_up(self, due: float) -> None:
        """Let other tasks take in what came while the loop stood still, if it did.

        Otherwise neighbours would be given up for a silence that was this node's.
        """
        for _ in range(CATCHING_UP):
            now = trio.current_time()
            if not LATE < now - due < math.inf:
                break
            due = now + LATE
            await trio.sleep_until(due)

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
            self._note_unreached(address, self._unreached.get(address, "not connected yet"))
            try:
                transport.dial(address)
            except ConfigError as error:
                log.warning("%s: an address that cannot be dialed: %s", self.id, error)
                self._node.dial_failed(address, str(error), trio.current_time())
        for line in effects.warnings:
            log.warning("%s: %s", self.id, line, extra={"node": self.id})
        for event in effects.events:
            self._happened(event)
        self._workers.acted()
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
            case placing.PlaceRefused(why, final):
                if final:
                    self._final = why
                    log.error("%s: the cluster does not want this node: %s", self.id, why)
                    self._wake_waits()
                else:
                    self._refusals[SOME_NODE] = why
                self._note_change()
            case DialRefused(address, why):
                if why != ITSELF and len(self._refusals) < MOST_REASONS:
                    self._refusals[address] = why
            case placing.Attached() | placing.Detached() | placing.TermChanged():
                if self._node.place.path:
                    self._refusals.clear()
                    self._unreached.clear()
                else:
                    self._accepted = False
                self._note_change()
            case placing.Left():
                self._left = True
                self._workers.close()
                self._note_change()
            case Answered():
                self._asking.answered(event)
            case DrainOrdered():
                self._background.start(self._leave_and_close)
            case ContentChanged(names):
                for name in names & self._shared.keys():
                    self._shared[name]._notify()
            case Store(steps):
                assert self._disk is not None
                self._disk.put(steps)
            case VotingEvent(news):
                if self._journal is not None:
                    self._journal.election(news)
            case JobsEnded(ends):
                if self._journal is not None:
                    self._journal.ends(ends)
            case _:
                self._workers.happened(event)

    def _persisted(self, token: int) -> None:
        voting = self._node.voting
        assert voting is not None
        voting.persisted(token, trio.current_time())
        self._act()

    async def _leave(self) -> None:
        """Hand over all work, then leave the cluster. Raises Closed, AccessDenied, RuntimeError in a work function."""
        self._check_not_closed()
        await self._workers.drain()
        if not self._left and not self._closed:
            await self._meet_grants()
            self._node.leave(trio.current_time())
            self._act_soon()
        while not self._left and not self._closed:
            await self._changed.wait()

    async def _meet_grants(self) -> None:
        """Return the jobs that were granted to this node before its parent knew that it takes no more.

        They come before the host's answer to a question that follows the withdrawn demand: to a second one, as a parent
        passes answers on at once, and grants with the next effects it carries out. Lost with the link, each would
        take a try from its job.
        """
        place = self._node.place
        if not self._workers.kinds or not place.path or self._node.is_host:
            return
        with trio.move_on_after(ECHO), suppress(TimedOut, Broken, Closed):
            for _ in range(2):
                self._act()
                await self._asking.ask("echo")

    async def _leave_and_close(self) -> None:
        log.info("%s: drained by order", self.id)
        with suppress(Closed):
            await self._leave()
        await self._close()

    def _notify(self, functions: Sequence[Callable[[str], object]], id: str) -> None:
        for function in functions:
            try:
                function(id)
            except BaseException as error:
                contained(error)
                self._dispatcher.failed += 1
                log.exception("%s: a function for clients failed", self.id)

    def _record_message(self, message: ClusterMessage, to: str | None = None) -> None:
        if self._journal is not None and self._journal.messages:
            self._journal.message(message.kind, message.origin, message.epoch, message.sequence, message.body, to)
