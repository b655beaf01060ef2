"""Links over sockets: one BUS that accepts neighbours, and one for each address that is dialed.

BUS has what a link needs: both directions, a queue for each peer, and frames that go to one peer. Of its best effort
nothing is left: `offer_to` queues a frame or says that it did not, and reading stops while the node is busy.

Does not know what the frames mean, nor which links a node wants.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, groupby
from operator import attrgetter
from typing import ClassVar, Final, Literal

import trio

from nngkit.cluster.transport import Sink, Start
from nngkit.errors import Closed, TimedOut
from nngkit.protocols import TLS, Bus, Message, PeerEvent, Pipe
from nngkit.protocols.own_host import count_addresses
from nngkit.trust import Choice
from nngkit.trust.standing import told

log = logging.getLogger("nngkit.cluster")

RECV_MANY: Final = 512  # frames taken in at once: bounds the time in which other tasks wait, some milliseconds
QUEUE: Final = 8192  # frames queued for a neighbour, the most that a BUS has
LOOKUP: Final = 3.0  # seconds for the lookup of a name
BETWEEN: Final = 0.25  # seconds between the attempts of a dialer at two addresses of a name (docs/protocols.md)
LINGER: Final = 1.0  # seconds in which the last frames of a link are written


class _Links(Bus):
    """BUS that reads no further while its receive queue is full: neighbours then queue, and their senders wait."""

    _when_behind: ClassVar[Literal["hold"]] = "hold"


@dataclass(slots=True)
class _Reading:
    """Ends of a socket's connections, to be reported after the frames before them. `scope`: the wait for frames."""

    ends: list[PeerEvent] = field(default_factory=list)
    scope: trio.CancelScope | None = None


class SocketTransport:
    """Links over tcp, ipc, tls+tcp, ws and the other transports of nngkit.protocols.

    Args:
        listen: Address to accept neighbours at, or none.
        recv_max_size: Bytes of the largest frame.
        send_window: Bytes queued for each neighbour.
        dial_timeout: Seconds for a connection, besides up to 3 s for the lookup of a name.
        tls: For tls+tcp and wss.
        trust: For all connections.
        admit: Called on an NNG thread with each accepted Pipe; it refuses the neighbour by returning a false value.
        max_pipes: Neighbours accepted at a time; 0 is no limit.
    """

    def __init__(
        self,
        listen: str | None = None,
        *,
        recv_max_size: int = 16 * 1024 * 1024,
        send_window: int = 64 * 1024 * 1024,
        dial_timeout: float = 0.5,
        tls: TLS | None = None,
        trust: Choice | None = None,
        admit: Callable[[Pipe], bool] | None = None,
        max_pipes: int = 0,
    ) -> None:
        self._listen = listen
        self._dial_timeout = dial_timeout
        self._tls, self._trust, self._admit, self._max_pipes = tls, trust, admit, max_pipes
        self._recv_max_size, self._send_window = recv_max_size, send_window
        self._numbers = count(1)
        self._links: dict[int, tuple[_Links, Pipe]] = {}
        self._by_pipe: dict[int, int] = {}  # pipe ids are unique in the process
        self._dropped: set[int] = set()  # pipes whose last frames are being written: what still comes is not read
        self._dialing: dict[_Links, str] = {}
        self._reading: dict[_Links, _Reading] = {}
        self._hub: _Links | None = None
        self._closed = False
        self.overflows = 0

    @property
    def addresses(self) -> tuple[str, ...]:
        return () if self._hub is None else self._hub.addresses

    async def open(self, sink: Sink, start: Start) -> None:
        self._sink, self._start = sink, start
        self._token = trio.lowlevel.current_trio_token()
        if self._listen is not None:
            hub = self._hub = self._socket(self._admit, self._max_pipes)
            hub.on_peer(lambda event: self._peer_changed(hub, event))
            hub.listen(self._listen)
            start(self._receive, hub)

    def _socket(self, admit: Callable[[Pipe], bool] | None = None, max_pipes: int = 0) -> _Links:
        socket = _Links(
            recv_max_size=self._recv_max_size,
            send_window=self._send_window,
            send_buffer=QUEUE,
            recv_buffer=QUEUE,
            tls=self._tls,
            trust=self._trust,
            admit=admit,
            max_pipes=max_pipes,
            linger=LINGER,
            name="cluster",
        )
        with suppress(TimedOut):
            socket.recv_msgs(timeout=0)  # from here on, each frame knows its pipe
        self._reading[socket] = _Reading()
        return socket

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        sockets = {socket for socket, _ in self._links.values()} | set(self._dialing)
        if self._hub is not None:
            sockets.add(self._hub)
        self._links.clear()
        self._by_pipe.clear()
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for socket in sockets:
                    nursery.start_soon(socket.aclose)

    # ---- connecting

    def dial(self, address: str) -> None:
        socket = self._socket()
        try:
            socket.on_peer(lambda event: self._peer_changed(socket, event))
            socket.dial(address)
        except BaseException:
            socket.close(0.0)
            raise
        self._dialing[socket] = address
        self._start(self._receive, socket)
        self._start(self._limit_dial, socket, address)

    async def _limit_dial(self, socket: _Links, address: str) -> None:
        """Give up a connection that does not come about in time, which begins when its name has been looked up."""
        count = await count_addresses(address, LOOKUP)
        await trio.sleep(self._dial_timeout + max(0, count - 1) * BETWEEN)
        if self._dialing.pop(socket, None) is not None:
            with suppress(Closed):
                await socket.aclose()
            self._sink.dial_failed(address, f"not connected in {self._dial_timeout:g} s{told([address])}")

    def _peer_changed(self, socket: _Links, event: PeerEvent) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._apply, socket, event)

    def _apply(self, socket: _Links, event: PeerEvent) -> None:
        if event.kind == "joined":
            if any(pipe.id == event.pipe.id for pipe in socket.pipes):  # else it has left in the meantime
                self._join(socket, event.pipe)
            return
        if (reading := self._reading.get(socket)) is None:
            return
        # its last frames may be unread: a refusal, or a goodbye. The reading task reports the end behind them
        reading.ends.append(event)
        if reading.scope is not None:
            reading.scope.cancel()

    def _report_end(self, socket: _Links, event: PeerEvent) -> None:
        """Report the end of a connection whose frames have been read."""
        self._dropped.discard(event.pipe.id)
        link = self._by_pipe.pop(event.pipe.id, None)
        if link is None:
            return
        del self._links[link]
        if socket is not self._hub:
            self._start(socket.aclose)  # a node decides itself whether to dial again
        self._sink.link_down(link, event.reason or "the connection ended")

    def _join(self, socket: _Links, pipe: Pipe) -> int | None:
        """Number a connection and report it. Its frames may have been faster than its event."""
        known = self._by_pipe.get(pipe.id)
        if known is not None or self._closed or pipe.id in self._dropped:
            return known
        dialed = self._dialing.pop(socket, None)
        if dialed is None and socket is not self._hub:
            return None  # it was given up, or has connected a second time
        link = self._by_pipe[pipe.id] = next(self._numbers)
        self._links[link] = socket, pipe
        self._sink.link_up(link, pipe.address, dialed, pipe.who)
        return link

    # ---- frames

    async def _receive(self, socket: _Links) -> None:
        """Hand over a socket's frames, and the ends of its connections behind them, until it is closed."""
        reading = self._reading[socket]
        try:
            while True:
                messages: list[Message] = []
                if not reading.ends:
                    with trio.CancelScope() as reading.scope:  # cancelled by an end; it has taken nothing then
                        messages = await socket.arecv_msgs(RECV_MANY)
                    reading.scope = None
                ends, reading.ends = reading.ends, []
                self._hand_over(socket, messages)
                if ends:
                    with suppress(TimedOut):
                        for _ in range(
                            QUEUE // RECV_MANY
                        ):  # what was unread; a neighbour that goes on has its turn later
                            self._hand_over(socket, socket.recv_msgs(RECV_MANY, timeout=0))
                for event in ends:
                    self._report_end(socket, event)
                await trio.lowlevel.checkpoint()
        except Closed:
            self._reading.pop(socket, None)

    def _hand_over(self, socket: _Links, messages: Sequence[Message]) -> None:
        for pipe, run in groupby(messages, attrgetter("pipe")):
            if pipe is None:
                continue
            link = self._by_pipe.get(pipe.id)
            if link is None and pipe in socket.pipes:
                link = self._join(socket, pipe)
            if link is not None:
                self._sink.received(link, [message.body for message in run])

    def send(self, link: int, frames: Sequence[bytes], *, droppable: bool = False) -> bool:
        there = self._links.get(link)
        if there is None:
            return False
        socket, pipe = there
        with suppress(Closed):
            if socket.offer_to(pipe, frames, QUEUE // 2 if droppable else QUEUE):
                return True
        if not droppable and link in self._links and pipe in socket.pipes:
            self.overflows += 1
            log.warning("%s does not read: %d frames wait, it is cut off", pipe.address, QUEUE)
            self._cut(socket, pipe)
        return False

    def _cut(self, socket: _Links, pipe: Pipe) -> None:
        """End a connection now; its end is reported by its event."""
        with suppress(Closed):
            socket.disconnect(pipe)

    def drop(self, link: int) -> None:
        there = self._links.pop(link, None)
        if there is None:
            return
        socket, pipe = there
        self._by_pipe.pop(pipe.id, None)
        if pipe in socket.pipes:  # else its end is on the way, or over
            self._dropped.add(pipe.id)
        if socket is not self._hub:
            self._start(socket.aclose)
        else:
            self._start(self._drop_later, socket, pipe)

    async def _drop_later(self, socket: _Links, pipe: Pipe) -> None:
        with trio.move_on_after(LINGER):
            while (there := socket.pipe_stats.get(pipe)) is not None and there.queued:  # noqa: ASYNC110  # no event says that a peer's queue is written
                await trio.sleep(0.01)
        self._cut(socket, pipe)

    def busy(self, links: Sequence[int]) -> bool:
        found = [self._links[link] for link in links if link in self._links]
        return bool(found) and all(
            (stats := socket.pipe_stats.get(pipe)) is not None and 4 * stats.queued > QUEUE for socket, pipe in found
        )
