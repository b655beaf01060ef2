"""One connection: its stream, its machine (SP or WebSocket), its handshake, its reading and writing, and its end.

::

    rx, tx     at most one operation each: IDLE -> POSTED -> IDLE. NNG's callback sets it IDLE and continues; a thread
               that finds it complete earlier continues in the callback's place
    direct     a socket of Python's on the descriptor of NNG's stream: one system call reads or writes at once. The
               poller reports received data, and no receive is posted; a write that finds no room is AWAITING it, which
               the reader thread reports
    sync_aio   without a known descriptor: the operation of NNG, tried at once on the socket's aio without a callback,
               and cancelled if it would wait
    tls        what is received is decrypted for the machine at once; of its frames, parts of CHUNK bytes are encrypted
               when the part before is sent. OpenSSL computes a step of the handshake without the lock (``_computing``):
               it takes a millisecond, in which the other connections are read and written

    SHAKING -> ASKING -> JOINED -> CLOSED      hello (or HTTP), then `admit`, then messages

A reception that is one whole small message passes by the machine (`read_small`), and so does a message for an idle peer
that one system call writes (`send_small`).

Unless they say otherwise, methods are called with the lock held. A signal handler that raises in the main thread may
interrupt any of them. So state changes in statements without calls, and an operation is posted and noted in one call
into C: calling the method again continues where it was interrupted. A direct operation is noted in the body of a `for`
statement over an iterator in C, as the interpreter runs no handler between its result and the next call.

May not know: protocols, waiters.
"""

from __future__ import annotations

import itertools
import logging
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from socket import SO_SNDBUF, SOL_SOCKET, SocketType
from ssl import SSLError, SSLWantReadError
from typing import Any, Final

from nngkit.errors import AccessDenied, BadMessage, Broken, NngkitError, TooLarge
from nngkit.protocols._core import direct
from nngkit.protocols._core.direct import NO_SIGNAL, SHORT, code_of, socket_on
from nngkit.protocols._core.identity import Peer
from nngkit.protocols._core.pipe import Pipe
from nngkit.protocols._core.pool import pool
from nngkit.protocols._core.state import BUFFER, State
from nngkit.protocols._nng import descriptors, streams
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.library import IOVS, ffi, lib, strerror, uninitialized
from nngkit.protocols._nng.operations import Owner, atomically
from nngkit.protocols._shm.link import Link
from nngkit.protocols._waiting.faults import check_ours, internal
from nngkit.protocols._wire.tcp_info import Answers
from nngkit.protocols._wire.tls_layer import OVERHEAD, RECORD, Certificate, Layer, trouble
from nngkit.protocols._wire.ws_handshake import refusal as web_refusal
from nngkit.protocols.routing import PRIORITY
from nngkit.protocols.sp import LENGTHS, Machine, refusal

log = logging.getLogger("nngkit.protocols")

RX: Final = 0
TX: Final = 1
IDLE, POSTED, COMPLETED, AWAITING = 0, 1, 2, 3
SHAKING, ASKING, JOINED, CLOSED = 0, 1, 2, 3

FIRST: Final = 4096  # bytes of the receive buffer of a quiet connection that is not polled
LEAST: Final = 16 * 1024  # bytes of one reception among many connections ...
AHEAD: Final = 16 * 1024 * 1024  # ... which together read ahead no more than this if all are held back
CHUNKS: Final = 8  # receptions in a row before other connections are read
BEHIND: Final = 4096  # bytes received after a large body: what follows mostly arrives with it
CHUNK: Final = 64 * 1024  # bytes of messages in one write
PIECES: Final = 64  # buffers of one direct write; the system takes 1,024
SMALL: Final = 4096  # bytes below which a message does not count towards a window, and may pass by the queues
LONG: Final = 16 * 1024  # bytes of large messages, which no thread of NNG continues: each part would cost two turns
# Bytes of the send buffer of a Unix socket that large messages have filled once; the system may allow fewer. With its
# default of 208 KiB, a message of 1 MiB waits five times for the reader. TCP enlarges its own.
ROOM: Final = 1 << 20

_count, _result, _busy = lib.nng_aio_count, lib.nng_aio_result, lib.nng_aio_busy
_cancel, _wait, _set_iov = lib.nng_aio_cancel, lib.nng_aio_wait, lib.nng_aio_set_iov
_receive, _send = lib.nng_stream_recv, lib.nng_stream_send
_from_buffer = ffi.from_buffer


class Connection(Owner):
    """A connection of a socket. ``fault``: why it must end; the thread that finds it set calls ``state.lose``."""

    def __init__(
        self,
        state: State[Connection],
        stream: Any,
        descriptor: int | None,
        tls: Layer | None,
        machine: Any,
        address: Address,
        url: str,
        dialer: Any,
        listener: Any,
    ) -> None:
        super().__init__()
        self._state = state
        self.stream = stream
        self.descriptor = descriptor  # None if unknown
        self.tls = tls
        self._has_turn = False  # its handshake of TLS need not wait for others
        self._computing = False  # OpenSSL is in a step of the handshake: no other thread may use `tls`
        self.machine = machine
        self.address = address
        self.url = url  # the shared address, for transports without one for each peer
        self.dialer = dialer
        self.priority = PRIORITY if dialer is None else dialer.priority
        self.listener = listener
        self._request_bytes = b"" if listener is not None and address.web and listener.shares else None
        # read now: it is gone when the peer is
        there = streams.remote(stream, descriptor, mapped=address.version == 6) if address.ported else None
        self._where = f"{address.scheme}://{there or 'unknown'}" if address.ported else url
        self.stage = SHAKING
        self.fault: str | NngkitError | None = None
        self.heard = False  # `fault` is a refusal by the peer
        self.crashed = False
        self.host: str | None = None  # of an accepted peer, if that is not this machine
        self.since = time.monotonic()
        self.pipe: Pipe | None = None
        self.peer: Peer | None = None  # once it is let in
        self.link: Link | None = None  # side channel of a connection with shared memory
        self.answers: Answers | None = None  # of the peer's kernel
        self._freed = False  # the stream was closed and freed
        # reading
        self.fresh: list[Any] = []  # messages that were not unpacked yet
        self.looked = 0  # value of `machine.fed` at the last take
        self.seen = 0  # of the fresh messages, those that were unpacked
        self.taken_in = 0  # messages of the machine that were counted
        self.progress = (-1, 0)  # bytes and chunks at the last sweep for time limits
        self._rx = self.aio(RX)
        self.rx_state = IDLE
        self._rx_callback_due = False  # the callback of the last receive has not come
        self.direct: SocketType | None = None
        self._arrivals: Iterator[int] = iter(())  # sizes of direct receptions into the state's buffer, without end
        self._openings: Iterator[int] = iter(())  # sizes of what is decrypted into the same buffer, without end
        self.polled = False
        self._can_be_small = False  # read directly, with the framing of SP
        self.small = False  # nothing incomplete or untaken is here: what arrives next may be one whole message
        self.peer_finished = False  # the peer sends no more: reading ends with what is there
        self._fed = 0
        self._size = FIRST
        self._buffer = uninitialized("char[]", FIRST)
        self._view = ffi.buffer(self._buffer)
        self._place: tuple[bytes, int] | None = None
        self._chain: list[bytes] = []  # buffers after it
        self._asked = 0  # bytes that the current reception may bring
        self._fed_short = False  # the last reception brought less than that
        self._large = False
        self._read_while_held = False
        self._receiving = False  # messages are taken: `on_peer` callbacks know of this peer
        # writing
        self.out: list[bytes] = []  # messages for this peer alone
        self.out_bytes = 0
        self.bodies: Sequence[bytes] = ()  # messages being written ...
        self.held: list[bytes] = []  # ... and their frames
        self.done = 0  # bytes of the frames that were written
        self.sealed = 0  # under TLS: of the frames, bytes that were encrypted
        self.total = 0
        self._passed = (0, 0)  # frames that are written completely, and their bytes
        self._tx = self.aio(TX)
        self.tx_state = IDLE
        self.awaited = False  # it has once been AWAITING
        self._enlarged = not address.local  # its send buffer was made as large as ROOM, or is not to be
        self.written = 0
        self.last_queued_at = 0.0  # perf_counter() at which a message was last queued for this peer alone
        self.dropped = 0
        self.stalled = False

    def __repr__(self) -> str:
        state = f"stage {self.stage}, receive {self.rx_state}, send {self.tx_state}, callback {self._rx_callback_due}"
        return f"<Connection {self.number} {self.url}: {state}>"

    # ------------------------------------------------------------------ callbacks, on NNG's threads

    def start(self, received: bytes) -> None:
        """Send our hello and wait for the peer's, of which ``received`` was read. Called without the lock."""
        state = self._state
        with state.lock:
            if self.stage != SHAKING:
                return
            try:
                if received:
                    self.machine.feed(received)
                    if self.tls is None:
                        self._fed = self.machine.fed
                    else:
                        self._fed, self.tls.machine_fed = self.tls.fed, self.machine.fed
                    self._handshake()
                else:
                    if self.tls is not None and self.dialer is not None:
                        self.tls.shake()
                    self.write(now=True)
                    if self.fault is None:
                        self.post()
            except Exception as wrong:
                self.crash(wrong)
            if self.fault is not None:
                state.lose(self)
            asking = self.stage == ASKING
        if asking:
            state.complete_handshake(self)
        state.notify()

    def completed(self, which: int) -> None:
        state = self._state
        steps = False
        with state.lock:
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
                    state.outbox.resume_waiting()
                    state.inbox.wrote(self)
                else:
                    if posted:
                        self._receive_done()
                    if self.stage == SHAKING:
                        steps = not self._waits_its_turn()
                        self._computing = steps and self._must_compute()
                    elif self._receiving:
                        self.advance()
            except Exception as wrong:
                self.crash(wrong)
            if self.fault is not None and not steps:
                state.lose(self)
        if steps:
            self._step()
        else:
            state.notify()

    def _must_compute(self) -> bool:
        return self.tls is not None and not self.tls.open and self.fault is None

    def _step(self) -> None:
        """Continue the handshake, after OpenSSL's part of it if that is ``_computing``. Called without the lock."""
        state, owner = self._state, None
        wrong: Exception | None = None
        computed = self._computing
        if computed:
            assert self.tls is not None
            try:
                self.tls.shake()
            except Exception as found:
                wrong = found
        with state.lock:
            self._computing = False
            asking = False
            if self.stage == SHAKING:  # else it was closed meanwhile
                try:
                    owner = self._shake(computed, wrong)
                except Exception as broken:
                    self.crash(broken)
                if self.fault is not None:
                    state.lose(self)
                asking = self.stage == ASKING
        if owner is not None:
            owner.handed_off(self.stream, self.descriptor, owner, self._request_bytes, self.tls)
        elif asking:
            state.complete_handshake(self)
        state.notify()

    def _shake(self, computed: bool, wrong: Exception | None) -> Any:
        """Continue the handshake; return the listener that takes it over, if another one serves the path.

        ``computed``: OpenSSL has done its part of the step, and has failed by ``wrong`` unless that is None.
        """
        if not self._has_tls(computed, wrong):
            return None
        owner = self._path_listener()
        if owner is None:
            self._handshake()
        return owner

    def _waits_its_turn(self) -> bool:
        """Return True if the first step of TLS, which costs most, has to wait as too many handshakes fail."""
        if self.tls is None or self.listener is None or self._has_turn or self.fault is not None:
            return False
        self._has_turn = True
        return bool(self.listener.postpone(self.host, self.proceed))

    def proceed(self) -> bool:
        """Continue a handshake that waited its turn; return False if it has ended. Called without the lock."""
        state = self._state
        with state.lock:
            if self.stage != SHAKING:
                return False
            left = self.descriptor is not None and descriptors.ask(self.descriptor, descriptors.has_left)
            if left:
                state.lose(self, "the peer closed")
            else:
                self._computing = self._must_compute()
        if left:
            state.notify()
        else:
            self._step()
        return not left

    def _path_listener(self) -> Any:
        """Return the listener of another socket that serves the requested path, and give it the stream; else None."""
        if self._request_bytes is None or self.fault is not None:
            return None
        lines, end, _ = self._request_bytes.partition(b"\r\n\r\n")
        if not end:
            return None
        words = lines.split(b" ", 2)
        path = words[1].partition(b"?")[0].decode("latin-1") if len(words) == 3 else ""
        owner = self.listener.listener_for(path or "/")
        if owner is not None:
            self._state.handshaking.pop(self.number, None)
            pool.leave(self.number)
            self._detach()
        return owner

    def _detach(self) -> None:
        """End without closing the stream, which another connection continues."""
        self.stage = CLOSED
        self.ending()
        self._end_if_idle()

    def _has_tls(self, computed: bool, wrong: Exception | None) -> bool:
        """Return True if there is none or its handshake is complete, which is continued."""
        tls = self.tls
        if tls is None or not computed:
            return tls is None or tls.open
        if wrong is not None:
            if not isinstance(wrong, NngkitError):
                raise wrong
            self.fault = wrong  # `close` sends the alert
            self._state.identity.refused(self.where(), wrong)
            return False
        if self.fault is None:
            if tls.open and not self._let_in():
                return False
            self._decrypt()  # what came with the end of the handshake
            self.write(now=True)
            if self.fault is None and not tls.open:
                self.post()
        return tls.open

    def _let_in(self) -> bool:
        """Decide on a peer by its pass, before it hears anything; return False if it is refused."""
        try:
            self.peer = self._state.identity.of(self.address, self.stream, self.tls, self._where)
        except AccessDenied as denied:
            self.machine.to_send = []
            if self.dialer is None:
                self._tell(str(denied))
            self.fault = denied
            return False
        return True

    def _tell(self, why: str) -> None:
        """Say in place of the hello why a peer is refused; `close` sends it. Strangers of the web hear nothing."""
        if not self.address.web:
            self.machine.to_send = [refusal(why)]
        elif self.tls is not None and not self.tls.guests:
            self.machine.to_send = [web_refusal(403, why)]

    def _handshake(self) -> None:
        machine, wrong = self.machine, None
        if self.fault is not None and (self.tls is None or isinstance(self.fault, NngkitError)):
            return  # else the peer has closed under TLS: what it said before may tell why
        try:
            machine.take(self.fresh, 0)
        except (BadMessage, TooLarge, AccessDenied) as found:
            wrong = found
        if machine.to_send:
            self.write(now=True)
        if wrong is not None:
            self.heard = isinstance(wrong, AccessDenied)
            self.fault = wrong
            return
        if self.fault is not None:
            return
        if machine.ended:
            self.fault = "handshake refused"
        elif machine.open or machine.awaits_accept:
            self.stage = ASKING
        else:
            self.post()

    # ------------------------------------------------------------------ reading

    def start_reading(self) -> None:
        """Take the messages that arrived with the hello and read on, by polling if the descriptor is known."""
        self._receiving = True
        self._state.inbox.take_from(self)
        if self.rx_state == IDLE and self.descriptor is not None and self._state.poller.add(self):
            self.polled = True
            self._buffer = self._view = None  # the state's buffer is used instead
            self._open_direct()
        self.advance()

    def _open_direct(self) -> None:
        """Read and write by a socket of Python's from now on."""
        if not direct.enabled or self.descriptor is None:
            return
        try:
            # in a `for` statement: a signal handler that raised before it is noted would let it close NNG's descriptor
            for found in map(operator.call, (socket_on(self.descriptor),)):
                self.direct = found
            most = SHORT if self.tls is None else SHORT + OVERHEAD  # a message of one record must not fill it
            self._arrivals = iter(partial(found.recv_into, self._state.view, most), None)
            if self.tls is not None:
                self._openings = iter(partial(self.tls.read, SHORT, self._state.view), None)
            self._can_be_small = isinstance(self.machine, Machine)
        except OSError as wrong:
            check_ours(wrong)  # else it is no stream socket, or closed: NNG reads and writes

    def read_on(self, *, now: bool = False, read: bool = False) -> None:
        """Like ``advance``, and lose this connection if it has ended."""
        try:
            self.advance(now=now, read=read)
        except Exception as wrong:
            self.crash(wrong)
        if self.fault is not None:
            self._state.lose(self)

    def advance(self, *, now: bool = False, read: bool = False) -> None:
        """Take received messages and read on until nothing is left or the inbox holds this connection back.

        ``now``: read in this thread, which has nothing else to do, instead of leaving it to NNG's threads. ``read``:
        the machine was just fed with a reception.
        """
        state = self._state
        if state.reading is not None or state.writing is not None:
            finish_interrupted(state)  # another thread was interrupted, and is about to release the lock
        if self.rx_state == POSTED:
            if not _complete(self._rx):
                if self._read_while_held and state.inbox.take_from(self):
                    self._read_while_held = False
                return
            self._receive_done()
            self.rx_state = IDLE
        chunks = 1 if read else 0
        while self.fault is None:
            if not state.inbox.take_from(self):
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
                    self._note_empty()
                    return
                if chunks == CHUNKS:
                    state.poller.repeat(self)
                    return
            # The rest of a large body is mostly there; otherwise a vain operation would cost more than it saves.
            elif not (now or self._large or self._rx_callback_due):
                break
            if not self._read_now():
                self._note_empty()
                break
            chunks += 1
        if not self.polled and not self._rx_callback_due and self.fault is None:
            self.post()  # its callback continues

    def _note_empty(self) -> None:
        """Note that nothing is left to read and to take; the poller reports new data."""
        self.small = self._can_be_small and not self._large and not self.machine.begun

    def post(self) -> None:
        """Post a receive. Only while IDLE."""
        pieces = self._set_receive_buffers(self._buffer, self._size)
        _set_iov(self._rx, pieces, self._state.iov)
        atomically(
            (setattr, self, "rx_state", POSTED),
            (setattr, self, "_rx_callback_due", True),
            (_receive, self.stream, self._rx),
        )

    def _set_receive_buffers(self, buffer: Any, size: int) -> int:
        """Point the next receive at the machine's body or at ``buffer``; return the number of buffers."""
        iov, place = self._state.iov, self._place_to_receive()
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

    def _place_to_receive(self) -> tuple[bytes, int] | None:
        """Return a body of the machine to receive into, and how many of its bytes are there; None to feed it."""
        return self.machine.place() if self.tls is None else None

    def _feed(self, size: int, view: Any) -> None:
        """Give the machine ``size`` received bytes; ``view`` is of the buffer given to ``_set_receive_buffers``."""
        machine, tls = self.machine, self.tls
        if tls is not None:
            if tls.fed == self._fed:
                self._state.inbox.read(size)
                tls.feed(view[:size])
            self._decrypt()
            self._fed = tls.fed
            return
        if machine.fed == self._fed:
            self._state.inbox.read(size)
            place = self._place
            if place is None:
                self._large = self._large and size == self._asked
                data = view[:size]
                if self._request_bytes is not None and self.stage == SHAKING:
                    self._request_bytes += data
                machine.feed(data)
            else:
                part = size if self._chain else min(size, len(place[0]) - place[1])
                machine.fill(part, view[: size - part], self._chain)
        self._fed = machine.fed

    def _decrypt(self) -> None:
        """Give the machine what was received under TLS. Called again, it continues where it was interrupted."""
        tls, machine = self.tls, self.machine
        assert tls is not None
        if not tls.open:
            return
        if tls.taking:
            tls.taking = False
            self.fault = Broken("a signal handler interrupted the decryption")
            return
        if tls.whole is not None:
            if not tls.whole:
                self._failed(lib.NNG_ECONNSHUT)
            # no calls from here
            tls.parts += (self._state.view[: tls.whole],)
            tls.whole = None
        try:
            while tls.unread:
                place = None if tls.parts else machine.place()
                if place is None:
                    parts = map(tls.read, (RECORD,))
                    tls.taking = True
                    for part in parts:
                        # no calls from here: see the module docstring
                        tls.parts += (part,)
                        tls.taking = False
                    if not part:
                        self._failed(lib.NNG_ECONNSHUT)  # the peer has said that it closes
                        break
                    continue
                body, filled = place
                at, left = _from_buffer(body) + filled, len(body) - filled
                while tls.placed < left and tls.unread:
                    rest = ffi.buffer(at + tls.placed, left - tls.placed)
                    sizes = map(tls.read, (len(rest),), (rest,))
                    tls.taking = True
                    for size in sizes:
                        # no calls from here
                        tls.placed += size
                        tls.taking = False
                    if not size:
                        self._failed(lib.NNG_ECONNSHUT)
                        break
                self._place_decrypted()
                if self.fault is not None:
                    break
        except SSLWantReadError:
            tls.taking = False
        except SSLError as error:
            tls.taking = False
            self.fault = self.fault or trouble(error, shaking=False)
        self._place_decrypted()
        if tls.parts:
            if machine.fed == tls.machine_fed:
                data = b"".join(tls.parts)
                if self._request_bytes is not None and self.stage == SHAKING:
                    self._request_bytes += data
                machine.feed(data)
            # no calls from here
            tls.parts = []
            tls.machine_fed = machine.fed

    def _place_decrypted(self) -> None:
        tls, machine = self.tls, self.machine
        assert tls is not None
        if tls.placed:
            if machine.fed == tls.machine_fed:
                machine.fill(tls.placed)
            # no calls from here
            tls.placed = 0
            tls.machine_fed = machine.fed

    def _grow(self) -> None:
        """Enlarge the buffer, which this reception filled."""
        size = min(self._size * 4, BUFFER)
        self._buffer = uninitialized("char[]", size)
        self._view = ffi.buffer(self._buffer)
        self._size = size

    def _receive_done(self) -> None:
        size = _count(self._rx)
        if size:
            self._feed(size, self._view)
            if self._place is None and size == self._size < BUFFER:
                self._grow()
        elif (code := _result(self._rx)) != lib.NNG_ECANCELED:
            self._failed(code)

    def read_small(self, deliver: Callable[[Connection, bytes], bool] | None = None) -> bool:
        """Receive while ``small``: queue one whole small message, or read on. Return True if it is delivered.

        ``deliver(connection, message)`` may take such a message: it notes it in one step with ``count`` of the machine,
        ``taken_in`` and ``state.reading``, as ``Inbox.take_small`` does. The machine gets what is not noted.
        """
        state, tls = self._state, self.tls
        view: Any
        try:
            if state.reading is not None or state.writing is not None:
                self.read_on()  # an interrupted reception may be of this connection: it comes first, by the machine
                return False
            self._asked = SHORT
            self._place = None
            size = 0
            for size in self._arrivals:
                # no calls from here: see the module docstring
                if tls is not None:
                    self._fed = tls.fed
                state.received = size
                state.reading = self
                break
            head, view = self.machine.head, state.view
            if tls is not None and size:
                feeding = map(tls.put, (view[:size],))
                try:
                    for _ in feeding:
                        # no calls from here, but what the read calls itself
                        tls.fed += 1
                        tls.whole = None
                        tls.taking = True
                        break
                    for size in self._openings:  # into the same buffer
                        # no calls from here
                        tls.whole = size
                        tls.taking = False
                        break
                    if tls.incoming.pending:
                        size = 0
                except SSLWantReadError:  # the record is incomplete, or of the handshake
                    tls.taking = False
                    size = 0
                except SSLError as wrong:
                    check_ours(wrong)
                    tls.taking = False
                    size = 0
                    self.fault = trouble(wrong, shaking=False)
            if head < size < SHORT:
                (length,) = LENGTHS[head](view)
                if length == size - head and length <= self.machine.limit:
                    message: Any = view[head:size]
                    if head == 9 and view[0] != b"\1":
                        message = self.machine.glance(message) if view[0] == b"\2" else None
                    if message is not None and deliver is not None and deliver(self, message):
                        return True
                    if message is not None and state.reading is not None:
                        state.inbox.take_small(self, message)
            if state.reading is not None:
                self.finish_read()
                self.advance(read=True)
        except BlockingIOError as wrong:
            check_ours(wrong)
            return False
        except OSError as wrong:
            check_ours(wrong)
            self._failed(code_of(wrong))
        except Exception as wrong:
            self.crash(wrong)
        if self.fault is not None:
            state.lose(self)
        return False

    def _read_directly(self) -> bool:
        """Read without waiting; return False if there is nothing."""
        state, socket, tls = self._state, self.direct, self.tls
        assert socket is not None
        most = max(LEAST, min(BUFFER, AHEAD // (len(state.present) or 1)))
        self._place = place = self._place_to_receive()
        if place is None:
            # see _set_receive_buffers
            self._asked = asked = min(BEHIND, most) if self._large else most
            arrivals: Any = iter(partial(socket.recv_into, state.view, asked), None)
        else:
            body, filled = place
            left, behind = len(body) - filled, min(BEHIND, most)
            pieces = [ffi.buffer(_from_buffer(body) + filled, left)]
            self._chain = chain = self.machine.chain(most)
            if chain:
                pieces += map(ffi.buffer, map(_from_buffer, chain))
                behind = sum(map(len, chain))
            else:
                pieces += (ffi.buffer(state.buffer, behind),)
            self._asked = left + behind
            self._large = True
            arrivals = map(operator.itemgetter(0), map(socket.recvmsg_into, (pieces,)))
        try:
            for size in arrivals:
                # no calls from here
                if tls is not None:
                    self._fed = tls.fed
                state.received = size
                state.reading = self
                break
        except BlockingIOError:
            return False
        except OSError as wrong:
            self._failed(code_of(wrong))
            return False
        return self.finish_read()

    def _read_now(self) -> bool:
        """Read without waiting; return False if there is nothing."""
        state = self._state
        finish_interrupted(state)
        if self.direct is not None:
            return self._read_directly()
        aio = state.sync_aio
        if self.polled:
            pieces = self._set_receive_buffers(
                state.buffer, max(LEAST, min(BUFFER, AHEAD // (len(state.present) or 1)))
            )
        else:
            pieces = self._set_receive_buffers(self._buffer, self._size)
        _set_iov(aio, pieces, state.iov)
        atomically((setattr, state, "reading", self), (_receive, self.stream, aio))
        if _busy(aio):
            _cancel(aio)
            _wait(aio)
        return self.finish_read()

    def finish_read(self) -> bool:
        """Take what the operation on ``sync_aio`` brought; called by the core too, after an interruption."""
        state = self._state
        self.small = False
        size = _count(state.sync_aio) if self.direct is None else state.received
        if size:
            self._feed(size, state.view if self.polled else self._view)
            self._fed_short = size < self._asked
            state.reading = None
            return True
        code = _result(state.sync_aio) if self.direct is None else lib.NNG_ECONNSHUT
        state.reading = None
        if code != lib.NNG_ECANCELED:
            self._failed(code)
        return False

    def progress_made(self) -> tuple[int, int]:
        """Return a value that changes when bytes arrive."""
        place = self.machine.place()
        return self.machine.fed, 0 if place is None else place[1]

    # ------------------------------------------------------------------ writing

    def progress_written(self) -> tuple[int, int]:
        """Return a value that changes when bytes are written."""
        return self.written, self.done

    @property
    def writing(self) -> bool:
        """True while a write to this peer is in progress."""
        return self.tx_state != IDLE or self.done < self.total or (self.tls is not None and self.tls.unsent)

    @property
    def waits_for_memory(self) -> bool:
        """True while the peer must release shared memory before it gets more."""
        return self.link is not None and self.link.waiting

    def write(self, *, now: bool) -> None:
        """Write the queued messages of this peer. ``now``: on this thread, as far as the kernel takes them at once."""
        try:
            self._write(now)
        except Exception as wrong:  # of ours: the thread of one connection writes to others too
            self.crash(wrong)

    def write_on(self, *, now: bool) -> None:
        """Like ``write``, and lose this connection if it has ended."""
        try:
            self._write(now)
        except Exception as wrong:
            self.crash(wrong)
        if self.fault is not None:
            self._state.lose(self)

    def _write(self, now: bool) -> None:
        state = self._state
        if self._computing:
            return  # its end continues
        if state.reading is not None or state.writing is not None:
            finish_interrupted(state)
        while self.fault is None:
            if self.tx_state == AWAITING:
                return  # `room` continues
            if self.tx_state == POSTED:
                if not _complete(self._tx):
                    return
                self._send_done()
                self.tx_state = COMPLETED
                continue
            tls = self.tls
            if tls is not None and (tls.unsent or not tls.open):
                if not tls.unsent:
                    return
            elif self.done >= self.total:
                self.finish()
                if self.machine.to_send:
                    self._hold_own()
                elif self.stage != JOINED or not state.outbox.next_write(self):
                    return
            large = self.direct is not None and self.total >= LONG * len(self.bodies) > 0
            if now or large or self.tx_state == COMPLETED:
                if self._write_now():
                    continue
                if self.fault is not None:
                    return
            if self.tx_state != IDLE:
                return  # COMPLETED: its callback continues
            if large and not self._enlarged:
                self._enlarge()
                continue
            if large and state.poller.await_room(self):
                return
            pieces = self._set_send_buffers()
            _set_iov(self._tx, pieces, state.iov)
            atomically((setattr, self, "tx_state", POSTED), (_send, self.stream, self._tx))
            return

    def send_small(self, message: bytes) -> bool:
        """Write a small message at once if nothing else is being written; return False, without a change, otherwise.

        True: it counts as taken. If the kernel took less than all of it, the rest is written as any write goes on.
        """
        socket = self.direct
        if socket is None or self.tx_state or self.out or self.done < self.total or not self._can_be_small:
            return False
        machine, outbox, tls, size = self.machine, self._state.outbox, self.tls, len(message)
        if machine.to_send or size >= SMALL or (tls is not None and (tls.sent < tls.length or tls.outgoing.pending)):
            return False
        if type(message) is bytes:
            frame = machine.first + size.to_bytes(8, "big") + message
        elif not (frame := machine.frame_now(message)):  # it refers to shared memory
            return False
        total, held = machine.head + size, [frame]
        sizes: Any = map(socket.send, (frame,), (NO_SIGNAL,)) if tls is None else ()
        # no calls from here: see the module docstring
        self.held = held
        self.bodies = (message,)
        self.done = 0
        self.sealed = 0
        self.total = total
        outbox.taken += 1
        try:
            if tls is not None:
                sealing = map(tls.write, (frame,))
                tls.pledge = 0, total
                for sealed in sealing:
                    # no calls from here, but what the write calls itself
                    self.sealed = sealed
                    tls.pledge = None
                    break
                length = tls.outgoing.pending
                for staged in tls.drains:
                    # no calls from here
                    tls.sent = 0
                    tls.length = length
                    tls.staged = staged
                    break
                sizes = map(socket.send, (staged,), (NO_SIGNAL,))
            for size in sizes:
                # no calls from here
                if tls is not None:
                    tls.sent = size
                    if size == tls.length:
                        size = total
                    else:
                        break
                self.done = size
                if size == total:
                    self.written += 1
                    self.bodies = ()
                    self.held = []
                    self.done = 0
                    self.sealed = 0
                    self.total = 0
                    return True
                break
        except BlockingIOError:
            pass
        except SSLError as wrong:
            self.crash(wrong)
            return True
        except OSError as wrong:
            self._failed(code_of(wrong))
            return True
        self.write(now=True)
        return True

    def room(self) -> None:
        """Write on: the kernel has room. Called by the reader thread, without the lock."""
        state = self._state
        with state.lock:
            if self.tx_state != AWAITING:
                return
            self.tx_state = IDLE
            self.write(now=True)
            state.outbox.resume_waiting()
            state.outbox.after_write(self)
            state.inbox.wrote(self)
        state.notify()

    def _hold_own(self) -> None:
        """Write next what the machine sends by itself: a hello, a pong."""
        said = b"".join(self.machine.to_send)
        frames, empty, size = [said], (), len(said)
        # no calls from here
        self.held = frames
        self.bodies = empty
        self.done = 0
        self.total = size
        self.machine.to_send = []

    def finish(self) -> None:
        """Count the messages being written as written."""
        count = len(self.bodies)
        self.written += count
        self.bodies = ()
        self.held = []
        self.done = 0
        self.sealed = 0
        self.total = 0

    def _seal(self) -> None:
        """Encrypt the next part of the frames, if the part before is sent. Interrupted, it continues."""
        tls = self.tls
        if tls is None or tls.sent < tls.length:
            return
        if tls.pledge is not None:
            before, size = tls.pledge
            size = size if tls.outgoing.pending > before else 0
            # no calls from here
            self.sealed += size
            tls.pledge = None
        if tls.open and self.sealed < self.total:
            index, skip = self._first_unwritten()
            left = CHUNK
            while left > 0 and index < len(self.held):
                piece = memoryview(self.held[index])[skip : skip + left]
                tls.pledge = tls.outgoing.pending, len(piece)
                for size in map(tls.write, (piece,)):
                    # no calls from here: see the module docstring
                    self.sealed += size
                    tls.pledge = None
                left -= len(piece)
                index, skip = index + 1, 0
        length = tls.outgoing.pending
        for staged in tls.drains:
            # no calls from here
            tls.sent = 0
            tls.length = length
            tls.staged = staged
            break

    def _sent(self, size: int) -> None:
        tls = self.tls
        if tls is None:
            self.done += size
            return
        tls.sent += size
        if tls.sent == tls.length:
            self.done = self.sealed

    def _first_unwritten(self) -> tuple[int, int]:
        """Return the index of the first frame that is not written completely, and how many of its bytes are."""
        held, done = self.held, self.done if self.tls is None else self.sealed
        index, at = self._passed if 0 < self._passed[1] <= done else (0, 0)  # less is done: it is another write
        while index < len(held) and at + len(held[index]) <= done:
            at += len(held[index])
            index += 1
        self._passed = index, at
        return index, done - at

    def _set_send_buffers(self) -> int:
        """Point the next send at unwritten bytes, in at most IOVS buffers; return the number of buffers."""
        iov, held, pieces = self._state.iov, self.held, 0
        if self.tls is not None:
            self._seal()
            iov[0].iov_buf = _from_buffer(self.tls.staged) + self.tls.sent
            iov[0].iov_len = self.tls.length - self.tls.sent
            return 1
        index, skip = self._first_unwritten()
        for buffer in itertools.islice(held, index, index + IOVS):
            iov[pieces].iov_buf = _from_buffer(buffer) + skip
            iov[pieces].iov_len = len(buffer) - skip
            skip = 0
            pieces += 1
        return pieces

    def _send_done(self) -> None:
        size = _count(self._tx)
        if size:
            self._sent(size)
        else:
            self._failed(_result(self._tx), writing=True)

    def _write_now(self) -> bool:
        """Write as much as the kernel takes at once; return False if that is nothing."""
        state = self._state
        finish_interrupted(state)
        if self.direct is not None:
            return self._write_directly()
        aio = state.sync_aio
        pieces = self._set_send_buffers()
        _set_iov(aio, pieces, state.iov)
        atomically((setattr, state, "writing", self), (_send, self.stream, aio))
        if _busy(aio):
            _cancel(aio)
            _wait(aio)
        return self.finish_write()

    def _write_directly(self) -> bool:
        tls = self.tls
        pieces: list[Any]
        if tls is not None:
            self._seal()
            pieces = [memoryview(tls.staged)[tls.sent :]]
        else:
            index, skip = self._first_unwritten()
            pieces = [*self.held[index : index + PIECES]]
            if skip:
                pieces[0] = memoryview(pieces[0])[skip:]
        assert self.direct is not None
        try:
            for size in map(self.direct.sendmsg, (pieces,), ((),), (NO_SIGNAL,)):
                # no calls from here
                if tls is None:
                    self.done += size
                    return True
                tls.sent += size
                if tls.sent == tls.length:
                    self.done = self.sealed
                return True
        except BlockingIOError:
            pass
        except OSError as wrong:
            self._failed(code_of(wrong))
        return False

    def _enlarge(self) -> None:
        """Give large messages to a peer of this machine more room in the kernel."""
        assert self.direct is not None
        self._enlarged = True
        try:
            self.direct.setsockopt(SOL_SOCKET, SO_SNDBUF, ROOM)
        except OSError as wrong:
            check_ours(wrong)  # else it stays as it is

    def finish_write(self) -> bool:
        """Note what the operation on ``sync_aio`` wrote; called by the core too, after an interruption."""
        state = self._state
        size = _count(state.sync_aio)
        code = 0 if size else _result(state.sync_aio)
        if size:
            self._sent(size)
            state.writing = None
            return True
        state.writing = None
        if code != lib.NNG_ECANCELED:
            self._failed(code, writing=True)
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
        given = self.done if self.tls is None else self.sealed
        try:
            for index, body in enumerate(self.bodies):
                if at >= given:
                    return written, begun, list(self.bodies[index:])
                at += self.machine.wire_size(len(body))
                if at <= self.done:
                    written += 1
                else:
                    begun += 1
        except Exception as wrong:
            self.crash(wrong)
            return 0, len(self.bodies), []
        return written, begun, []

    # ------------------------------------------------------------------ the end

    def crash(self, error: Exception) -> None:
        """Let an error of our own code end the connection: its machine is not used again. Under the lock.

        Raises it again if a signal handler has raised it.
        """
        check_ours(error)
        state = self._state
        if state.reading is self:
            state.reading = None
        if state.writing is self:
            state.writing = None
        if not self.crashed:
            self.crashed = True
            self.fault = internal(error)
            log.error("%r: the connection ends: %s", self, self.fault, exc_info=error)

    def _failed(self, code: int, *, writing: bool = False) -> None:
        if writing and self.tls is not None and self.stage == SHAKING and self.rx_state == POSTED:
            self.tls.sent = self.tls.length  # what is received then tells why: an alert
        elif self.fault is None:
            ended = code in (0, lib.NNG_ECLOSED, lib.NNG_ECONNSHUT)
            self.fault = "the peer closed" if ended else strerror(code)

    def resume(self) -> None:
        """Continue where a signal handler that raised interrupted this thread."""
        if self.polled:
            self._state.poller.repeat(self)  # it may have come after the poller's report, and before the reading
        if self._receiving and self.rx_state == IDLE and not self._rx_callback_due:
            self.advance()
        if self.tx_state == IDLE and self.fault is None:
            self.write(now=True)

    def where(self) -> str:
        """Return the address of the peer, or the shared address if the transport has none for each peer."""
        return self._where

    def describe(self) -> Pipe:
        """Return the Pipe of this connection. Called without the lock, after the peer's hello."""
        address, where = self.address, self._where
        request = getattr(self.machine, "request", None)
        path, origin, host = (None,) * 3 if request is None else (request.path, request.origin, request.host)
        pid = streams.peer_process(self.stream) if address.local else None
        if self.link is not None:
            pid = self.link.pid
        dialed = self.dialer is not None
        if self.peer is None:
            self.peer = self._state.identity.of(address, self.stream, self.tls, where)
        shown, who = Certificate() if self.tls is None else self.tls.certificate(), self.peer
        of = shown.common, shown.names, shown.verified
        uris, ips = shown.uris, shown.ips
        return Pipe(self.number, where, dialed, *of, pid, path, origin, uris, ips, who.name, who.serial, host)

    def close(self) -> None:
        """Close the stream. Operations in progress end, and their callbacks follow."""
        state = self._state
        if self.stage != CLOSED:
            finish_interrupted(state)
            if self.tx_state == AWAITING:
                self.tx_state = IDLE
            if self.tx_state == POSTED and _complete(self._tx):
                self._send_done()  # its callback would come too late
                self.tx_state = COMPLETED
            try:
                self._say_goodbye()
            except Exception as wrong:
                self.crash(wrong)
            self.stage = CLOSED
        self.ending()
        if self.polled:
            state.poller.remove(self)  # before another file gets its descriptor
            self.release_descriptor()
            self._arrivals = self._openings = iter(())  # they hold the state's buffer
        if not self._freed:
            state.watch.end(self)
            atomically((setattr, self, "_freed", True), *streams.closing(self.stream))
        self._end_if_idle()

    def release_descriptor(self) -> None:
        """Leave the descriptor to NNG, which closes it. Idempotent; in a forked child too."""
        if self.direct is not None:
            self.direct.detach()

    def _say_goodbye(self) -> None:
        if self.crashed or self._computing:
            return
        last = b"".join(self.machine.to_send) + self.machine.end()  # a WebSocket sends a close frame
        tls = self.tls
        if self.tx_state != IDLE or self.done < self.total or (tls is not None and tls.sent < tls.length):
            return
        if tls is not None:
            tls.end(last)
        elif last:
            self.machine.to_send = [last]
            self._hold_own()
        if last or (tls is not None and tls.unsent):
            self._write_now()

    def _end_if_idle(self) -> None:
        if not self._rx_callback_due and self.tx_state == IDLE:
            self.ended(self._rx, self._tx)


def finish_interrupted(state: State[Connection]) -> None:
    """Finish the operation on ``sync_aio`` that a signal handler interrupted, if any. Under the lock."""
    for connection, finish in ((state.reading, Connection.finish_read), (state.writing, Connection.finish_write)):
        if connection is not None:
            if _busy(state.sync_aio):
                _cancel(state.sync_aio)
                _wait(state.sync_aio)
            try:
                finish(connection)
            except Exception as wrong:
                connection.crash(wrong)


def _complete(aio: Any) -> bool:
    return bool(_count(aio) or _result(aio))
