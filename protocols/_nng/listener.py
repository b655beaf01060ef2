"""Listeners: NNG's, which accept streams, and ours, several of which may share one port for WebSocket.

Independent of SP, messages and nngkit's sockets.
"""

from __future__ import annotations

import logging
import os
import socket as sockets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, Final

from nngkit.errors import Closed, ConfigError, NngkitError, Unreachable
from nngkit.log_lines import LogLines
from nngkit.protocols._nng import descriptors, unix_paths
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.library import check, error, ffi, lib, no_such_family, strerror
from nngkit.protocols._nng.names import Number, spelled
from nngkit.protocols._nng.operations import CALLBACKS, Owner, apart, atomically, wait_until_ended
from nngkit.protocols._nng.pace import A_SECOND, Pace, Turns, hopeless
from nngkit.protocols._nng.resolver import Question
from nngkit.protocols._nng.streams import (
    close,
    configure,
    expected_descriptor,
    find_descriptor,
    shown,
    unix_path,
    wrap,
)
from nngkit.protocols._nng.tls import Security, contexts
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._wire.tls_layer import Layer

log = logging.getLogger("nngkit.protocols")

NO_DESCRIPTORS: Final = lib.NNG_ENOFILES
# seconds before the next accept after one failed for lack of descriptors: it would fail at once again
ACCEPT_PAUSE: Final = 0.05
# seconds for the lookup of a name to listen at: a server that is up answers in milliseconds
LOOKUP: Final = 2.0
# seconds between two looks at the connections that wait, while they are screened: few at a time, as the threads that
# serve wait for the interpreter and for a core meanwhile. Twice as many after a look that found none, at most ...
SCREEN_PERIOD: Final = 0.002
CALM_PERIOD: Final = 0.016  # ... so many
SCREENED: Final = 6  # connections that one look takes; twice as many after one that left some, at most ...
MOST_SCREENED: Final = 64  # ... so many
CHOICES: Final = 8  # tries to find a port that is free at all addresses of a name

_lines = LogLines()


class Absent(Unreachable):
    """This host has no such address, or not yet: its network may come up later."""


class Listener:
    """Accept streams at ``address`` for one socket. Raises ConfigError, and Unreachable if it cannot listen.

    ``accepted(stream, descriptor, listener)`` is called on an NNG thread (inproc: the alarm thread) and owns the
    stream; ``descriptor`` is None if unknown. WebSocket listeners of one process may share host and port and differ in
    path. The first of them then accepts all streams. When the request was read, ``listener_for`` finds the listener of
    its path, and ``handed_off(stream, descriptor, listener, bytes read, TLS)`` of that one is called. While too many
    handshakes fail, ``turned_away(addresses)`` is told of peers whose connections were closed after one look at them.
    """

    inproc: ClassVar[dict[str, Listener]] = {}
    _ports_by_key: ClassVar[dict[tuple[bool, str, int], Port]] = {}
    _sharing: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self,
        address: Address,
        tls: Security | None,
        accepted: Callable[[Any, int | None, Listener], None],
        handed_off: Callable[[Any, int | None, Listener, bytes, Layer | None], None],
        ipc_mode: int | None = None,
        turned_away: Callable[[Sequence[str]], None] = lambda peers: None,
    ) -> None:
        self.address = address
        self.accepted = accepted
        self.handed_off = handed_off
        self.contexts = contexts(tls, address, "listen")
        self.pace = Pace()
        self._turn_away = turned_away
        self._waiting: Turns[Callable[[], bool]] = Turns()  # handshakes whose turn comes
        self._taking = threading.Lock()  # held for a change of `_waiting`
        self._turns = Alarm(self._next_turn)
        self._ports: tuple[Port, ...] = ()
        self._ending: list[int] = []  # numbers of the ports that it has closed
        try:
            self.bound = self._open(tls, ipc_mode)
        except BaseException:
            self.close()  # a signal handler that raised may have come when the address was taken
            wait_until_ended(self.numbers, CALLBACKS)
            raise

    def _open(self, tls: Security | None, ipc_mode: int | None) -> str:
        """Take the address; return the bound URL."""
        address = self.address
        if ipc_mode is not None and address.local and not (address.filed and unix_paths.available):
            why = "only a Unix socket in the file system has permissions"
            raise ConfigError("ipc_mode", f"{address.url}: {why}", ipc_mode)
        if address.scheme == "inproc":
            if Listener.inproc.setdefault(address.url, self) is not self:
                raise Unreachable(address.url, "cannot listen: address in use")
            return address.url
        numbers = self._numbers()
        with self._sharing:
            self._take(tls, numbers, ipc_mode)
        return self._ports[0].bound(address)

    def _numbers(self) -> tuple[Number | None, ...]:
        """Return the addresses to listen at; None is one that is no number. Waits for a name only."""
        address = self.address
        if not address.ported:
            return (None,)
        answered = threading.Event()
        question = Question("listen", address, answered.set)
        in_time = answered.wait(LOOKUP)
        question.close()
        if not question.numbers:
            raise Unreachable(address.url, f"cannot listen: {question.reason}{'' if in_time else f' in {LOOKUP:g} s'}")
        return question.numbers

    def _take(self, tls: Security | None, numbers: tuple[Number | None, ...], ipc_mode: int | None) -> None:
        """Take one port at each of the addresses that this host has, at least at one."""
        tries = 1 if self.address.port or len(numbers) == 1 else CHOICES
        absent: Absent | None = None
        while True:
            port, tries = self.address.port or 0, tries - 1
            try:
                for number in numbers:
                    taken = self._ports
                    try:
                        self._join(tls, number, port, ipc_mode)
                    except Absent as missing:
                        absent = absent or missing
                        self._leave(self._ports[len(taken) :])
                    else:
                        port = self._ports[0].number_bound() or 0
            except Unreachable:
                if not tries:
                    raise
                self._leave(self._ports)  # the chosen port is in use at another of the addresses
                continue
            if absent is not None and not self._ports:
                raise absent
            return

    def _join(self, tls: Security | None, number: Number | None, number_of_port: int, ipc_mode: int | None) -> None:
        """Take the port at one address, or join the WebSocket listeners there."""
        address = self.address
        key = (address.tls, str(number), number_of_port)
        port = self._ports_by_key.get(key) if address.web else None
        if port is None:
            port = Port(address, number, number_of_port, tls, self, ipc_mode)
            if address.web:
                self._ports_by_key[*key[:2], port.number_bound() or 0] = port
        elif port.tls != tls or any(one.path == self.path for one in port.members):
            raise Unreachable(address.url, "cannot listen: address in use")
        else:
            members, ports = (*port.members, self), (*self._ports, port)
            atomically((setattr, port, "members", members), (setattr, self, "_ports", ports))

    @property
    def path(self) -> str:
        """Path of a WebSocket, without the query."""
        return self.address.path.partition("?")[0]

    @property
    def numbers(self) -> list[int]:
        """Numbers of the owners whose end a close waits for; none for inproc."""
        return [*self._ending, *(port.number for port in self._ports)]

    def start(self) -> None:
        """Begin to accept."""
        for port in self._ports:
            port.start()

    def _others(self) -> list[Listener]:
        return [one for port in self._ports for one in port.members if one is not self]

    def listener_for(self, path: str) -> Listener | None:
        """Return the listener at the same port that serves ``path``; None if that is this one, or none does."""
        return next((one for one in self._others() if one.path == path), None)

    def postpone(self, host: str | None, proceed: Callable[[], bool]) -> bool:
        """Return True if a handshake of TLS has to wait, as too many fail: ``proceed()`` is called at its turn.

        It returns False if there is nothing to do any more. ``host``: of the peer, None for this machine.
        """
        with self._taking:
            if not self._waiting and not self.pace.exceeded(time.monotonic()):
                return False
            self._waiting.add(host, proceed)
        self._turns.set(1 / A_SECOND)
        return True

    def _next_turn(self) -> float | None:
        """Let one handshake proceed. On the alarm thread."""
        while self._waiting:
            with self._taking:
                proceed = self._waiting.take()
            if proceed():
                break
        return 1 / A_SECOND if self._waiting else None

    def turn_away(self, peers: Sequence[str]) -> None:
        """Count connections that were closed after one look at them, by their addresses."""
        if peers:
            self.pace.turned_away(len(peers), time.monotonic())
            self._turn_away(peers)

    @property
    def shares(self) -> bool:
        """True if other listeners use the same port."""
        return bool(self._others())

    def meet(self) -> tuple[Any, int | None]:
        """Connect to this inproc listener: return a stream and its descriptor. Raises Closed, OSError."""
        ours, theirs = sockets.socketpair()
        try:
            mine, number = wrap(ours)
        except BaseException:
            theirs.close()
            raise
        try:
            other, others = wrap(theirs)
        except BaseException:
            close(mine)
            raise
        if Listener.inproc.get(self.address.url) is not self:
            close(mine)
            close(other)
            raise Closed(self.bound)
        self.accepted(mine, number, self)
        return other, others

    def close(self) -> None:
        """Stop accepting. The address is free when this returns."""
        self._turns.close()
        if self.address.scheme == "inproc":
            if Listener.inproc.get(self.address.url) is self:
                del Listener.inproc[self.address.url]
            return
        self._leave(self._ports)

    def _leave(self, ports: tuple[Port, ...]) -> None:
        """Leave the ports; close those that no other listener shares."""
        with self._sharing:
            for port in ports:
                port.members = tuple(one for one in port.members if one is not self)
            last = [port for port in ports if not port.members]
            for key, one in list(self._ports_by_key.items()):
                if one in last:
                    del self._ports_by_key[key]
        for port in last:
            port.close()
        self._ending += [port.number for port in last]
        self._ports = tuple(port for port in self._ports if port not in ports)


class Port(Owner):
    """NNG's listener at one address, for the listeners that share it."""

    def __init__(
        self,
        address: Address,
        number: Number | None,
        number_of_port: int,
        tls: Security | None,
        first: Listener,
        ipc_mode: int | None,
    ) -> None:
        self.tls = tls
        self.members: tuple[Listener, ...] = (first,)
        self._address = address
        self._lock = threading.RLock()  # re-entrant, as a finalizer may close at any point
        self._started = False
        self._closed = False
        self._pending = False
        self._expected: int | None = None  # likely descriptor of the next stream
        self._close_returned = False  # the closing thread has made its last call, before the last callback
        self._aio: Any = None
        self._alarm: Alarm | None = None
        self._short = False  # of descriptors: the last accept failed for want of one
        self._screened = SCREENED  # connections that the next look takes ...
        self._pause = SCREEN_PERIOD  # ... in so many seconds
        try:
            url = address.stream if number is None else address.at(spelled(number, address), number_of_port)
        except OSError as error:  # the zone of an IPv6 address
            raise Absent(address.url, f"cannot listen: no interface {number and number.zone!r}") from error
        # of a Unix socket's file: its path, and what identifies it
        self._path = address.url.partition("://")[2] if address.filed and unix_paths.available else None
        self._file: unix_paths.Identity | None = None
        slot = ffi.new("nng_stream_listener **")
        self._fail(lib.nng_stream_listener_alloc(slot, url.encode()))
        self._listener = slot[0]
        ports = (*first._ports, self)
        atomically((super().__init__,), (setattr, first, "_ports", ports))  # which closes it, whatever comes
        configure("listener", self._listener, address)
        if ipc_mode is not None and address.filed:  # NNG sets it before it accepts anything
            self._fail(lib.nng_stream_listener_set_int(self._listener, b"ipc:permissions", ipc_mode))
        expected = descriptors.lowest_free() if descriptors.available else None
        with nullcontext() if self._path is None else unix_paths.reserved(self._path, address.url):
            if ipc_mode is None or self._path is None:
                code = lib.nng_stream_listener_listen(self._listener)
            else:
                code = unix_paths.with_permissions(ipc_mode, lib.nng_stream_listener_listen, self._listener)
            self._fail(code)
            if self._path is not None:
                self._file = unix_paths.identity(self._path)
        self._place = expected if address.ported else None  # where its descriptor is likely found
        self._number = self.number_bound() or 0
        if self._place is not None:
            descriptors.raise_backlog(self._number, self._place)

    def __repr__(self) -> str:
        return f"<Port {self.number} {self._address.url}>"

    def _fail(self, code: int) -> None:
        if not code:
            return
        url = self._address.url
        if self._address.ported and (code == lib.NNG_EADDRINVAL or no_such_family(code)):
            raise Absent(url, "cannot listen: not an address of this host")
        mapped = error(code, "listen")
        if isinstance(mapped, ConfigError):
            raise ConfigError("listen", f"{url}: {mapped.why}", url)
        raise Unreachable(url, f"cannot listen: {strerror(code)}")

    def number_bound(self) -> int | None:
        """Return the bound port number; None if the transport has no ports."""
        if not self._address.ported:
            return None
        port = ffi.new("int *")
        check(lib.nng_stream_listener_get_int(self._listener, b"tcp-bound-port", port), self._address.url)
        return int(port[0])

    def bound(self, address: Address) -> str:
        """Return the bound URL for a listener at ``address``."""
        if port := self.number_bound():
            return address.bound(port) if not address.port or address.host in ("", "*") else address.url
        if address.url == "abstract://":
            where = ffi.new("nng_sockaddr *")
            check(lib.nng_stream_listener_get_addr(self._listener, b"local-address", where), address.url)
            name = bytes(ffi.buffer(where.s_abstract.sa_name, where.s_abstract.sa_len))
            return f"abstract://{name.decode('ascii', 'replace')}"
        return address.url

    def start(self) -> None:
        """Begin to accept. Idempotent."""
        with self._lock:
            if self._started:
                return
            self._started = True
            self._aio = self.aio(0)
        self._post()

    def _post(self) -> None:
        with self._lock:
            if not self._closed:
                self._expected = expected_descriptor(self._address)
                atomically(
                    (setattr, self, "_pending", True), (lib.nng_stream_listener_accept, self._listener, self._aio)
                )

    def completed(self, which: int) -> None:
        code = lib.nng_aio_result(self._aio)
        stream = None if code else ffi.cast("nng_stream *", lib.nng_aio_get_output(self._aio, 0))
        with self._lock:
            self._pending = False
            closed, last = self._closed, self._close_returned
        if closed:
            if stream is not None:
                close(stream)
            if last:
                apart(self._end)
            return
        if stream is not None:
            self._short = False
            try:
                members = self.members
                if members:
                    members[0].accepted(stream, self._descriptor(stream), members[0])
                else:
                    close(stream)
            finally:
                if self._screens():
                    self._wait(SCREEN_PERIOD)
                else:
                    self._post()
        elif code == NO_DESCRIPTORS:
            if not self._short:  # NNG reports it without a connection too: a line each time would tell nothing more
                self._short = True
                log.warning("%s: out of descriptors, cannot accept connections", self._address.url)
            self._wait(ACCEPT_PAUSE)
        else:
            self._post()

    def _wait(self, seconds: float) -> None:
        """Accept again in so many seconds."""
        if self._alarm is None:
            self._alarm = Alarm(self._again)
        self._alarm.set(seconds)

    def _descriptor(self, stream: Any) -> int | None:
        try:
            if not self._address.local:
                return find_descriptor(stream, self._expected)
            if not descriptors.available:
                return None
            with descriptors.one_at_a_time:  # the next connection is accepted after this one
                return descriptors.newcomer(unix_path(self.bound(self._address)), dialed=False)
        except Exception:  # the connection works without it
            log.exception("%r: no descriptor", self)
            return None

    def _again(self) -> float | None:
        if not self._closed and self._screens():
            self._screen()
            return self._pause
        self._post()
        return None

    # ------------------------------------------------------------------ while too many handshakes fail

    def _screens(self) -> bool:
        """Return True if connections are to be looked at before they are accepted."""
        now = time.monotonic()
        if self._place is None or not any(one.pace.exceeded(now) for one in self.members):
            return False
        line = _lines.add(f"{self._address.url}: more than {A_SECOND:g} connections a second fail", now)
        if line is not None:
            log.warning("%s", line)
        return True

    def _screen(self) -> None:
        """Accept the connections that wait, but close those that can only fail. On the alarm thread."""
        if self._place is None:
            return
        accepted: list[tuple[sockets.socket, bytes]] = []
        descriptors.ask_listener(self._number, self._place, lambda one: self._look(one, accepted))
        for one, said in accepted:
            members = self.members
            if self._closed or not members:
                one.close()
                continue
            try:
                one.setblocking(True)  # as NNG expects it
                one.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
                one.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
                said = one.recv(len(said))  # which was seen, and stayed
                stream, number = wrap(one)
            except (OSError, NngkitError):
                one.close()
                continue
            if said:
                members[0].handed_off(stream, number, members[0], said, None)
            else:
                members[0].accepted(stream, number, members[0])

    def _look(self, listening: sockets.SocketType, accepted: list[tuple[sockets.socket, bytes]]) -> bool:
        """Accept what waits at NNG's socket; close what can only fail. Returns True."""
        tls, web = self._address.tls, self._address.web
        members, now = self.members, time.monotonic()
        room = min((one.pace.room(now) for one in members), default=0)
        turned_away: list[str] = []
        taken = 0
        # a copy of the descriptor, which must not outlive this call: the port would stay taken
        with sockets.socket(fileno=os.dup(listening.fileno())) as own:
            own.setblocking(False)  # as it is
            while taken < self._screened and len(accepted) < room:
                try:
                    peer, name = own.accept()
                except OSError:  # nothing waits, or it has left, or no descriptor is left
                    self._screened = SCREENED
                    break
                taken += 1
                said = b"" if descriptors.has_left(peer) else descriptors.peek(peer)
                if said is not None and hopeless(said, tls=tls, web=web):
                    peer.close()
                    turned_away.append(f"{self._address.scheme}://{shown(name)}")
                    continue
                # a whole hello is read here: no thread of NNG waits for it
                accepted.append((peer, said if said is not None and len(said) == 8 and not (tls or web) else b""))
            else:
                if taken == self._screened:
                    self._screened = min(2 * taken, MOST_SCREENED)
        self._pause = SCREEN_PERIOD if taken else min(2 * self._pause, CALM_PERIOD)
        for one in members:
            one.pace.let_in(len(accepted))
        for one in members[:1]:
            one.turn_away(turned_away)
        return True

    def close(self) -> None:
        """Stop accepting. The address is free when this returns.

        Called again, it continues where a signal handler that raised interrupted it.
        """
        with self._lock:
            if self.freed:
                return
            self._closed = True
            if not self._close_returned:
                self.ending()
        if not self._close_returned:
            if self._alarm is not None:
                self._alarm.close()
            if self._file is None or self._path is None:
                lib.nng_stream_listener_close(self._listener)
            else:
                unix_paths.close(self._path, self._file, lib.nng_stream_listener_close, self._listener)
            self._close_returned = True
        with self._lock:
            pending = self._pending  # if the callback is still to come, it frees
        if not pending:
            apart(self._end)

    def _end(self) -> None:
        """Free everything, on the freeing thread. Idempotent."""
        aios = () if self._aio is None else (self._aio,)
        self.ended(*aios, frees=[(lib.nng_stream_listener_free, self._listener)])
