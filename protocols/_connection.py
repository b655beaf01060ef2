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
from typing import TYPE_CHECKING, Any

from nngkit.errors import BadMessage, TooLarge

from . import _streams as streams
from ._addresses import Address
from ._pipe import Pipe
from ._read_half import ReadHalf
from ._transfer import ASKING, CLOSED, COMPLETED, IDLE, POSTED, RX, SHAKING, TX
from ._write_half import WriteHalf

if TYPE_CHECKING:
    from ._core import Core


class Connection(ReadHalf, WriteHalf):
    """See above."""

    core: Core

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
        super().__init__(stream, descriptor, machine, address)
        self.core = core
        self.url = url  # what both ends share, where they do not know each other by address
        self.dialer = dialer
        self._listener = listener
        if listener is not None and address.web and listener.shares:
            self._request_bytes = b""
        self.since = time.monotonic()
        self.pipe: Pipe | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.number} {self.url}>"

    # ------------------------------------------------------------------ callbacks, on NNG's threads

    def start(self, received: bytes) -> None:
        """Say hello, and wait for the peer's, of which ``received`` has come. Without the lock."""
        core = self.core
        with core.lock:
            if self.stage != SHAKING:
                return
            if received:
                self.machine.feed(received)
                self._fed = self.machine.fed
                self._handshake()
            else:
                self.write(now=True)
                if self.fault is None:
                    self.post()
            if self.fault is not None:
                core.lose(self)
            asking = self.stage == ASKING
        if asking:
            core.complete_handshake(self)
        core.notify()

    def completed(self, which: int) -> None:
        core = self.core
        owner = None
        with core.lock:
            if which == RX:
                self._rx_callback_due = False
                if self.rx_state == POSTED:
                    if self.stage != CLOSED:
                        self._receive_done()
                    self.rx_state = IDLE
            else:
                if self.tx_state == POSTED and self.stage != CLOSED:
                    self._send_done()
                self.tx_state = IDLE
            if self.stage == CLOSED:
                self._end_if_idle()
                return
            if which == TX:
                self.write(now=False)
                core.outbox.resume_waiting()
            elif self.stage == SHAKING:
                owner = self._path_listener()
                if owner is None:
                    self._handshake()
            elif self._receiving:
                self.advance()
            if self.fault is not None:
                core.lose(self)
            asking = self.stage == ASKING and which == RX
        if owner is not None:
            owner.handed_off(self.stream, self.descriptor, owner, self._request_bytes)
        elif asking:
            core.complete_handshake(self)
        core.notify()

    def _path_listener(self) -> Any:
        """The listener whose path is asked for, if it is another socket's; the stream is then no longer ours."""
        if self._request_bytes is None or self.fault is not None:
            return None
        lines, end, _ = self._request_bytes.partition(b"\r\n\r\n")
        if not end:
            return None
        words = lines.split(b" ", 2)
        path = words[1].partition(b"?")[0].decode("latin-1") if len(words) == 3 else ""
        owner = self._listener.listener_for(path or "/")
        if owner is not None:
            self.core.hand_off(self)
        return owner

    def detach(self) -> None:
        """End without closing the stream, which goes on elsewhere."""
        self.stage = CLOSED
        self.ending()
        self._end_if_idle()

    def _handshake(self) -> None:
        machine, wrong = self.machine, None
        if self.fault is not None:
            return
        try:
            machine.take(self.fresh, 0)
        except (BadMessage, TooLarge) as found:
            wrong = found
        if machine.to_send:
            self.write(now=True)
        if wrong is not None:
            self.fault = wrong
            return
        if self.fault is not None:
            return
        if machine.ended:
            self.fault = "handshake refused"
        elif machine.open or machine.awaits_accept:
            self.stage = ASKING
            if self.address.tls:
                self.post()  # NNG does not notice that a TLS peer leaves while nothing is posted
        else:
            self.post()

    # ------------------------------------------------------------------ the end

    def resume(self) -> None:
        """Go on where a signal handler that raised cut this thread short."""
        if self._receiving and self.rx_state == IDLE and not self._rx_callback_due:
            self.advance()
        if self.tx_state == IDLE and self.fault is None:
            self.write(now=True)

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
        core.finish_interrupted()
        if self.tx_state == POSTED and self._complete(self._tx):
            self._send_done()  # the callback that would say so comes too late
            self.tx_state = COMPLETED
        last = b"".join(self.machine.to_send) + self.machine.end()  # a WebSocket says why, or good-bye
        if last and self.sync_io and self.tx_state == IDLE and self.done >= self.total:
            self.hold([last], (), len(last))
            self._write_now()
        self.stage = CLOSED
        self.ending()
        if self.polled:
            core.poller.remove(self)  # before its descriptor is another's
        streams.close(self.stream)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._rx_callback_due and self.tx_state == IDLE:
            self.ended(self._rx, self._tx)
