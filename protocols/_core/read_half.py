"""Reading half of a connection: where received bytes go, and when the connection is read.

May not know: protocols, waiters.
"""

from __future__ import annotations

from typing import Any, Final

from nngkit.protocols._core.transfer import IDLE, JOINED, POSTED, RX, SHAKING, Transfer
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.library import ffi, lib, uninitialized
from nngkit.protocols._nng.operations import atomically

FIRST: Final = 4096  # bytes of the receive buffer of a quiet connection that is not polled
MOST: Final = 256 * 1024  # of a busy one, and of the buffer that polled connections share: larger is no faster
LEAST: Final = 16 * 1024  # bytes of one reception among many connections ...
AHEAD: Final = 16 * 1024 * 1024  # ... which together read ahead no more than this if all are held back
CHUNKS: Final = 8  # receptions in a row before other connections are read
BEHIND: Final = 4096  # bytes received after a large body: what follows mostly arrives with it

_count, _result, _busy = lib.nng_aio_count, lib.nng_aio_result, lib.nng_aio_busy
_cancel, _wait, _set_iov = lib.nng_aio_cancel, lib.nng_aio_wait, lib.nng_aio_set_iov
_receive = lib.nng_stream_recv
_from_buffer = ffi.from_buffer


class ReadHalf(Transfer):
    """Received bytes on their way to the machine and the inbox."""

    def __init__(self, stream: Any, descriptor: int | None, machine: Any, address: Address) -> None:
        super().__init__(stream, descriptor, machine, address)
        self._request_bytes: bytes | None = None
        self.fresh: list[Any] = []  # messages that were not unpacked yet
        self.looked = 0  # value of `machine.fed` at the last take
        self.seen = 0  # of the fresh messages, those that were unpacked
        self.taken_in = 0  # messages of the machine that were counted
        self.progress = (-1, 0)  # bytes and chunks at the last sweep for time limits
        self._rx = self.aio(RX)
        self.rx_state = IDLE
        self._rx_callback_due = False  # the callback of the last receive has not come
        self.polled = False
        self.peer_finished = False  # the peer sends no more: reading ends with what is there
        self._fed = 0
        self._size = FIRST
        self._buffer = uninitialized("char[]", FIRST)
        self._view = ffi.buffer(self._buffer)
        self._place: tuple[bytes, int] | None = None
        self._asked = 0  # bytes that the current reception may bring
        self._fed_short = False  # the last reception brought less than that
        self._large = False
        self._read_while_held = False
        self._receiving = False  # messages are taken: `on_peer` callbacks know of this peer

    def start_reading(self) -> None:
        """Take the messages that arrived with the hello and read on, by polling if the descriptor is known."""
        self._receiving = True
        self.core.inbox.take_from(self)
        if self.rx_state == IDLE and self.descriptor is not None and self.sync_io and self.core.poller.add(self):
            self.polled = True
            self._buffer = self._view = None  # the core's buffer is used instead
        self.advance()

    def advance(self, *, now: bool = False) -> None:
        """Take received messages and read on until nothing is left or the inbox holds this connection back.

        ``now``: read in this thread, which has nothing else to do, instead of leaving it to NNG's threads.
        """
        core = self.core
        if core.reading is not None or core.writing is not None:
            core.finish_interrupted()  # another thread was interrupted, and is about to release the lock
        if self.rx_state == POSTED:
            if not self._complete(self._rx):
                if self._read_while_held and core.inbox.take_from(self):
                    self._read_while_held = False
                return
            self._receive_done()
            self.rx_state = IDLE
        chunks = 0
        while self.fault is None:
            if not core.inbox.take_from(self):
                # held back: one more receive is made or left posted, to detect that the peer leaves
                if not self._read_while_held and not self._rx_callback_due:
                    if self.polled:
                        self._read_while_held = self._read_now()
                    else:
                        self._read_while_held = True
                        self.post()
                return
            self._read_while_held = False
            if self.fault is not None or self.stage != JOINED:
                return
            if self.polled:
                if chunks and self._fed_short and not self.peer_finished:
                    return  # nothing is left: the poller reports new data
                if chunks == CHUNKS:
                    core.poller.repeat(self)
                    return
            # The rest of a large body is mostly there; otherwise a vain operation would cost more than it saves.
            elif not (self.sync_io and (now or self._large or self._rx_callback_due)):
                break
            if not self._read_now():
                break
            chunks += 1
        if not self.polled and not self._rx_callback_due and self.fault is None:
            self.post()  # its callback continues

    def post(self) -> None:
        """Post a receive. Only while IDLE."""
        pieces = self._set_receive_buffers(self._buffer, self._size)
        _set_iov(self._rx, pieces, self.core.iov)
        atomically(
            (setattr, self, "rx_state", POSTED),
            (setattr, self, "_rx_callback_due", True),
            (_receive, self.stream, self._rx),
        )

    def _set_receive_buffers(self, buffer: Any, size: int) -> int:
        """Point the next receive at the machine's body or at ``buffer``; return the number of buffers."""
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
        # A large body is likely followed by another: read little of it into the buffer, which is copied, and the rest
        # in place.
        asked = min(BEHIND, size) if self._large else size
        iov[0].iov_buf = buffer
        iov[0].iov_len = asked
        self._asked = asked
        self._place = None
        return 1

    def _feed(self, size: int, view: Any) -> None:
        """Give the machine ``size`` received bytes; ``view`` is of the buffer given to ``_set_receive_buffers``."""
        machine = self.machine
        if machine.fed == self._fed:
            self.core.inbox.read(size)
            place = self._place
            if place is None:
                self._large = self._large and size == self._asked
                data = view[:size]
                if self._request_bytes is not None and self.stage == SHAKING:
                    self._request_bytes += data
                machine.feed(data)
            else:
                part = min(size, len(place[0]) - place[1])
                machine.fill(part, view[: size - part])
        self._fed = machine.fed

    def _grow(self) -> None:
        """Enlarge the buffer, which this reception filled."""
        size = min(self._size * 4, MOST)
        self._buffer = uninitialized("char[]", size)
        self._view = ffi.buffer(self._buffer)
        self._size = size

    def _receive_done(self) -> None:
        size = _count(self._rx)
        if size:
            self._feed(size, self._view)
            if self._place is None and size == self._size < MOST:
                self._grow()
        elif (code := _result(self._rx)) != lib.NNG_ECANCELED:
            self._failed(code)

    def _read_now(self) -> bool:
        """Read without waiting; return False if there is nothing."""
        core = self.core
        aio = core.sync_aio
        core.finish_interrupted()
        if self.polled:
            pieces = self._set_receive_buffers(core.buffer, max(LEAST, min(MOST, AHEAD // (len(core.present) or 1))))
        else:
            pieces = self._set_receive_buffers(self._buffer, self._size)
        _set_iov(aio, pieces, core.iov)
        atomically((setattr, core, "reading", self), (_receive, self.stream, aio))
        if _busy(aio):
            _cancel(aio)
            _wait(aio)
        return self.finish_read()

    def finish_read(self) -> bool:
        """Take what the operation on the core's aio brought; called by the core too, after an interruption."""
        core = self.core
        size = _count(core.sync_aio)
        if size:
            self._feed(size, core.view if self.polled else self._view)
            self._fed_short = size < self._asked
            core.reading = None
            return True
        code = _result(core.sync_aio)
        core.reading = None
        if code != lib.NNG_ECANCELED:
            self._failed(code)
        return False

    def progress_made(self) -> tuple[int, int]:
        """Return a value that changes when bytes arrive."""
        place = self.machine.place()
        return self.machine.fed, 0 if place is None else place[1]
