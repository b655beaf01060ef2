"""A node of a mesh: a network of BUS connections over several hops that behaves as one bus.

::

    async with Mesh(listen="tcp://0.0.0.0:7000", dial=["tcp://b:7000", "tcp://c:7000"], id="a") as mesh:
        await mesh.send(b"to all nodes")
        async for message in mesh:
            print(message.origin, message.sequence, message.body)

Any graph will do: each node needs a path to the others, rings and double links are no problem. The decisions are in
mesh_state.py; this shell owns the socket, the clock and the queue of the program.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Final, Literal, Self
from uuid import uuid4

import trio

from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.errors import Closed, ConfigError, TimedOut, TooLarge
from nngkit.mesh.limits import Effects, MeshLimits
from nngkit.mesh.state import MeshState
from nngkit.mesh.values import MeshGap, MeshMessage, MeshNeighbour, MeshStats
from nngkit.mesh.wire import MOST_ORIGIN, PREFIX
from nngkit.protocols import TLS, Bus, PeerEvent, Pipe, Stats
from nngkit.redial import log_heard, log_silent
from nngkit.trust import Choice, Rights, Trust, chosen
from nngkit.trust.rights import own_id
from nngkit.trust.standing import told

log = logging.getLogger("nngkit.fanout")

OVERHEAD: Final = 200  # bytes that Python needs for a queued message beside its body
RECV_MANY: Final = 512  # frames taken in at once: bounds the time in which other tasks wait, some 2 ms
SEND_MANY: Final = 64  # own messages between two looks at the queues
ROOM_PAUSE: Final = 0.002  # seconds between two looks: a queue of 8,192 small messages is written in 20 ms
READ_MANY: Final = 1024  # events that the program gets before it yields: more than one batch of frames brings
TURNS: Final = 16  # turns of the loop that a program gets between two batches while its queue is over half full
SOONEST: Final = 0.005  # seconds between two ticks


class _Links(Bus):
    """BUS that reads no further while its receive queue is full: neighbours then queue, and their senders wait."""

    _when_behind: ClassVar[Literal["hold"]] = "hold"


class Mesh(UnderTrio):
    """A node of a mesh. Use it with `async with`, under trio.

    Args:
        listen: Address to accept neighbours at, or several.
        dial: Addresses of neighbours to connect to.
        id: Name of this node, unique in the mesh: printable text of at most 64 bytes. The default is random. With a
            trust it is the name of the pass, or NAME:WORD where several nodes have one pass.
        history: Begin the streams that are older than this node at what its first neighbour keeps, instead of at now.
        buffer_bytes: Memory for messages that neighbours may ask for; and half as much for messages that wait for
            earlier ones.
        recv_buffer: Messages that wait for the program; further ones are reported as a MeshGap.
        recv_bytes: Bytes that wait for the program.
        patience: Seconds without progress, with a neighbour connected, after which missing messages are given up.
        digest: Seconds between two digests to each neighbour: a lost last message is noticed after this time.
        streams: Runs of origins that are remembered.
        recv_max_size: Bytes of the largest message, own ones too.
        send_buffer: Messages queued for each neighbour.
        send_window: Bytes queued for each neighbour.
        tls: For tls+tcp and wss.
        trust: For all connections; the default is that of the process. A neighbour then speaks under its own name,
            unless the policy grants it ``carry = ["mesh"]``.
        reconnect: Maximum seconds between tries to connect.
        admit: Called on an NNG thread with each new Pipe; it refuses the neighbour by returning a false value.
        max_pipes: Neighbours accepted at a time; 0 is no limit.

    Raises:
        ConfigError: An unusable value or URL.
        Unreachable: It cannot listen.
    """

    def __init__(
        self,
        *,
        listen: str | Iterable[str] | None = None,
        dial: str | Iterable[str] | None = None,
        id: str | None = None,
        history: bool = False,
        buffer_bytes: int = 64 * 1024 * 1024,
        recv_buffer: int = 65_536,
        recv_bytes: int = 64 * 1024 * 1024,
        patience: float = 10.0,
        digest: float = 0.5,
        streams: int = 4096,
        recv_max_size: int = 1024 * 1024,
        send_buffer: int = 8192,
        send_window: int = 8 * 1024 * 1024,
        tls: TLS | None = None,
        trust: Choice | None = None,
        reconnect: float = 0.1,
        admit: Callable[[Pipe], bool] | None = None,
        max_pipes: int = 0,
    ) -> None:
        trust = chosen(trust, tls)
        if isinstance(trust, Trust):
            self.id = own_id(trust, id)
        else:
            self.id = uuid4().hex[:16] if id is None else id
        limits = MeshLimits(buffer_bytes=buffer_bytes, patience=patience, digest=digest, streams=streams)
        for what, value in (("recv_buffer", recv_buffer), ("recv_bytes", recv_bytes)):
            if not isinstance(value, int) or value < 1:
                raise ConfigError(what, f"{value!r} is not a whole number from 1", value)
        self._listen = _several(listen)
        self._dial = _several(dial)
        self._most = recv_max_size
        # microseconds: two runs of one id never begin in the same one
        epoch = time.time_ns() // 1000
        self._rights = Rights(trust, "mesh", carry="mesh")
        self._voices = None if self._rights.trust is None else _Voices(self._rights)
        self._state = MeshState(self.id, epoch, time.monotonic(), limits, history=history, voices=self._voices)
        self._cap, self._window = recv_buffer, recv_bytes
        self._queue: deque[MeshMessage | MeshGap] = deque()
        self._queued_bytes = 0
        self._unread: dict[tuple[str, int], tuple[int, int]] = {}  # gaps at the end of the queue
        self._unread_count = 0
        self._options = {
            "recv_max_size": recv_max_size + PREFIX + MOST_ORIGIN if recv_max_size else 0,
            "send_buffer": send_buffer,
            "send_window": send_window,
            "recv_window": 1024 * 1024,
            "recv_buffer": 8192,
            "tls": tls,
            "trust": trust,
            "reconnect": reconnect,
            "admit": admit,
            "max_pipes": max_pipes,
            "name": self.id[:15],
        }
        self._background = Background()
        self._pipes: dict[int, Pipe] = {} if self._voices is None else self._voices.pipes
        self._sent_since = 0
        self._half = send_buffer // 2

    async def __aenter__(self) -> Self:
        self._entering()
        self._token = trio.lowlevel.current_trio_token()
        self._readable = WakeUp()
        self._due = WakeUp()
        self._greeted = trio.Event()
        self._bus = _Links(**self._options)  # type: ignore[arg-type]
        try:
            with suppress(TimedOut):
                self._bus.recv_msgs(timeout=0)  # from here on, each message knows its pipe
            self._bus.on_peer(self._peer_changed)
            for url in self._listen:
                self._bus.listen(url)
            for url in self._dial:
                self._bus.dial(url)
            await self._background.open()
        except BaseException:
            self._bus.close(0.0)
            raise
        self._background.start(self._receive)
        self._background.start(self._keep_time)
        return self

    async def _before_end(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Send what is queued, for at most a second, and leave the mesh. Idempotent."""
        try:
            await self._bus.aclose()
        finally:
            self._background.end()
            self._readable.wake()
            self._greeted.set()

    # ---- sending

    async def send(self, body: bytes) -> int:
        """Send a message to all nodes; return its number in this run.

        Waits while no neighbour has room, so that at least one gets the message; without a neighbour it is kept for the
        next one. If cancelled, it was not sent. Raises TooLarge, Closed.
        """
        await self.send_many((body,))
        return self._state.sent

    async def send_many(self, bodies: Iterable[bytes]) -> int:
        """Send messages to all nodes, in order; return how many. If cancelled, the first ones were sent."""
        held = [body if type(body) is bytes else bytes(memoryview(body)) for body in bodies]  # not zeros for an int
        for body in held:
            if len(body) > self._most > 0:
                raise TooLarge(len(body), self._most)
        for start in range(0, len(held), SEND_MANY):
            part = held[start : start + SEND_MANY]
            await self._wait_for_room(len(part))
            self._bus.send_many(self._state.send(part, time.monotonic()))
        return len(held)

    async def _wait_for_room(self, count: int) -> None:
        """Yield every 64 messages, and wait while every neighbour's queue is over half full. Raises Closed."""
        if self._bus.closed:
            raise self._ended()
        self._sent_since += count
        if self._sent_since < SEND_MANY:
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        self._sent_since = 0
        await trio.lowlevel.checkpoint()
        while self._full():  # noqa: ASYNC110  # no event says that a queue of a BUS has room
            await trio.sleep(ROOM_PAUSE)

    def _full(self) -> bool:
        queues = self._bus.pipe_stats.values()
        return bool(queues) and all(one.queued > self._half for one in queues)

    # ---- receiving

    async def recv(self, timeout: float | None = None) -> MeshMessage:
        """Return the next message of another node. If cancelled, it has taken none. Raises TimedOut, Closed."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            while True:
                while (event := self._next_event()) is not None:
                    if type(event) is MeshMessage:
                        return event
                if self._bus.closed:
                    raise self._ended()
                await self._readable.wait()
        raise TimedOut(f"{self!r}: nothing received in {timeout} s{told(self._bus.dialed)}", timeout)

    def __aiter__(self) -> AsyncGenerator[MeshMessage, None]:
        """Yield the messages of other nodes, in each origin's order."""
        return self.messages()

    def messages(self) -> AsyncGenerator[MeshMessage, None]:
        """Yield the messages of other nodes until the node is closed; gaps are only counted, in `stats`."""
        return _Iteration(self, MeshMessage)

    def events(self) -> AsyncGenerator[MeshMessage | MeshGap, None]:
        """Yield messages and gaps until the node is closed: each number of an origin once, in order."""
        return _Iteration(self, object)

    def _ended(self) -> Exception:
        return self._background.ended(f"the mesh node {self.id!r} has been closed")

    def _next_event(self) -> MeshMessage | MeshGap | None:
        if not self._queue:
            self._queue_unread()
            if not self._queue:
                return None
        event = self._queue.popleft()
        if type(event) is MeshMessage:
            self._queued_bytes -= len(event.body) + OVERHEAD
        return event

    def _put(self, events: Iterable[MeshMessage | MeshGap]) -> None:
        """Queue events for the program; messages without room become a gap."""
        queue = self._queue
        for event in events:
            if self._unread and (event.origin, event.epoch) in self._unread:
                first, _ = self._unread[event.origin, event.epoch]
                last = event.sequence if isinstance(event, MeshMessage) else event.last
                self._unread[event.origin, event.epoch] = first, last
                self._unread_count += 1
            elif type(event) is MeshMessage:
                size = len(event.body) + OVERHEAD
                if len(queue) >= self._cap or (queue and self._queued_bytes + size > self._window):
                    self._unread[event.origin, event.epoch] = event.sequence, event.sequence
                    self._unread_count += 1
                else:
                    queue.append(event)
                    self._queued_bytes += size
            elif len(queue) >= 2 * self._cap:  # gaps alone, of very many streams
                assert isinstance(event, MeshGap)
                self._unread[event.origin, event.epoch] = event.first, event.last
            else:
                queue.append(event)
        self._readable.wake()

    def _queue_unread(self) -> None:
        """Report what was not queued, after all that was."""
        for (origin, epoch), (first, last) in self._unread.items():
            self._queue.append(MeshGap(origin, epoch, first, last, "unread"))
        self._unread.clear()

    # ---- the network

    def _peer_changed(self, event: PeerEvent) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._apply_peer_change, event)

    def _apply_peer_change(self, event: PeerEvent) -> None:
        now = time.monotonic()
        if event.kind == "joined":
            if any(pipe.id == event.pipe.id for pipe in self._bus.pipes):  # else it has left in the meantime
                self._join(event.pipe, now)
        elif self._pipes.pop(event.pipe.id, None) is not None:
            self._state.link_down(event.pipe.id, now)
        self._act()

    def _join(self, pipe: Pipe, now: float) -> None:
        self._pipes[pipe.id] = pipe
        self._state.link_up(pipe.id, now)

    async def _receive(self) -> None:
        state, bus = self._state, self._bus
        while True:
            try:
                messages = await bus.arecv_msgs(RECV_MANY)
            except Closed:
                return
            now = time.monotonic()
            for pipe, run in groupby(messages, lambda message: message.pipe):
                if pipe is not None and pipe.id not in self._pipes and pipe in bus.pipes:
                    self._join(pipe, now)  # its frames were faster than its event
                if self._voices is not None:
                    self._voices.heard = pipe
                state.receive(-1 if pipe is None else pipe.id, [message.body for message in run], now)
            if now >= state.wake_at:
                state.tick(now)
            self._act()
            await trio.lowlevel.checkpoint()
            for _ in range(TURNS):
                if 2 * len(self._queue) < self._cap:
                    break
                await trio.lowlevel.checkpoint()

    async def _keep_time(self) -> None:
        state = self._state
        while True:
            wait = max(SOONEST, state.wake_at - time.monotonic())
            with trio.move_on_after(wait):
                await self._due.wait()
                continue  # an earlier time has been set
            state.tick(time.monotonic())
            self._act()

    def _act(self) -> None:
        """Carry out what the state asks for."""
        effects: Effects = self._state.take()
        bus, pipes = self._bus, self._pipes
        with suppress(Closed):
            deaf = self._deaf()
            for link, run in groupby(effects.relays, itemgetter(1)):
                frames = [frame for frame, _ in run]
                if not deaf:
                    bus.send_except(None if link is None else pipes.get(link), frames)
                    continue
                for number, there in pipes.items():
                    if number != link and number not in deaf:
                        bus.send_to(there, frames)
            for link, sends in groupby(effects.sends, itemgetter(0)):
                if link in pipes:
                    bus.send_to(pipes[link], [frame for _, frame in sends])
            if effects.digests:
                bus.send_many(effects.digests)
            for silent in effects.silent:
                if (pipe := pipes.get(silent.pipe)) is not None:
                    if silent.first:
                        log_silent("mesh neighbour", f"{silent.peer} at {pipe.address}", silent.seconds)
                    bus.disconnect(pipe)
        for neighbour, seconds in effects.heard:
            log_heard("mesh neighbour", neighbour, seconds)
        for line in effects.warnings:
            log.warning("mesh node %r: %s", self.id, line)
        if effects.events:
            self._put(effects.events)
        if self._state.greeted and not self._greeted.is_set():
            self._greeted.set()
        self._due.wake()

    def _deaf(self) -> set[int]:
        """Return the links at which this node may not speak for others: their neighbours would refuse it."""
        voices = self._voices
        return set() if voices is None else {link for link in self._pipes if not voices.carries(link)}

    # ---- what can be read

    async def wait_for_neighbours(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` neighbours are connected and one has told its streams. Raises TimedOut, Closed.

        Of messages that are sent later, by any node with a path to this one, none is missed silently.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        await self._bus.await_for_peers(n, timeout)
        with trio.move_on_after(float("inf") if deadline is None else max(0.0, deadline - time.monotonic())):
            await self._greeted.wait()
            if self._bus.closed:
                raise self._ended()
            return
        raise TimedOut(f"{self!r}: no neighbour has sent a digest in {timeout} s", timeout)

    @property
    def address(self) -> str:
        """The first bound address. Raises ConfigError on a node that does not listen."""
        return self._bus.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """All bound addresses."""
        return self._bus.addresses

    @property
    def neighbours(self) -> tuple[MeshNeighbour, ...]:
        """The connected neighbours, oldest first."""
        ids = self._state.neighbour_ids()
        return tuple(
            MeshNeighbour(ids.get(pipe.id), pipe.address, one.queued) for pipe, one in self._bus.pipe_stats.items()
        )

    @property
    def stats(self) -> MeshStats:
        """The counters of the mesh."""
        return replace(self._state.stats, unread=self._unread_count, refused=dict(self._rights.refusals))

    @property
    def socket_stats(self) -> Stats:
        """The counters of the BUS socket; `dropped` counts frames for which a neighbour's queue had no room."""
        return self._bus.stats

    def __repr__(self) -> str:
        return f"<Mesh {self.id}>"


class _Voices:
    """In whose names neighbours may speak under a trust: see nngkit.mesh.limits.Voices.

    `pipes`: of the neighbours; `heard`: the one whose frames are taken in, which may have left meanwhile.
    """

    def __init__(self, rights: Rights) -> None:
        self.pipes: dict[int, Pipe] = {}
        self.heard: Pipe | None = None
        self._rights = rights

    def _who(self, link: int) -> str | None:
        heard = self.heard
        pipe = heard if heard is not None and heard.id == link else self.pipes.get(link)
        return None if pipe is None else pipe.who

    def speaks(self, link: int, origin: str) -> bool:
        return self._rights.speaks(self._who(link), origin)

    def tells(self, link: int, origin: str) -> bool:
        return self._rights.speaks(self._who(link), origin)

    def carries(self, link: int) -> bool:
        return self._rights.carries(self._who(link))


class _Iteration(AsyncGenerator[Any, None]):
    """`async for` over the events of one kind. It may be abandoned: unlike a generator it has nothing to clean up."""

    def __init__(self, mesh: Mesh, kind: type) -> None:
        self._mesh = mesh
        self._kind = kind
        self._left = 0  # events until it yields to other tasks

    async def asend(self, value: None) -> Any:
        mesh = self._mesh
        while True:
            if self._left <= 0:
                await trio.lowlevel.checkpoint()
                while not mesh._queue and not mesh._unread and not mesh._bus.closed:
                    await mesh._readable.wait()
                self._left = READ_MANY
            event = mesh._next_event()
            self._left -= 1
            if event is None:
                self._left = 0
                if mesh._bus.closed:
                    raise mesh._background.failure or StopAsyncIteration
            elif isinstance(event, self._kind):
                return event

    async def athrow(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        raise kind if value is None else value


def _several(urls: str | Iterable[str] | None) -> tuple[str, ...]:
    return () if urls is None else (urls,) if isinstance(urls, str) else tuple(urls)
