"""Writing half of a connection: the messages being written, and how far.

May not know: protocols, waiters.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from nngkit.protocols._core.transfer import COMPLETED, IDLE, POSTED, TX, Transfer
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.library import IOVS, ffi, lib
from nngkit.protocols._nng.operations import atomically

CHUNK: Final = 64 * 1024  # bytes of messages in one write
APART_LIMIT: Final = 32 * 1024  # bytes from which a machine may leave a body in a buffer of its own

_count, _result, _busy = lib.nng_aio_count, lib.nng_aio_result, lib.nng_aio_busy
_cancel, _wait, _set_iov = lib.nng_aio_cancel, lib.nng_aio_wait, lib.nng_aio_set_iov
_send = lib.nng_stream_send
_from_buffer = ffi.from_buffer


class WriteHalf(Transfer):
    """Messages on their way to one peer."""

    def __init__(self, stream: Any, descriptor: int | None, machine: Any, address: Address) -> None:
        super().__init__(stream, descriptor, machine, address)
        self.out: list[bytes] = []  # messages for this peer alone
        self.out_bytes = 0
        self.bodies: Sequence[bytes] = ()  # messages being written ...
        self.held: list[bytes] = []  # ... and their frames
        self.done = 0  # bytes of the frames that were written
        self.total = 0
        self._passed = (0, 0)  # frames that are written completely, and their bytes
        self._tx = self.aio(TX)
        self.tx_state = IDLE
        self.written = 0
        self.last_queued_at = 0.0  # perf_counter() at which a message was last queued for this peer alone
        self.dropped = 0
        self.stalled = False

    def progress_written(self) -> tuple[int, int]:
        """Return a value that changes when bytes are written."""
        return self.written, self.done

    @property
    def writing(self) -> bool:
        """True while a write to this peer is in progress."""
        return self.tx_state != IDLE or self.done < self.total

    def write(self, *, now: bool) -> None:
        """Write the queued messages of this peer. ``now``: on this thread, as far as the kernel takes them at once."""
        try:
            self._write(now)
        except Exception as wrong:  # of ours: the thread of one connection writes to others too
            self.crash(wrong)

    def _write(self, now: bool) -> None:
        core = self.core
        if core.reading is not None or core.writing is not None:
            core.finish_interrupted()
        while self.fault is None:
            if self.tx_state == POSTED:
                if not self._complete(self._tx):
                    return
                self._send_done()
                self.tx_state = COMPLETED
                continue
            if self.done >= self.total:
                self.finish()
                if not core.outbox.next_write(self):
                    return
            if self.sync_io and (now or self.tx_state == COMPLETED):
                if self._write_now():
                    continue
                if self.fault is not None:
                    return
            if self.tx_state != IDLE:
                return  # COMPLETED: its callback continues
            pieces = self._set_send_buffers()
            _set_iov(self._tx, pieces, core.iov)
            atomically((setattr, self, "tx_state", POSTED), (_send, self.stream, self._tx))
            return

    def hold(self, frames: list[bytes], bodies: Sequence[bytes], total: int) -> None:
        """Write ``frames`` next."""
        self.held = frames
        self.bodies = bodies
        self.done = 0
        self.total = total

    def finish(self) -> None:
        """Count the messages being written as written."""
        count = len(self.bodies)
        self.written += count
        self.bodies = ()
        self.held = []
        self.done = 0
        self.total = 0

    def _set_send_buffers(self) -> int:
        """Point the next send at unwritten bytes, in at most IOVS buffers; return the number of buffers."""
        iov, held, done, pieces = self.core.iov, self.held, self.done, 0
        index, at = self._passed if 0 < self._passed[1] <= done else (0, 0)  # less is done: it is another write
        while index < len(held) and at + len(held[index]) <= done:
            at += len(held[index])
            index += 1
        self._passed = index, at
        skip = done - at
        for buffer in itertools.islice(held, index, index + IOVS):
            iov[pieces].iov_buf = _from_buffer(buffer) + skip
            iov[pieces].iov_len = len(buffer) - skip
            skip = 0
            pieces += 1
        return pieces

    def _send_done(self) -> None:
        size = _count(self._tx)
        if size:
            self.done += size
        else:
            self._failed(_result(self._tx))

    def _write_now(self) -> bool:
        """Write as much as the kernel takes at once; return False if that is nothing."""
        core = self.core
        aio = core.sync_aio
        core.finish_interrupted()
        pieces = self._set_send_buffers()
        _set_iov(aio, pieces, core.iov)
        atomically((setattr, core, "writing", self), (_send, self.stream, aio))
        if _busy(aio):
            _cancel(aio)
            _wait(aio)
        return self.finish_write()

    def finish_write(self) -> bool:
        """Note what the operation on the core's aio wrote; called by the core too, after an interruption."""
        core = self.core
        size = _count(core.sync_aio)
        code = 0 if size else _result(core.sync_aio)
        if size:
            self.done += size
            core.writing = None
            return True
        core.writing = None
        if code != lib.NNG_ECANCELED:
            self._failed(code)
        return False

    def written_now(self) -> int:
        """Return how many messages of the write in progress are written."""
        at, count = 0, 0
        for body in self.bodies:
            at += self.machine.wire_size(len(body))
            if at > self.done:
                break
            count += 1
        return count

    def progress_of_write(self) -> tuple[int, int, list[bytes]]:
        """Return the number of messages that were written, of those partly written, and the others."""
        at, written, begun = 0, 0, 0
        for index, body in enumerate(self.bodies):
            if at >= self.done:
                return written, begun, list(self.bodies[index:])
            at += self.machine.wire_size(len(body))
            if at <= self.done:
                written += 1
            else:
                begun += 1
        return written, begun, []
