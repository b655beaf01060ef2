"""Listeners: NNG's, which accept streams, and ours, several of which may share one port for WebSocket.

Independent of SP, messages and nngkit's sockets.
"""

from __future__ import annotations

import logging
import socket as sockets
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final

from nngkit.errors import Closed, ConfigError, Unreachable

from . import _descriptors as descriptors
from ._addresses import Address
from ._alarm import Alarm
from ._nng import check, error, ffi, lib, strerror
from ._operations import Owner, atomically
from ._streams import close, configure, expected_descriptor, find_descriptor, tls_config, unix_path, wrap
from ._tls import TLS

log = logging.getLogger("nngkit.protocols")

NO_DESCRIPTORS: Final = lib.NNG_ENOFILES
# seconds before the next accept after one failed for lack of descriptors: it would fail at once again
ACCEPT_PAUSE: Final = 0.05


class Listener:
    """Accept streams at ``address`` for one socket. Raises ConfigError, and Unreachable if it cannot listen.

    ``accepted(stream, descriptor, listener)`` is called on an NNG thread (inproc: the alarm thread) and owns the
    stream; ``descriptor`` is None if unknown. WebSocket listeners of one process may share host and port and differ in
    path. The first of them then accepts all streams. When the request was read, ``listener_for`` finds the listener of
    its path, and ``handed_off(stream, descriptor, listener, bytes read)`` of that one is called.
    """

    inproc: ClassVar[dict[str, Listener]] = {}
    _ports: ClassVar[dict[tuple[str, str, int], Port]] = {}
    _sharing: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self,
        address: Address,
        tls: TLS | None,
        accepted: Callable[[Any, int | None, Listener], None],
        handed_off: Callable[[Any, int | None, Listener, bytes], None],
    ) -> None:
        self.address = address
        self.accepted = accepted
        self.handed_off = handed_off
        self._port: Port | None = None
        try:
            self.bound = self._open(tls)
        except BaseException:
            self.close()  # a signal handler that raised may have come when the address was taken
            raise

    def _open(self, tls: TLS | None) -> str:
        """Take the address; return the bound URL."""
        address = self.address
        if address.scheme == "inproc":
            if Listener.inproc.setdefault(address.url, self) is not self:
                raise Unreachable(address.url, "cannot listen: address in use")
            return address.url
        with self._sharing:
            key = (address.stream.partition("://")[0], address.host, address.port or 0)
            port = self._ports.get(key) if address.web else None
            if port is None:
                port = Port(address, tls, self)
                if address.web:
                    self._ports[key[0], key[1], port.number_bound() or 0] = port
            elif port.tls != tls or any(one.path == self.path for one in port.members):
                raise Unreachable(address.url, "cannot listen: address in use")
            else:
                port.members = (*port.members, self)
                self._port = port
        return port.bound(address)

    @property
    def path(self) -> str:
        """Path of a WebSocket, without the query."""
        return self.address.path.partition("?")[0]

    @property
    def number(self) -> int:
        """Number of the owner whose end a close waits for; 0 for inproc."""
        return 0 if self._port is None else self._port.number

    def start(self) -> None:
        """Begin to accept."""
        if self._port is not None:
            self._port.start()

    def listener_for(self, path: str) -> Listener | None:
        """Return the listener at the same port that serves ``path``; None if that is this one, or none does."""
        others = () if self._port is None else self._port.members
        return next((one for one in others if one is not self and one.path == path), None)

    @property
    def shares(self) -> bool:
        """True if other listeners use the same port."""
        return self._port is not None and len(self._port.members) > 1

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
        if self.address.scheme == "inproc":
            if Listener.inproc.get(self.address.url) is self:
                del Listener.inproc[self.address.url]
            return
        with self._sharing:
            port = self._port
            if port is None:  # it could not listen
                return
            port.members = tuple(one for one in port.members if one is not self)
            last = not port.members
            if last:
                for key, one in list(self._ports.items()):
                    if one is port:
                        del self._ports[key]
        if last:
            port.close()


class Port(Owner):
    """NNG's listener at one address, for the listeners that share it."""

    def __init__(self, address: Address, tls: TLS | None, first: Listener) -> None:
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
        self._config = tls_config(tls, address, "listen")
        self._alarm: Alarm | None = None
        self._short = False  # of descriptors: the last accept failed for want of one
        slot = ffi.new("nng_stream_listener **")
        self._fail(lib.nng_stream_listener_alloc(slot, address.stream.encode()))
        self._listener = slot[0]
        super().__init__()
        first._port = self  # which closes it, whatever comes
        configure("listener", self._listener, address, self._config)
        expected = descriptors.lowest_free() if descriptors.available else None
        self._fail(lib.nng_stream_listener_listen(self._listener))
        if address.ported and expected is not None:
            descriptors.raise_backlog(self.number_bound() or 0, expected)

    def __repr__(self) -> str:
        return f"<Port {self.number} {self._address.url}>"

    def _fail(self, code: int) -> None:
        if not code:
            return
        url = self._address.url
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
                self._free()
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
                self._post()
        elif code == NO_DESCRIPTORS:
            if not self._short:  # NNG reports it without a connection too: a line each time would tell nothing more
                self._short = True
                log.warning("%s: out of descriptors, cannot accept connections", self._address.url)
            if self._alarm is None:
                self._alarm = Alarm(self._again)
            self._alarm.set(ACCEPT_PAUSE)
        else:
            self._post()

    def _descriptor(self, stream: Any) -> int | None:
        if not self._address.local:
            return find_descriptor(stream, self._address, self._expected)
        if not descriptors.available:
            return None
        with descriptors.one_at_a_time:  # the next connection is accepted after this one
            return descriptors.newcomer(unix_path(self.bound(self._address)), dialed=False)

    def _again(self) -> None:
        self._post()

    def close(self) -> None:
        """Stop accepting. The address is free when this returns.

        Called again, it continues where a signal handler that raised interrupted it.
        """
        with self._lock:
            if self._close_returned or self.freed:
                return
            self._closed = True
            if self._pending:
                self.ending()
        if self._alarm is not None:
            self._alarm.close()
        # This ends the accept. To abort that as well would end the process at times, under TLS (docs/nng.md).
        lib.nng_stream_listener_close(self._listener)
        with self._lock:
            pending = self._close_returned = self._pending  # if the callback is still to come, it frees
        if not pending:
            self._free()

    def _free(self) -> None:
        aios = () if self._aio is None else (self._aio,)
        self.ended(*aios, frees=[(lib.nng_stream_listener_free, self._listener)])
