"""One connection: its stream, its machine (SP or WebSocket), what is being read and what is being written.

::

    rx, tx     one operation each at most; NNG's callback sets it IDLE and goes on
               IDLE -> POSTED -> IDLE; who sees it complete before the callback goes on in its place
    now        the same operation tried at once on the core's aio without a callback, and taken back if it has to wait:
               no thread of NNG's is involved while there is something to read, or room to write (not under TLS)
    polled     the core's poller reports when there is something to read, and `now` reads it; nothing is posted then

    SHAKING -> ASKING -> JOINED -> CLOSED      hello (or HTTP), then `admit`, then messages

All methods hold the core's lock, or are called by one who does, unless they say otherwise. Any of them may be cut short
by a signal handler that raises, in the main thread: state changes in lines without a call, and an operation is posted
in the same call into C that notes it, so that doing it once more goes on where it was cut.

May not know: protocols, waiters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from nngkit.errors import BadMessage, NngkitError, TooLarge

from . import _streams as streams
from ._addresses import Address
from ._nng import ffi, lib, strerror, uninitialized
from ._streams import Owner, atomically

if TYPE_CHECKING:
    from ._core import Core

RX: Final = 0
TX: Final = 1
IDLE, POSTED, SPENT = 0, 1, 2
SHAKING, ASKING, JOINED, CLOSED = 0, 1, 2, 3

FIRST: Final = 4096  # bytes of the buffer of a quiet connection that is not polled
MOST: Final = 256 * 1024  # of a busy one, and of those that share the core's: larger chunks are no faster
LEAST: Final = 16 * 1024  # of a busy one among many ...
AHEAD: Final = 16 * 1024 * 1024  # ... that together hold no more, should all be held back
CHUNKS: Final = 8  # receptions in a row, after which others have their turn
BEHIND: Final = 4096  # bytes received behind a large body: what follows it mostly comes with it
CHUNK: Final = 64 * 1024  # bytes of messages in one write
APART_LIMIT: Final = 32 * 1024  # bytes of a body that a machine may leave as a buffer of its own
PIECES: Final = 8  # buffers of one write: NNG takes no more

_count, _result, _busy = lib.nng_aio_count, lib.nng_aio_result, lib.nng_aio_busy
_cancel, _wait, _set_iov = lib.nng_aio_cancel, lib.nng_aio_wait, lib.nng_aio_set_iov
_receive, _send = lib.nng_stream_recv, lib.nng_stream_send
_from_buffer = ffi.from_buffer


@dataclass(frozen=True, slots=True)
class Pipe:
    """One connection: an id that no other has in this process, and what is known of the other end.

    ``address`` is the remote address as a URL (for ipc and inproc the one both ends share); ``dialed`` tells which
    side connected, ``pid`` is the other process on ipc and abstract. Under TLS ``verified`` says that the peer's
    certificate was checked, ``peer_name`` is its common name and ``alt_names`` its subject alternative names. On a
    WebSocket that was accepted ``path`` and ``origin`` are those of the request.
    """

    id: int
    address: str
    dialed: bool
    peer_name: str | None = None
    alt_names: tuple[str, ...] = ()
    verified: bool = False
    pid: int | None = None
    path: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class PeerEvent:
    """A peer came or went. ``time`` is time.monotonic() seconds; ``reason`` says why it went."""

    kind: Literal["joined", "left"]
    pipe: Pipe
    time: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PipeStats:
    """Counters of one connection. Messages: ``read``, ``written``, ``queued`` for it and not written, and
    ``dropped`` for want of room in its queue, or of what came by it.
    """

    read: int = 0
    written: int = 0
    queued: int = 0
    dropped: int = 0


class Connection(Owner):
    """See above. ``fault``: why it has to end; whoever finds it set has the core lose the connection."""

    def __init__(
        self,
        core: Core,
        stream: Any,
        descriptor: int | None,
        machine: Any,
        address: Address,
        url: str,
        dialer: Any,
        listener: Any,
    ) -> None:
        super().__init__()
        self.core = core
        self.stream = stream
        self.descriptor = descriptor  # None: not known
        self.machine = machine
        self.address = address
        self.url = url  # what both ends share, where they do not know each other by address
        self.dialer = dialer
        self._listener = listener
        self._heard: bytes | None = b"" if listener is not None and address.web and listener.shares else None
        # TLS takes an operation back on NNG's threads, which may be waiting for the lock that is held meanwhile
        self.prompt = not address.tls
        self.stage = SHAKING
        self.fault: str | NngkitError | None = None
        self.since = time.monotonic()
        self.pipe: Pipe | None = None
        # reading
        self.fresh: list[Any] = []  # messages that are still to be looked into
        self.looked = 0  # chunks that the machine was asked about
        self.seen = 0  # of the fresh ones, dealt with
        self.taken_in = 0  # messages of the machine's that were counted
        self.progress = (-1, 0)  # chunks read when the sweep came by
        self._rx = self.aio(RX)
        self.rx_state = IDLE
        self._rx_owed = False  # the callback of its last operation has not come
        self.polled = False
        self.hung_up = False  # the peer will send no more: what is read after this ends with that
        self._fed = 0
        self._size = FIRST
        self._buffer = uninitialized("char[]", FIRST)
        self._view = ffi.buffer(self._buffer)
        self._place: tuple[bytes, int] | None = None
        self._asked = 0  # bytes that the reception under way may bring
        self._fed_short = False  # the last one brought less than that
        self._large = False
        self._stocked = False
        self._reads = False  # messages are taken in: who is told of peers has been told of this one
        # writing
        self.out: list[bytes] = []  # messages for this peer alone
        self.out_bytes = 0
        self.bodies: Sequence[bytes] = ()  # messages being written ...
        self.held: list[bytes] = []  # ... as they go out
        self.done = 0  # bytes of them that are written
        self.total = 0
        self._tx = self.aio(TX)
        self.tx_state = IDLE
        self.written = 0
        self.went_at = 0.0  # perf_counter() when something was last queued for it alone
        self.dropped = 0
        self.clogged = False

    def __repr__(self) -> str:
        return f"<Connection {self.number} {self.url}>"

    # ------------------------------------------------------------------ callbacks, on NNG's threads

    def start(self, heard: bytes) -> None:
        """Say hello, and wait for the peer's, of which ``heard`` has come. Without the lock."""
        core = self.core
        with core.lock:
            if self.stage != SHAKING:
                return
            if heard:
                self.machine.feed(heard)
                self._fed = self.machine.fed
                self._shake()
            else:
                self.write(now=True)
                if self.fault is None:
                    self.post()
            if self.fault is not None:
                core.lose(self)
            asking = self.stage == ASKING
        if asking:
            core.greet(self)
        core.tell()

    def completed(self, which: int) -> None:
        core = self.core
        heir = None
        with core.lock:
            if which == RX:
                self._rx_owed = False
                if self.rx_state == POSTED:
                    if self.stage != CLOSED:
                        self._harvest()
                    self.rx_state = IDLE
            else:
                if self.tx_state == POSTED and self.stage != CLOSED:
                    self._wrote()
                self.tx_state = IDLE
            if self.stage == CLOSED:
                self._end_if_idle()
                return
            if which == TX:
                self.write(now=False)
                core.outbox.go_on()
            elif self.stage == SHAKING:
                heir = self._heir()
                if heir is None:
                    self._shake()
            elif self._reads:
                self.advance()
            if self.fault is not None:
                core.lose(self)
            asking = self.stage == ASKING and which == RX
        if heir is not None:
            heir.inherited(self.stream, self.descriptor, heir, self._heard)
        elif asking:
            core.greet(self)
        core.tell()

    def _heir(self) -> Any:
        """The listener whose path is asked for, if it is another socket's; the stream is then no longer ours."""
        if self._heard is None or self.fault is not None:
            return None
        lines, end, _ = self._heard.partition(b"\r\n\r\n")
        if not end:
            return None
        words = lines.split(b" ", 2)
        path = words[1].partition(b"?")[0].decode("latin-1") if len(words) == 3 else ""
        heir = self._listener.sibling(path or "/")
        if heir is not None:
            self.core.hand_over(self)
        return heir

    def leave(self) -> None:
        """End without closing the stream, which goes on elsewhere."""
        self.stage = CLOSED
        self.ending()
        self._end_if_idle()

    def _shake(self) -> None:
        machine, wrong = self.machine, None
        if self.fault is not None:
            return
        try:
            machine.take(self.fresh, 0)
        except (BadMessage, TooLarge) as found:
            wrong = found
        if machine.said:
            self.write(now=True)
        if wrong is not None:
            self.fault = wrong
            return
        if self.fault is not None:
            return
        if machine.ended:
            self.fault = "handshake refused"
        elif machine.open or machine.asks:
            self.stage = ASKING
            if self.address.tls:
                self.post()  # NNG does not notice that a TLS peer leaves while nothing is posted
        else:
            self.post()

    # ------------------------------------------------------------------ reading

    def read_on(self) -> None:
        """Take in what came with the hello, and read messages from now on: polled, if the descriptor is known."""
        self._reads = True
        self.core.inbox.take_in(self)
        if self.rx_state == IDLE and self.descriptor is not None and self.prompt and self.core.poller.add(self):
            self.polled = True
            self._buffer = self._view = None  # it reads to the core's
        self.advance()

    def advance(self, *, now: bool = False) -> None:
        """Take in what there is and read on, until nothing is there, or the inbox holds this connection back.

        ``now``: read on in this thread, which has nothing else to do, and do not leave it to NNG's.
        """
        core = self.core
        if core.reading is not None or core.writing is not None:
            core.settle()  # another thread was cut short, and lets go of the lock on its way out
        if self.rx_state == POSTED:
            if not self._complete(self._rx):
                if self._stocked and core.inbox.take_in(self):
                    self._stocked = False
                return
            self._harvest()
            self.rx_state = IDLE
        chunks = 0
        while self.fault is None:
            if not core.inbox.take_in(self):
                # held back: one more reception is made or left posted, so that a peer that leaves is noticed
                if not self._stocked and not self._rx_owed:
                    if self.polled:
                        self._stocked = self._read_now()
                    else:
                        self._stocked = True
                        self.post()
                return
            self._stocked = False
            if self.fault is not None or self.stage != JOINED:
                return
            if self.polled:
                if chunks and self._fed_short and not self.hung_up:
                    return  # that was all: the poller tells of what comes from now on
                if chunks == CHUNKS:
                    core.poller.repeat(self)
                    return
            # of large bodies the rest is mostly there; else an operation in vain would cost more than it saves
            elif not (self.prompt and (now or self._large or self._rx_owed)):
                break
            if not self._read_now():
                break
            chunks += 1
        if not self.polled and not self._rx_owed and self.fault is None:
            self.post()  # its callback goes on

    @staticmethod
    def _complete(aio: Any) -> bool:
        return bool(_count(aio) or _result(aio))

    def post(self) -> None:
        """Have NNG read on. Only while IDLE."""
        pieces = self._aim(self._buffer, self._size)
        _set_iov(self._rx, pieces, self.core.iov)
        atomically(
            (setattr, self, "rx_state", POSTED),
            (setattr, self, "_rx_owed", True),
            (_receive, self.stream, self._rx),
        )

    def _aim(self, buffer: Any, size: int) -> int:
        """Say where the next bytes go: to their place or ``buffer``, of ``size`` bytes; return the number of pieces."""
        machine, iov = self.machine, self.core.iov
        place = machine.place()
        if place is not None:
            body, filled = place
            left = len(body) - filled
            behind = min(BEHIND, size)
            iov[0].iov_buf = _from_buffer(body) + filled
            iov[0].iov_len = left
            iov[1].iov_buf = buffer
            iov[1].iov_len = behind
            self._asked = left + behind
            self._place = place
            self._large = True
            return 2
        # behind a large body another one is likely: little of it is read here, to be copied, and the rest in its place
        asked = min(BEHIND, size) if self._large else size
        iov[0].iov_buf = buffer
        iov[0].iov_len = asked
        self._asked = asked
        self._place = None
        return 1

    def _absorb(self, size: int, view: Any) -> None:
        """Give the machine ``size`` bytes that came to where ``_aim`` said, ``view`` being of its buffer."""
        machine = self.machine
        if machine.fed == self._fed:
            self.core.inbox.read(size)
            place = self._place
            if place is None:
                self._large = self._large and size == self._asked
                data = view[:size]
                if self._heard is not None and self.stage == SHAKING:
                    self._heard += data
                machine.feed(data)
            else:
                part = min(size, len(place[0]) - place[1])
                machine.fill(part, view[: size - part])
        self._fed = machine.fed

    def _grow(self) -> None:
        """Have more room for what comes, as this reception filled it."""
        size = min(self._size * 4, MOST)
        self._buffer = uninitialized("char[]", size)
        self._view = ffi.buffer(self._buffer)
        self._size = size

    def _harvest(self) -> None:
        size = _count(self._rx)
        if size:
            self._absorb(size, self._view)
            if self._place is None and size == self._size < MOST:
                self._grow()
        elif (code := _result(self._rx)) != lib.NNG_ECANCELED:
            self._failed(code)

    def _failed(self, code: int) -> None:
        if self.fault is None:
            ended = code in (0, lib.NNG_ECLOSED, lib.NNG_ECONNSHUT)
            # what NNG says of a TLS peer that has said good-bye
            ended = ended or (code == lib.NNG_ECONNREFUSED and self.address.tls)
            self.fault = "the peer closed" if ended else strerror(code)

    def _read_now(self) -> bool:
        """Read what is there, without waiting; False if there is nothing."""
        core = self.core
        aio = core.now
        core.settle()
        if self.polled:
            pieces = self._aim(core.buffer, max(LEAST, min(MOST, AHEAD // (len(core.present) or 1))))
        else:
            pieces = self._aim(self._buffer, self._size)
        _set_iov(aio, pieces, core.iov)
        atomically((setattr, core, "reading", self), (_receive, self.stream, aio))
        if _busy(aio):
            _cancel(aio)
            _wait(aio)
        return self.read_settled()

    def read_settled(self) -> bool:
        """Take what the operation on the core's aio brought; for the core too, if it was cut short."""
        core = self.core
        size = _count(core.now)
        if size:
            self._absorb(size, core.view if self.polled else self._view)
            self._fed_short = size < self._asked
            core.reading = None
            return True
        code = _result(core.now)
        core.reading = None
        if code != lib.NNG_ECANCELED:
            self._failed(code)
        return False

    def progress_written(self) -> tuple[int, int]:
        """Return what changes when bytes are written."""
        return self.written, self.done

    def progress_made(self) -> tuple[int, int]:
        """Return what changes when bytes come."""
        place = self.machine.place()
        return self.machine.fed, 0 if place is None else place[1]

    # ------------------------------------------------------------------ writing

    @property
    def writing(self) -> bool:
        """Return True while something is being written to this peer."""
        return self.tx_state != IDLE or self.done < self.total

    def write(self, *, now: bool) -> None:
        """Write what is there for this peer. ``now``: by this thread, as far as the kernel takes it at once."""
        core = self.core
        if core.reading is not None or core.writing is not None:
            core.settle()
        while self.fault is None:
            if self.tx_state == POSTED:
                if not self._complete(self._tx):
                    return
                self._wrote()
                self.tx_state = SPENT
                continue
            if self.done >= self.total:
                self.finish()
                if not core.outbox.gather(self):
                    return
            if self.prompt and (now or self.tx_state == SPENT):
                if self._write_now():
                    continue
                if self.fault is not None:
                    return
            if self.tx_state != IDLE:
                return  # SPENT: its callback goes on
            pieces = self._point()
            _set_iov(self._tx, pieces, core.iov)
            atomically((setattr, self, "tx_state", POSTED), (_send, self.stream, self._tx))
            return

    def hold(self, frames: list[bytes], bodies: Sequence[bytes], total: int) -> None:
        """Have ``frames`` written next."""
        self.held = frames
        self.bodies = bodies
        self.done = 0
        self.total = total

    def finish(self) -> None:
        """Count what was held as written."""
        count = len(self.bodies)
        self.written += count
        self.bodies = ()
        self.held = []
        self.done = 0
        self.total = 0

    def _point(self) -> int:
        """Say from where the next bytes go; the number of pieces."""
        iov, skip, pieces = self.core.iov, self.done, 0
        for buffer in self.held:
            size = len(buffer)
            if skip >= size:
                skip -= size
                continue
            iov[pieces].iov_buf = _from_buffer(buffer) + skip if skip else _from_buffer(buffer)
            iov[pieces].iov_len = size - skip
            skip = 0
            pieces += 1
        return pieces

    def _wrote(self) -> None:
        size = _count(self._tx)
        if size:
            self.done += size
        else:
            self._failed(_result(self._tx))

    def _write_now(self) -> bool:
        """Write as much as finds room at once; False if that is nothing."""
        core = self.core
        aio = core.now
        core.settle()
        pieces = self._point()
        _set_iov(aio, pieces, core.iov)
        atomically((setattr, core, "writing", self), (_send, self.stream, aio))
        if _busy(aio):
            _cancel(aio)
            _wait(aio)
        return self.write_settled()

    def write_settled(self) -> bool:
        """Note what the operation on the core's aio wrote; for the core too, if it was cut short."""
        core = self.core
        size = _count(core.now)
        code = 0 if size else _result(core.now)
        if size:
            self.done += size
            core.writing = None
            return True
        core.writing = None
        if code != lib.NNG_ECANCELED:
            self._failed(code)
        return False

    # ------------------------------------------------------------------ the end

    def mend(self) -> None:
        """Go on where a signal handler that raised cut this thread short."""
        if self._reads and self.rx_state == IDLE and not self._rx_owed:
            self.advance()
        if self.tx_state == IDLE and self.fault is None:
            self.write(now=True)

    def written_now(self) -> int:
        """Return how many messages are written, those of the write under way too."""
        at, count = 0, 0
        for body in self.bodies:
            at += self.machine.cost(len(body))
            if at > self.done:
                break
            count += 1
        return count

    def unbegun(self) -> tuple[int, list[bytes]]:
        """Return how many messages being written have begun and are not complete, and those that have not begun."""
        at, begun = 0, 0
        for index, body in enumerate(self.bodies):
            if at >= self.done:
                return begun, list(self.bodies[index:])
            at += self.machine.cost(len(body))
            if at <= self.done:
                self.written += 1
            else:
                begun += 1
        return begun, []

    def where(self) -> str:
        """Return the address of the peer, or what both ends share where it has none."""
        if self.stage == CLOSED or not self.address.ported:
            return self.url
        return f"{self.address.scheme}://{streams.remote(self.stream) or 'unknown'}"

    def describe(self) -> Pipe:
        """Return what can be said of the other end. Without the lock, once it has said hello."""
        address, stream = self.address, self.stream
        where = self.where()
        request = getattr(self.machine, "request", None)
        path, origin = (request.path, request.origin) if request is not None else (None, None)
        pid = streams.peer_process(stream) if address.local else None
        dialed = self.dialer is not None
        if not address.tls:
            return Pipe(self.number, where, dialed, pid=pid, path=path, origin=origin)
        # NNG says "verified", too, where it was told not to look
        checked = self.core.verifies and streams.verified(stream)
        names = streams.common_name(stream), streams.alternative_names(stream)
        return Pipe(self.number, where, dialed, *names, verified=checked, pid=pid, path=path, origin=origin)

    def close(self) -> None:
        """Close the stream. What is under way ends, and its callbacks come."""
        if self.stage == CLOSED:
            return
        core = self.core
        core.settle()
        if self.tx_state == POSTED and self._complete(self._tx):
            self._wrote()  # the callback that would say so comes too late
            self.tx_state = SPENT
        last = b"".join(self.machine.said) + self.machine.end()  # a WebSocket says why, or good-bye
        if last and self.prompt and self.tx_state == IDLE and self.done >= self.total:
            self.hold([last], (), len(last))
            self._write_now()
        self.stage = CLOSED
        self.ending()
        if self.polled:
            core.poller.remove(self)  # before its descriptor is another's
        streams.close(self.stream)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._rx_owed and self.tx_state == IDLE:
            self.ended(self._rx, self._tx)
