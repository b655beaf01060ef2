"""Base of all sockets: options, addresses, batches, peers, counters, close.

The six protocols derive from ``Socket``, ``Receiver`` and ``Sender``, and state their differences in class attributes.
All methods may be called on any thread; none waits inside NNG.

May not know: the meaning of messages.
"""

from __future__ import annotations

import contextlib
import inspect
import time
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Final, Self, get_args

from nngkit.errors import BadMessage, Closed, ConfigError, Forked, Full, NngkitError, TimedOut, TooLarge
from nngkit.protocols._core.connection import SMALL, Connection
from nngkit.protocols._core.core import Core, Outbox
from nngkit.protocols._core.guard import Cut, Limits
from nngkit.protocols._core.identity import Check, Identity
from nngkit.protocols._core.inbox import WhenBehind
from nngkit.protocols._core.peer_queues import PeerQueues
from nngkit.protocols._core.pipe import PeerEvent, Pipe, PipeStats, Stats
from nngkit.protocols._core.send_queue import WhenFull
from nngkit.protocols._core.shared_queue import SharedQueue
from nngkit.protocols._nng.addresses import parse, several
from nngkit.protocols._nng.process import register, unregister
from nngkit.protocols._nng.tls import TLS
from nngkit.protocols._shm.sharing import Sharing
from nngkit.protocols._socket.batching import Batcher, OpenBatch
from nngkit.protocols._socket.machines import machines
from nngkit.protocols._socket.options import (
    LARGEST,
    LONGEST_PAUSE,
    MOST_BUFFER,
    SHARED,
    SHARED_FROM,
    WINDOW,
    Addresses,
    patterns,
    seconds,
    silence,
    text_name,
    whole,
)
from nngkit.protocols._socket.receiving import BURST_OF_BATCHES
from nngkit.protocols._waiting.waiters import (
    DEFAULT,
    Default,
    ThreadWaiter,
    Timeout,
    Waiter,
    checkpoint_before,
    task_waiter,
    weakly,
)
from nngkit.protocols.batch import Batch, count, count_topic, pack, unpack
from nngkit.protocols.routing import PRIORITIES, PRIORITY
from nngkit.protocols.sp import ALL, MIB
from nngkit.trust.choice import Choice
from nngkit.trust.trust import Trust

SPLIT: Final = 16  # batches unpacked at once
EVENTS: Final = 65536  # unread events of an iteration: beyond that it ends with Full instead of using more memory


class _Signature:
    """Signature of a socket class for ``help`` and ``inspect``: its own options, then those of every socket."""

    def __get__(self, socket: object, kind: type[Socket]) -> inspect.Signature | None:
        own = list(inspect.signature(kind.__init__).parameters.values())[1:]
        if not own or own[-1].kind is not inspect.Parameter.VAR_KEYWORD:
            return None  # it lists all of its options
        batches = kind._batches_in or kind._batches_out
        shared = list(inspect.signature(Socket.__init__).parameters.values())[1:]
        return inspect.Signature([*own[:-1], *(each for each in shared if batches or each.name != "batch")])


class Socket:
    """Base class of all sockets. All arguments are keyword-only.

    ``listen``, ``dial``: one address or several; for Push, Req and Surveyor ``dial`` may map each to a priority.
    ``name``: for messages and logs. ``recv_max_size``: bytes of the largest message accepted; UNLIMITED (0) is 1 GiB.
    ``recv_timeout``, ``send_timeout``: seconds, None for ever. ``recv_buffer``, ``recv_window``: messages and bytes
    read ahead (Surveyor: replies kept by each survey). ``send_buffer``, ``send_window``: messages and bytes queued for
    sending. ``when_full``: "block", "drop", "drop_oldest" or "raise", as the protocol allows. ``tls``: for tls+tcp and
    wss; or ``trust``, with which only names of its realm are let in, and of those only ``peers``: patterns as
    "sensor.*", or a function of the name that raises AccessDenied, and is asked again when the policy has changed.
    ``reconnect``: maximum seconds between tries of a dialer. ``linger``: seconds that close may take to send accepted
    messages, None for ever. ``admit``: called on an NNG thread with each new Pipe; it refuses the connection by
    returning a false value. ``handshake_timeout``: seconds for a handshake; half of it for peers that connect from
    other hosts. ``idle_timeout``: seconds that a peer may pause within a message; None for ever. ``peer_timeout``:
    seconds, 3 to 600, until a TCP connection ends whose peer cannot be reached (one that is there and does not read
    stays); None leaves it to the system: hours. ``max_pipes``, ``max_pipes_per_host``: connections accepted at a time;
    0 is no limit but the process's (docs/protocols.md). ``ipc_mode``: permissions of
    the sockets listened at on ipc, for example 0o600; default: by the umask (shm: 0o600). ``shm_size``: bytes of
    memory for bodies sent on shm; ``shm_from``: bytes of the smallest such body. ``batch``: many messages in one, True
    or a Batch, at both ends or neither (PUSH, PULL, PAIR, BUS, PUB, SUB; see ``batch.py``); then ``recv_max_size``
    limits each of them, and the buffers count batches.

    Raises ConfigError for an unusable value or URL, Unreachable if it cannot listen, Forked.
    """

    _protocol: ClassVar[int]
    _outbox: Outbox
    _header = b""  # prefix of every message on the wire
    _header_room: ClassVar[int] = 0  # bytes of protocol headers beyond the size limit
    _alone: ClassVar[bool] = False
    _prioritizes: ClassVar[bool] = False  # its peers may have priorities
    _queues: ClassVar[type[Outbox]] = PeerQueues
    _when_behind: ClassVar[WhenBehind] = "hold"
    _never_receives: ClassVar[bool] = False  # received messages are discarded
    _batches_in: ClassVar[bool] = False
    _batches_out: ClassVar[bool] = False
    _batches_by_topic: ClassVar[bool] = False
    _default_recv_buffer: ClassVar[int] = 1024
    _most_recv_buffer: ClassVar[int] = MOST_BUFFER
    _default_recv_window: ClassVar[int] = WINDOW
    _default_send_buffer: ClassVar[int] = 1024
    _default_send_window: ClassVar[int] = 64 * MIB
    _least_send_buffer: ClassVar[int] = 0
    _policies: ClassVar[tuple[WhenFull, ...]] = ("block",)
    _drains: ClassVar[bool] = False  # close and drain wait until accepted messages are written
    _drained = True
    __signature__: ClassVar[Any] = _Signature()

    def __init__(
        self,
        *,
        listen: Addresses = None,
        dial: Addresses = None,
        name: str | None = None,
        recv_max_size: int = MIB,
        recv_timeout: float | None = None,
        send_timeout: float | None = None,
        recv_buffer: int | None = None,
        recv_window: int | None = None,
        send_buffer: int | None = None,
        send_window: int | None = None,
        when_full: WhenFull | None = None,
        tls: TLS | None = None,
        trust: Choice | None = None,
        peers: str | Iterable[str] | Check | None = None,
        reconnect: float = 0.1,
        linger: float | None = 1.0,
        admit: Callable[[Pipe], bool] | None = None,
        handshake_timeout: float | None = 10.0,
        idle_timeout: float | None = 60.0,
        peer_timeout: float | None = 10.0,
        max_pipes: int = 0,
        max_pipes_per_host: int = 0,
        ipc_mode: int | None = None,
        shm_size: int = SHARED,
        shm_from: int = SHARED_FROM,
        batch: Batch | bool | None = None,
    ) -> None:
        self.name = text_name(name)
        self._addresses: list[str] = []
        self._dialed: list[str] = []
        self._recv_timeout = seconds("recv_timeout", recv_timeout)
        self._send_timeout = seconds("send_timeout", send_timeout)
        self.linger = seconds("linger", linger)
        if tls is not None and isinstance(trust, Trust):
            raise ConfigError("trust", "give either tls= or trust=")
        identity = Identity(trust, patterns(peers), tls, guarded=admit is not None)
        self._identity = identity
        self._ipc_mode = None if ipc_mode is None else whole("ipc_mode", ipc_mode, 0, 0o777)
        recv_max_size = whole("recv_max_size", recv_max_size, 0, LARGEST) or LARGEST
        if recv_buffer is None:
            recv_buffer = self._default_recv_buffer
        self._recv_buffer = recv_buffer = whole("recv_buffer", recv_buffer, 1, self._most_recv_buffer)
        if recv_window is None:
            recv_window = self._default_recv_window
        self._recv_window = recv_window = whole("recv_window", recv_window, 1, ALL)
        if send_buffer is None:
            send_buffer = self._default_send_buffer
        send_buffer = whole("send_buffer", send_buffer, self._least_send_buffer, MOST_BUFFER)
        if send_window is None:
            send_window = self._default_send_window
        send_window = whole("send_window", send_window, 1, ALL)
        self._pause = seconds("reconnect", reconnect) or 0.0
        if not 0.001 <= self._pause <= LONGEST_PAUSE:
            raise ConfigError("reconnect", f"{reconnect!r} is not from 0.001 s to a day", reconnect)
        limits = Limits(
            seconds("handshake_timeout", handshake_timeout) or 0.0,
            seconds("idle_timeout", idle_timeout) or 0.0,
            silence(peer_timeout),
            whole("max_pipes", max_pipes, 0, 1 << 31),
            whole("max_pipes_per_host", max_pipes_per_host, 0, 1 << 31),
        )
        policy = self._policies[0] if when_full is None else when_full
        self._batch = self._batching(batch)
        if policy not in self._policies:
            why = "is not one of" if policy in get_args(WhenFull) else "is none of"
            raise ConfigError("when_full", f"{policy!r} {why} {self._policies} ({type(self).__name__})", policy)

        self._sharing = Sharing(whole("shm_size", shm_size, MIB, ALL), whole("shm_from", shm_from, SMALL, ALL))
        register(self)
        self._largest = recv_max_size
        wire = recv_max_size
        cap, most = recv_buffer, 0
        if self._batch is not None:
            wire = max(recv_max_size, self._batch.size) + self._batch.overhead
            cap, most = recv_buffer * self._batch.items, SPLIT
        self._core = Core(
            machine=machines(self._protocol, wire, self._header_room, self._sharing),
            alone=self._alone,
            admit=admit,
            identity=identity,
            limits=limits,
            inbox={"cap": cap, "window": recv_window, "full": self._when_behind},
            outbox=partial(self._queues, cap=send_buffer, window=send_window, when_full=policy, where=repr(self)),
        )
        self._state, self._inbox, self._outbox = self._core.state, self._core.inbox, self._core.outbox
        self._sharing.patient = isinstance(self._outbox, SharedQueue) and policy == "block"
        if self._batch is not None:
            self._outbox.free = 0  # no fast path: see Sender.send
        if most:
            self._inbox.unpack_limit = most
        if self._never_receives:
            self._inbox.unpack, self._inbox.no_receivers = _nothing, True
        self._batcher: Batcher | None = None
        self._open_batch: OpenBatch | None = None
        try:
            if self._batch is not None:
                self._set_up_batches(self._batch)
            self._set_up()
            for url in several("listen", listen):
                self.listen(url)
            for url in several("dial", dial):
                self.dial(url, dial[url] if isinstance(dial, Mapping) else PRIORITY)
        except BaseException:
            self._shut()
            raise

    def _set_up(self) -> None:
        """Set up the protocol, before listening and dialing."""

    # ------------------------------------------------------------------ batches

    def _batching(self, batch: Batch | bool | None) -> Batch | None:
        if batch is None or batch is False:
            return None
        if not (self._batches_in or self._batches_out):
            raise ConfigError(
                "batch", f"{type(self).__name__} cannot batch: each of its messages is handled singly", batch
            )
        if batch is True:
            return Batch()
        if not isinstance(batch, Batch):
            raise ConfigError("batch", f"{batch!r} is neither True nor a Batch", batch)
        return batch

    def _set_up_batches(self, batch: Batch) -> None:
        """Pack sent messages and unpack received ones."""
        if self._batches_out:
            self._outbox.weigh = count_topic if self._batches_by_topic else partial(count, start=len(self._header))
            self._batcher = Batcher(self._outbox, batch, weakly(self._pack, b""))
            if not self._batches_by_topic:
                self._open_batch = self._batcher.open()
        if self._batches_in:
            self._inbox.unpack = weakly(self._split_all, ())
            self._most_burst = BURST_OF_BATCHES

    def _pack(self, topic: bytes, items: Sequence[bytes]) -> bytes:
        return self._header + pack(items)

    def _split_all(self, connection: Connection, messages: Sequence[bytes]) -> list[Any]:
        """Return the messages of the batches. Under the lock.

        A malformed batch becomes an error for a receive call.
        """
        inbox, items = self._inbox, []
        for message in messages:
            try:
                items += self._split(connection, message)
            except (BadMessage, TooLarge) as wrong:
                inbox.refused += (wrong,)
                inbox.count_fault(wrong)
        return items

    def _split(self, connection: Connection, message: bytes) -> list[Any]:
        return unpack(message, largest=self._largest, peer=_peer_of(connection))

    # ------------------------------------------------------------------ addresses

    def listen(self, url: str, *, guests: TLS | Trust | None = None) -> str:
        """Accept connections at ``url``; return the bound address, with the chosen port in place of 0.

        ``guests``: at a socket with a trust, ask for no pass there, and show this certificate, or that of a trust.
        Peers are "@anyone" then.
        """
        address = parse("listen", url)
        security = self._identity.security("listen", address, guests)
        self._check_open()
        self._sharing.add(address.scheme)
        bound = self._core.listen(address, security, self._ipc_mode).bound
        self._addresses.append(bound)
        self._identity.warn(address, bound)
        return bound

    def dial(self, url: str, priority: int = PRIORITY) -> None:
        """Connect to ``url`` in the background; retry until a listener accepts, and reconnect after a loss.

        ``priority``: 1 to 16, as nanomsg's NN_SNDPRIO. A peer gets messages only while no peer of a lower number is
        connected, or none of them has room (Push, Req); surveys only while none is connected (Surveyor).
        """
        address = parse("dial", url)
        if whole("priority", priority, *PRIORITIES) != PRIORITY and not self._prioritizes:
            raise ConfigError("priority", f"a {type(self).__name__} sends to all peers, or to one", priority)
        security = self._identity.security("dial", address)
        self._check_open()
        self._sharing.add(address.scheme)
        self._core.dial(address, security, self._pause, priority)
        self._dialed.append(url)

    def undial(self, url: str) -> None:
        """Dial ``url`` no more. A connection to it stays until it ends. Raises ConfigError if it is not dialed."""
        self._check_open()
        if url not in self._dialed:
            raise ConfigError("undial", f"{url} is not dialed", url)
        self._core.undial(url)
        self._dialed.remove(url)

    @property
    def address(self) -> str:
        """The first bound address. Raises ConfigError on a socket that does not listen."""
        if not self._addresses:
            raise ConfigError("address", f"{self!r} does not listen")
        return self._addresses[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        """All bound addresses."""
        return tuple(self._addresses)

    @property
    def dialed(self) -> tuple[str, ...]:
        """Addresses that are dialed, as given."""
        return tuple(self._dialed)

    def __repr__(self) -> str:
        where = self.name or " ".join([*self._addresses, *(f"-> {url}" for url in self._dialed)])
        return f"<{type(self).__name__}{' ' + where if where else ''}>"

    # ------------------------------------------------------------------ peers

    def _check_open(self) -> None:
        self._state.check_open()

    @property
    def pipes(self) -> tuple[Pipe, ...]:
        """The current connections, oldest first."""
        return self._core.pipes()

    @property
    def pipe_stats(self) -> dict[Pipe, PipeStats]:
        """Counters of each current connection."""
        found, outbox = {}, self._outbox
        outbox.settle_burst()
        with self._state.lock:
            for one in self._state.joined():
                if one.pipe is not None:
                    going = one.written_now()
                    queued = len(one.out) + len(one.bodies) + len(outbox.burst) - going
                    found[one.pipe] = PipeStats(one.machine.count, one.written + going, queued, one.dropped)
        return found

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The last 64 connections that were cut: for breaking a rule, for silence or by an internal error."""
        return tuple(self._core.guard.cuts)

    def disconnect(self, pipe: Pipe) -> bool:
        """Cut one connection; return False if it had ended.

        Its dialer tries again: use ``admit`` to keep a peer out.
        """
        self._check_open()
        return self._core.disconnect(pipe)

    def on_peer(self, callback: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Call ``callback(event)`` for each peer that joins or leaves; return a function that unregisters it.

        It runs on the thread that detected the change: NNG's, nngkit's or a caller's. It must be quick and must not
        close sockets.
        """
        return self._state.follow(callback)

    async def apeer_events(self) -> AsyncIterator[PeerEvent]:
        """Yield an event for each present peer, then for each that joins or leaves, until the socket is closed.

        Raises Full if the caller leaves 65,536 events unread.
        """
        await checkpoint_before()
        waiter = task_waiter()
        events: deque[PeerEvent] = deque(maxlen=EVENTS + 1)
        self._state.peer_waiters.add(waiter)
        present = {}
        end = self._state.follow(events.append)
        try:
            for pipe in self.pipes:
                present[pipe.id] = pipe
                yield PeerEvent("joined", pipe, time.monotonic())
            while True:
                while events:
                    if len(events) > EVENTS:
                        raise Full(f"{self!r}: {EVENTS} peer events are unread")
                    event = events.popleft()
                    # an event between reading `pipes` and `follow` is yielded once
                    if event.kind == "joined" and present.pop(event.pipe.id, None) is not None:
                        continue
                    present.pop(event.pipe.id, None)
                    yield event
                if self._state.reason is not None:
                    return
                await waiter.wait()
        finally:
            end()
            self._state.peer_waiters.discard(waiter)

    def wait_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Block until ``n`` peers are connected, and callbacks of `on_peer` have returned. Raises TimedOut, Closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter = ThreadWaiter()
        self._state.peer_waiters.add(waiter)
        try:
            while not self._has_peers(n):
                if not waiter.wait(deadline):
                    raise self._too_few(n, timeout)
        finally:
            self._state.peer_waiters.discard(waiter)

    async def await_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Like ``wait_for_peers``, for a task. Cancelling it has no effect on the socket."""
        await checkpoint_before()
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter = task_waiter()
        self._state.peer_waiters.add(waiter)
        try:
            while not self._has_peers(n):
                if not await waiter.wait(deadline):
                    raise self._too_few(n, timeout)
        finally:
            self._state.peer_waiters.discard(waiter)

    def _has_peers(self, n: int) -> bool:
        self._check_open()
        return self._state.has_told(n)

    def _too_few(self, n: int, timeout: float | None) -> TimedOut:
        there = self._state.told
        return TimedOut(
            f"{self!r}: {there} of {n} peers connected in {timeout} s{self._core.unreached()}{self._last_cut()}",
            timeout,
        )

    def _last_cut(self) -> str:
        """Return the text about refusals that stand, or the last cut, for an error message; "" if there was none."""
        if told := self._core.refusals():
            return told
        cuts = self.cuts
        return f"; {cuts[-1].address} was cut: {cuts[-1].reason}" if cuts else ""

    # ------------------------------------------------------------------ counters

    @property
    def stats(self) -> Stats:
        """The counters, read at one moment."""
        core, state, inbox, outbox = self._core, self._state, self._inbox, self._outbox
        batcher = self._batcher
        accepted = None if batcher is None else batcher.accepted
        outbox.settle_burst()
        with state.lock:
            there = state.joined()
            return Stats(
                **{
                    "sent": outbox.sent if accepted is None else accepted,
                    "received": inbox.received,
                    "dropped": outbox.dropped + inbox.dropped,
                    "broken": outbox.broken,
                    "too_large": inbox.too_large,
                    "bad": inbox.bad,
                    "written": core.written_gone + sum(one.written + one.written_now() for one in there),
                    "read": core.read_gone + sum(one.machine.count for one in there),
                    "unwritten": outbox.unwritten if state.reason is None or state.lingers else 0,
                    "pipes": len(there),
                    "joined": core.joined_ever,
                    "left": core.left_ever,
                    "refused": core.refused_ever,
                    "cut": core.guard.cut_ever,
                    "shared": self._sharing.shared,
                    "copied": self._sharing.copied,
                    "abandoned": self._sharing.abandoned,
                    **self._counters(),
                }
            )

    def _counters(self) -> dict[str, int]:
        """Return the protocol's counters. Under the lock."""
        return {}

    # ------------------------------------------------------------------ the end

    def drain(self, timeout: Timeout = DEFAULT) -> bool:
        """Block until every accepted message is written, for ``timeout`` seconds at most (default: ``linger``).

        Return True if all are written. A written message is not necessarily received by the peer.
        """
        waiter = ThreadWaiter()
        for until in self._draining(timeout, waiter):
            waiter.wait(until)
        return self._drained

    async def adrain(self, timeout: Timeout = DEFAULT) -> bool:
        """Like ``drain``, for a task. Cancelling it has no effect on the messages."""
        await checkpoint_before()
        waiter = task_waiter()
        for until in self._draining(timeout, waiter):
            await waiter.wait(until)
        return self._drained

    def _draining(self, timeout: Timeout, waiter: Waiter) -> Iterator[float | None]:
        """Yield until when to wait, as long as messages are left to write."""
        seconds = self.linger if isinstance(timeout, Default) else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        self._drained = True
        if not self._drains:
            return
        state, outbox, batcher = self._state, self._outbox, self._batcher
        outbox.waiters.add(waiter)
        if batcher is not None:
            batcher.waiters.add(waiter)
        try:
            while True:
                pushed = True
                with contextlib.suppress(NngkitError):  # closed meanwhile: the rest is dropped and counted
                    pushed = batcher is None or batcher.flush()
                outbox.settle_burst()  # a signal handler that raised twice may have kept its alarm from being set
                with state.lock:
                    left = outbox.unwritten if state.reason is None or state.lingers else 0
                if pushed and not left:
                    return
                if deadline is not None and time.monotonic() >= deadline:
                    self._drained = False
                    return
                yield deadline
        finally:
            outbox.waiters.discard(waiter)
            if batcher is not None:
                batcher.waiters.discard(waiter)

    @property
    def closed(self) -> bool:
        """True once close has begun."""
        return self._state.reason is not None

    def close(self, linger: Timeout = DEFAULT) -> None:
        """Send accepted messages for at most ``linger`` seconds (default: the socket's ``linger``), then close.

        From any thread, at any time, any number of times. Callers that wait on the socket raise Closed at once.
        """
        try:
            if self._refuse():
                self.drain(linger)
                self._shut()
        except BaseException:
            self._shut()  # also continues where a signal handler that raised interrupted it
            raise

    async def aclose(self, linger: Timeout = DEFAULT) -> None:
        """Like ``close``, for a task. If cancelled, it closes without sending the rest."""
        first = False
        try:
            first = self._refuse()
            if first:
                await self.adrain(linger)
                self._shut()
        except BaseException:
            self._shut()
            raise
        if not first:
            await checkpoint_before()

    def _refuse(self) -> bool:
        """Refuse new work and wake all waiters; return False if that was done before."""
        reason = Closed(f"{self!r} is closed")
        if not self._core.refuse(reason):
            return False
        if self._batcher is not None:
            self._batcher.refuse(reason)  # messages it has accepted may still be sent
        self._woken()
        return True

    def _shut(self) -> None:
        """Close all connections and free everything. Idempotent."""
        self._refuse()
        if isinstance(self._state.reason, Forked):
            return
        if self._batcher is not None:
            self._outbox.dropped += self._batcher.free()
        self._core.shut()
        self._sharing.close()
        self._free()
        unregister(self)

    def _free(self) -> None:
        """Free the protocol's resources, after all is closed."""

    def _woken(self) -> None:
        """Wake the protocol's waiters, after the socket has closed."""

    def _forked(self, reason: Forked) -> None:
        self._core.forked(reason)
        self._sharing.forked()
        if self._batcher is not None:
            self._batcher.forked(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Ctrl-C and cancellation do not linger
        self.close(0.0 if kind is not None and not issubclass(kind, Exception) else DEFAULT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self.close(0.0)
        else:
            await self.aclose()

    def __del__(self) -> None:
        state = getattr(self, "_state", None)  # __init__ may have failed earlier
        if state is None or (not state.lingers and state.reason is not None):
            return
        # not here: a finalizer may run anywhere, also while its thread holds the lock
        self._core.refuse_later(Closed(f"{type(self).__name__} was not closed"))
        warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)


def _nothing(connection: Connection, messages: Sequence[bytes]) -> Sequence[Any]:
    return ()


def _peer_of(connection: Connection) -> str | None:
    return None if connection.pipe is None else connection.pipe.address
