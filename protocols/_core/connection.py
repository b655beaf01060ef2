"""One connection: its stream, its machine (SP or WebSocket), its handshake and its end.

::

    rx, tx     at most one operation each: IDLE -> POSTED -> IDLE. NNG's callback sets it IDLE and continues; a thread
               that finds it complete earlier continues in the callback's place
    sync_aio   the same operation, tried at once on the core's aio without a callback and cancelled if it would wait:
               no NNG thread is involved while there is data to read or room to write (not under TLS)
    polled     the core's poller reports received data and `sync_aio` reads it; no receive is posted then

    SHAKING -> ASKING -> JOINED -> CLOSED      hello (or HTTP), then `admit`, then messages

Unless they say otherwise, methods are called with the core's lock held. A signal handler that raises in the main thread
may interrupt any of them. So state changes in statements without calls, and an operation is posted and noted in one
call into C: calling the method again continues where it was interrupted.

May not know: protocols, waiters.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nngkit.errors import BadMessage, TooLarge
from nngkit.protocols._core.pipe import Pipe
from nngkit.protocols._core.read_half import ReadHalf
from nngkit.protocols._core.transfer import ASKING, CLOSED, COMPLETED, IDLE, POSTED, RX, SHAKING, TX
from nngkit.protocols._core.write_half import WriteHalf
from nngkit.protocols._nng import streams
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.operations import atomically
from nngkit.protocols._wire.tcp_info import Answers
from nngkit.protocols.routing import PRIORITY

if TYPE_CHECKING:
    from nngkit.protocols._core.core import Core


class Connection(ReadHalf, WriteHalf):
    """Both halves of a connection, with its handshake."""

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
        self.url = url  # the shared address, for transports without one for each peer
        self.dialer = dialer
        self.priority = PRIORITY if dialer is None else dialer.priority
        self._listener = listener
        if listener is not None and address.web and listener.shares:
            self._request_bytes = b""
        # read now: it is gone when the peer is
        there = streams.remote(stream, mapped=address.version == 6) if address.ported else None
        self._where = f"{address.scheme}://{there or 'unknown'}" if address.ported else url
        self.since = time.monotonic()
        self.pipe: Pipe | None = None
        self.answers: Answers | None = None  # of the peer's kernel
        self._freed = False  # the stream was closed and freed

    def __repr__(self) -> str:
        state = f"stage {self.stage}, receive {self.rx_state}, send {self.tx_state}, callback {self._rx_callback_due}"
        return f"<Connection {self.number} {self.url}: {state}>"

    # ------------------------------------------------------------------ callbacks, on NNG's threads

    def start(self, received: bytes) -> None:
        """Send our hello and wait for the peer's, of which ``received`` was read. Called without the lock."""
        core = self.core
        with core.lock:
            if self.stage != SHAKING:
                return
            try:
                if received:
                    self.machine.feed(received)
                    self._fed = self.machine.fed
                    self._handshake()
                else:
                    self.write(now=True)
                    if self.fault is None:
                        self.post()
            except Exception as wrong:
                self.crash(wrong)
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
            # changed first: no callback is due, whatever follows
            if which == RX:
                self._rx_callback_due = False
                posted, self.rx_state = self.rx_state == POSTED, IDLE
            else:
                posted, self.tx_state = self.tx_state == POSTED, IDLE
            if self.stage == CLOSED:
                self._end_if_idle()
                return
            try:
                if which == TX:
                    if posted:
                        self._send_done()
                    self.write(now=False)
                    core.outbox.resume_waiting()
                else:
                    if posted:
                        self._receive_done()
                    if self.stage == SHAKING:
                        owner = self._path_listener()
                        if owner is None:
                            self._handshake()
                    elif self._receiving:
                        self.advance()
            except Exception as wrong:
                self.crash(wrong)
            if self.fault is not None:
                core.lose(self)
            asking = self.stage == ASKING and which == RX
        if owner is not None:
            owner.handed_off(self.stream, self.descriptor, owner, self._request_bytes)
        elif asking:
            core.complete_handshake(self)
        core.notify()

    def _path_listener(self) -> Any:
        """Return the listener of another socket that serves the requested path, and give it the stream; else None."""
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
        """End without closing the stream, which another connection continues."""
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
                self.post()  # NNG detects that a TLS peer left only while a receive is posted
        else:
            self.post()

    # ------------------------------------------------------------------ the end

    def resume(self) -> None:
        """Continue where a signal handler that raised interrupted this thread."""
        if self.polled:
            self.core.poller.repeat(self)  # it may have come after the poller's report, and before the reading
        if self._receiving and self.rx_state == IDLE and not self._rx_callback_due:
            self.advance()
        if self.tx_state == IDLE and self.fault is None:
            self.write(now=True)

    def where(self) -> str:
        """Return the address of the peer, or the shared address if the transport has none for each peer."""
        return self._where

    def describe(self) -> Pipe:
        """Return the Pipe of this connection. Called without the lock, after the peer's hello."""
        address, stream, where = self.address, self.stream, self._where
        request = getattr(self.machine, "request", None)
        path, origin = (request.path, request.origin) if request is not None else (None, None)
        pid = streams.peer_process(stream) if address.local else None
        dialed = self.dialer is not None
        if not address.tls:
            return Pipe(self.number, where, dialed, pid=pid, path=path, origin=origin)
        # NNG reports "verified" even if it was configured not to verify
        checked = self.core.verifies and streams.verified(stream)
        names = streams.common_name(stream), streams.alternative_names(stream)
        return Pipe(self.number, where, dialed, *names, verified=checked, pid=pid, path=path, origin=origin)

    def close(self) -> None:
        """Close the stream. Operations in progress end, and their callbacks follow."""
        core = self.core
        if self.stage != CLOSED:
            core.finish_interrupted()
            if self.tx_state == POSTED and self._complete(self._tx):
                self._send_done()  # its callback would come too late
                self.tx_state = COMPLETED
            try:
                self._say_goodbye()
            except Exception as wrong:
                self.crash(wrong)
            self.stage = CLOSED
        self.ending()
        if self.polled:
            core.poller.remove(self)  # before another file gets its descriptor
        if not self._freed:
            core.watch.end(self)
            atomically((setattr, self, "_freed", True), *streams.closing(self.stream))
        self._end_if_idle()

    def _say_goodbye(self) -> None:
        if self.crashed:
            return
        last = b"".join(self.machine.to_send) + self.machine.end()  # a WebSocket sends a close frame
        if last and self.sync_io and self.tx_state == IDLE and self.done >= self.total:
            self.hold([last], (), len(last))
            self._write_now()

    def _end_if_idle(self) -> None:
        if not self._rx_callback_due and self.tx_state == IDLE:
            self.ended(self._rx, self._tx)
