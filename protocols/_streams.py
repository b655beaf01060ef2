"""NNG's byte streams: listening, dialling, and the operations that bring bytes.

::

    Aio         one operation at a time; NNG calls `owner.completed(which)` on a thread of its own
    Listener    accepts, again and again; each stream goes to `accepted(stream, descriptor, listener)`
    Dialer      connects, and again when told that its connection has ended
    wrap        a descriptor of ours as a stream: inproc is a pair of sockets in this process

What has to be known of NNG here is in docs/nng.md. Two rules keep memory whole:

* an operation is posted only while none is under way on the same aio (a second one aborts the process);
* an aio is freed when its last callback has come, by ``nng_aio_reap``, never by the callback itself.

So whoever owns aios stays in ``_ending`` from its close until its last callback.
May not know: SP, messages, sockets of ours.
"""

from __future__ import annotations

import itertools
import logging
import operator
import os
import random
import socket as sockets
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final
from urllib.parse import unquote_to_bytes

from nngkit.errors import Closed, ConfigError, NngkitError, Unreachable

from . import _descriptors as descriptors
from ._addresses import Address
from ._alarm import Alarm
from ._nng import check, error, ffi, lib, new_aio, strerror
from ._tls import TLS

log = logging.getLogger("nngkit.protocols")

SHORTEST: Final = 0.05  # seconds between two tries of a dialler, at first
NO_DESCRIPTORS: Final = lib.NNG_ENOFILES
BREATH: Final = 0.05  # seconds to the next accept where there were no descriptors: it fails at once otherwise

_numbers = itertools.count(1)
_owners: dict[int, Owner] = {}
_ending: dict[int, Owner] = {}  # closed, with callbacks still to come
_all_ended = threading.Condition()


@ffi.callback("void (*)(void *)")  # type: ignore[untyped-decorator]
def _completed(argument: Any) -> None:
    number = int(ffi.cast("uintptr_t", argument))
    owner = _owners.get(number >> 2)
    if owner is None:
        return
    try:
        owner.completed(number & 3)
    except Exception:
        log.exception("%r: a completed operation could not be dealt with", owner)


def atomically(*calls: tuple[Any, ...]) -> None:
    """Make the calls, each (function, *arguments) into C, with no point between them where a signal handler runs."""
    deque(itertools.starmap(operator.call, calls), 0)


class Owner:
    """Owner of operations under way, kept alive until it is closed. ``number`` is unique in the process."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        _owners[self.number] = self

    def aio(self, which: int) -> Any:
        """Return a fresh aio whose completions are told to ``completed(which)``; ``which`` is 0 to 3."""
        return new_aio(_completed, ffi.cast("void *", self.number << 2 | which))

    def completed(self, which: int) -> None:
        """Deal with the end of an operation. On an NNG thread."""
        raise NotImplementedError

    def ending(self) -> None:
        """Stay until ``ended``: callbacks are still to come."""
        _ending[self.number] = self

    def ended(self, *aios: Any) -> None:
        """Free the aios: no callback is to come any more, but for the one that may just call this."""
        for aio in aios:
            lib.nng_aio_reap(aio)
        _owners.pop(self.number, None)
        if _ending.pop(self.number, None) is not None and not _ending:
            with _all_ended:
                _all_ended.notify_all()


def wait_until_ended(numbers: list[int], timeout: float) -> bool:
    """Block until the owners of those numbers have had their last callback; False after ``timeout`` seconds.

    NNG has ended their operations, so this is a matter of its threads' turn.
    """
    if not any(number in _ending for number in numbers):
        return True
    with _all_ended:
        return _all_ended.wait_for(lambda: not any(number in _ending for number in numbers), timeout)


# ---- options ---------------------------------------------------------------------------------------------------------


def _configure(kind: str, handle: Any, address: Address, tls: Any) -> None:
    """Set what both ends of a stream need."""
    setting = getattr(lib, f"nng_stream_{kind}_set_bool")
    if address.ported:
        setting(handle, b"tcp-nodelay", True)  # off by default on streams: one stall of 40 ms at the start of each
        setting(handle, b"tcp-keepalive", True)
    if tls is not None:
        check(getattr(lib, f"nng_stream_{kind}_set_ptr")(handle, b"tls-config", tls._tls_config), address.url)


def _config(tls: TLS | None, address: Address, what: str) -> Any:
    if not address.tls:
        return None
    if tls is None:
        raise ConfigError(what, f"{address.url}: needs tls=TLS(...)", address.url)
    return tls.config(server=what == "listen", host=address.host)


def close(stream: Any) -> None:
    """Close and free a stream: what is under way on it ends, and its callbacks come."""
    lib.nng_stream_close(stream)
    lib.nng_stream_free(stream)


# ---- listening -------------------------------------------------------------------------------------------------------


class Listener:
    """Accepts streams at ``address`` for one socket. Raises ConfigError, Unreachable where it cannot.

    ``accepted(stream, descriptor, listener)`` is called on an NNG thread (inproc: the alarm's) and owns the stream;
    ``descriptor`` is None where it is not known. Listeners for WebSocket of one process may share host and port, and
    are told apart by path: then the first of them gets each stream, ``sibling`` says whose it is once the request was
    read, and ``inherited(stream, descriptor, listener, bytes read)`` is called for that one.
    """

    inproc: ClassVar[dict[str, Listener]] = {}
    _ports: ClassVar[dict[tuple[str, str, int], Port]] = {}
    _sharing: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self,
        address: Address,
        tls: TLS | None,
        accepted: Callable[[Any, int | None, Listener], None],
        inherited: Callable[[Any, int | None, Listener, bytes], None],
    ) -> None:
        self.address = address
        self.accepted = accepted
        self.inherited = inherited
        self._port: Port | None = None
        if address.scheme == "inproc":
            if Listener.inproc.setdefault(address.url, self) is not self:
                raise Unreachable(address.url, "cannot listen: address in use")
            self.bound = address.url
            return
        with self._sharing:
            key = (address.stream.partition("://")[0], address.host, address.port or 0)
            port = self._ports.get(key) if address.web else None
            if port is None:
                port = Port(address, tls)
                if address.web:
                    self._ports[key[0], key[1], port.number_bound() or 0] = port
            elif port.tls != tls or any(one.path == self.path for one in port.members):
                raise Unreachable(address.url, "cannot listen: address in use")
            port.members = (*port.members, self)
            self._port = port
        self.bound = port.bound(address)

    @property
    def path(self) -> str:
        """The path of a WebSocket, without a query."""
        return self.address.path.partition("?")[0]

    @property
    def number(self) -> int:
        """Whose end is waited for."""
        return 0 if self._port is None else self._port.number

    def start(self) -> None:
        """Begin to accept."""
        if self._port is not None:
            self._port.start()

    def sibling(self, path: str) -> Listener | None:
        """The listener at the same port that answers to ``path``; None if that is this one, or none."""
        others = () if self._port is None else self._port.members
        return next((one for one in others if one is not self and one.path == path), None)

    @property
    def shares(self) -> bool:
        """Return True if there are others at the same port."""
        return self._port is not None and len(self._port.members) > 1

    def meet(self) -> tuple[Any, int | None]:
        """Return a stream whose other end was accepted here, and its descriptor. Raises Closed, OSError."""
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
        """Accept no more. The address is free when this returns."""
        if self.address.scheme == "inproc":
            if Listener.inproc.get(self.address.url) is self:
                del Listener.inproc[self.address.url]
            return
        with self._sharing:
            port = self._port
            assert port is not None
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

    def __init__(self, address: Address, tls: TLS | None) -> None:
        self.tls = tls
        self.members: tuple[Listener, ...] = ()
        self._address = address
        self._lock = threading.RLock()  # a finalizer may close in the middle of anything
        self._started = False
        self._closed = False
        self._pending = False
        self._expected: int | None = None  # descriptor of the next stream, most likely
        self._let_go = False  # by the thread that closes it
        self._aio: Any = None
        self._config = _config(tls, address, "listen")
        self._alarm: Alarm | None = None
        slot = ffi.new("nng_stream_listener **")
        self._fail(lib.nng_stream_listener_alloc(slot, address.stream.encode()))
        self._listener = slot[0]
        try:
            _configure("listener", self._listener, address, self._config)
            self._fail(lib.nng_stream_listener_listen(self._listener))
        except BaseException:
            lib.nng_stream_listener_free(self._listener)
            raise
        super().__init__()

    def _fail(self, code: int) -> None:
        if not code:
            return
        url = self._address.url
        mapped = error(code, "listen")
        if isinstance(mapped, ConfigError):
            raise ConfigError("listen", f"{url}: {mapped.why}", url)
        raise Unreachable(url, f"cannot listen: {strerror(code)}")

    def number_bound(self) -> int | None:
        """The port of a transport that has ports."""
        if not self._address.ported:
            return None
        port = ffi.new("int *")
        check(lib.nng_stream_listener_get_int(self._listener, b"tcp-bound-port", port), self._address.url)
        return int(port[0])

    def bound(self, address: Address) -> str:
        """Return the URL that is bound for a listener at ``address``."""
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
                self._pending = True
                self._expected = _expected(self._address)
                lib.nng_stream_listener_accept(self._listener, self._aio)

    def completed(self, which: int) -> None:
        code = lib.nng_aio_result(self._aio)
        stream = None if code else ffi.cast("nng_stream *", lib.nng_aio_get_output(self._aio, 0))
        with self._lock:
            self._pending = False
            closed, last = self._closed, self._let_go
        if closed:
            if stream is not None:
                close(stream)
            if last:
                self._free()
            return
        if stream is not None:
            try:
                members = self.members
                if members:
                    members[0].accepted(stream, self._descriptor(stream), members[0])
                else:
                    close(stream)
            finally:
                self._post()
        elif code == NO_DESCRIPTORS:
            log.warning("%s: no descriptors for another connection", self._address.url)
            if self._alarm is None:
                self._alarm = Alarm(self._again)
            self._alarm.set(BREATH)
        else:
            self._post()

    def _descriptor(self, stream: Any) -> int | None:
        if not self._address.local:
            return _descriptor(stream, self._address, self._expected)
        if not descriptors.available:
            return None
        with descriptors.one_at_a_time:  # the next is accepted when this one is dealt with
            return descriptors.newcomer(_path(self.bound(self._address)), dialed=False)

    def _again(self) -> None:
        self._post()

    def close(self) -> None:
        """Accept no more. The address is free when this returns."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pending = self._pending
            if pending:
                self.ending()
        if self._alarm is not None:
            self._alarm.close()
        lib.nng_stream_listener_close(self._listener)
        if pending:
            lib.nng_aio_abort(self._aio, lib.NNG_ECLOSED)
        with self._lock:
            self._let_go = True  # and the callback frees, if it is still to come
            pending = self._pending
        if not pending:
            self._free()

    def _free(self) -> None:
        lib.nng_stream_listener_free(self._listener)
        if self._aio is not None:
            self.ended(self._aio)
        else:
            self.ended()


# ---- dialling --------------------------------------------------------------------------------------------------------


class Dialer(Owner):
    """Connects to ``address``, again and again until it succeeds, and again after ``lost``.

    ``connected(stream, descriptor, dialer)`` is called on an NNG thread (inproc: the alarm's) and owns the stream;
    ``descriptor`` is None where it is not known. ``longest``: seconds between two tries.
    """

    def __init__(
        self, address: Address, tls: TLS | None, longest: float, connected: Callable[[Any, int | None, Dialer], None]
    ) -> None:
        self.address = address
        self.failure = ""  # why the last try was in vain
        self._connected = connected
        self._longest = longest
        self._pause = min(SHORTEST, longest)
        self._lock = threading.Lock()
        self._closed = False
        self._pending = False
        self._let_go = False  # by the thread that closes it
        self._aio: Any = None
        self._dialer: Any = None
        self._expected: int | None = None  # descriptor of the next stream, most likely
        self._found: int | None = None
        self._config = _config(tls, address, "dial")
        super().__init__()
        self._alarm = Alarm(self._again)
        if address.scheme == "inproc":
            return
        slot = ffi.new("nng_stream_dialer **")
        if code := lib.nng_stream_dialer_alloc(slot, address.stream.encode()):
            raise ConfigError("dial", f"{address.url}: {strerror(code)}", address.url)
        self._dialer = slot[0]
        _configure("dialer", self._dialer, address, self._config)

    def start(self) -> None:
        """Make the first try."""
        if self._dialer is None:
            self._alarm.set(0.0)
            return
        self._aio = self.aio(0)
        self._again()

    def _again(self) -> None:
        if self._dialer is None:
            self._meet()
            return
        if self.address.local and descriptors.available:
            with descriptors.one_at_a_time:  # NNG makes a Unix socket before this call returns
                path = _path(self.address.url)
                descriptors.look(path, dialed=True)
                self._dial()
                self._found = descriptors.newcomer(path, dialed=True)
        else:
            self._dial()

    def _dial(self) -> None:
        with self._lock:
            if not self._closed and not self._pending:
                self._pending = True
                self._expected = _expected(self.address)
                lib.nng_stream_dialer_dial(self._dialer, self._aio)

    def _descriptor(self, stream: Any) -> int | None:
        if not self.address.local:
            return _descriptor(stream, self.address, self._expected)
        with descriptors.one_at_a_time:
            return self._found

    def _meet(self) -> None:
        listener = Listener.inproc.get(self.address.url)
        if self._closed:
            return
        try:
            if listener is None:
                raise Closed(self.address.url)
            stream, descriptor = listener.meet()
        except (NngkitError, OSError) as wrong:
            self.failure = str(wrong)
            self._retry()
        else:
            self._connected(stream, descriptor, self)

    def completed(self, which: int) -> None:
        code = lib.nng_aio_result(self._aio)
        stream = None if code else ffi.cast("nng_stream *", lib.nng_aio_get_output(self._aio, 0))
        with self._lock:
            self._pending = False
            closed, last = self._closed, self._let_go
        if closed:
            if stream is not None:
                close(stream)
            if last:
                self._free()
        elif stream is not None:
            self._connected(stream, self._descriptor(stream), self)
        else:
            self.failure = strerror(code)
            self._retry()

    def _retry(self) -> None:
        # a random part of the pause, so that many who lost one listener do not all come back at once
        pause = self._pause * random.uniform(0.5, 1.0)
        self._pause = min(self._pause * 2, self._longest)
        if not self._closed:
            self._alarm.set(pause)

    def lost(self, *, joined: bool) -> None:
        """Try again: the connection has ended. ``joined``: it had been one, so the pauses begin anew."""
        if joined:
            self._pause = min(SHORTEST, self._longest)
        self._retry()

    def close(self) -> None:
        """Try no more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pending = self._pending
            if pending:
                self.ending()
        self._alarm.close()
        if self._dialer is None:
            self.ended()
            return
        lib.nng_stream_dialer_close(self._dialer)
        with self._lock:
            self._let_go = True
            pending = self._pending
        if not pending:
            self._free()

    def _free(self) -> None:
        lib.nng_stream_dialer_free(self._dialer)
        if self._aio is not None:
            self.ended(self._aio)
        else:
            self.ended()


# ---- streams ---------------------------------------------------------------------------------------------------------


def wrap(sock: sockets.socket) -> tuple[Any, int | None]:
    """Return ``sock`` as a stream, which owns it from then on, and its descriptor."""
    slot = ffi.new("nng_stream_listener **")
    check(lib.nng_stream_listener_alloc(slot, b"socket://"), "inproc")
    listener, aio, number = slot[0], new_aio(), sock.fileno()
    try:
        check(lib.nng_stream_listener_listen(listener), "inproc")
        lib.nng_stream_listener_accept(listener, aio)
        check(lib.nng_stream_listener_set_int(listener, b"socket:fd", number), "inproc")
        sock.detach()
        lib.nng_aio_wait(aio)  # it has what it waited for
        check(lib.nng_aio_result(aio), "inproc")
        return ffi.cast("nng_stream *", lib.nng_aio_get_output(aio, 0)), number if descriptors.available else None
    finally:
        lib.nng_aio_free(aio)
        lib.nng_stream_listener_close(listener)
        lib.nng_stream_listener_free(listener)


def _expected(address: Address) -> int | None:
    polled = descriptors.available and address.ported and not address.tls
    return descriptors.lowest_free() if polled else None


def _descriptor(stream: Any, address: Address, expected: int | None) -> int | None:
    """Return the descriptor of a TCP stream; None where it is not known, or of no use: TLS reads ahead of its user."""
    if not descriptors.available or address.tls:
        return None
    local, remote = _endpoint(stream, b"local-address"), _endpoint(stream, b"remote-address")
    return None if local is None or remote is None else descriptors.by_names(local, remote, expected)


def _path(url: str) -> bytes:
    """Return the name of a Unix socket as the system has it."""
    scheme, _, name = url.partition("://")
    return b"\0" + unquote_to_bytes(name) if scheme == "abstract" else os.fsencode(name)


def _endpoint(stream: Any, which: bytes) -> descriptors.Endpoint | None:
    where = ffi.new("nng_sockaddr *")
    if lib.nng_stream_get_addr(stream, which, where):
        return None
    if where.s_family == lib.NNG_AF_INET:
        host = sockets.inet_ntop(sockets.AF_INET, bytes(ffi.buffer(ffi.addressof(where.s_in, "sa_addr"))))
        return host, sockets.ntohs(where.s_in.sa_port)
    if where.s_family == lib.NNG_AF_INET6:
        host = sockets.inet_ntop(sockets.AF_INET6, bytes(ffi.buffer(ffi.addressof(where.s_in6, "sa_addr"))))
        return host, sockets.ntohs(where.s_in6.sa_port)
    return None


def remote(stream: Any) -> str | None:
    """Return the host and port at the other end; None if it has none, or has gone."""
    endpoint = _endpoint(stream, b"remote-address")
    if endpoint is None:
        return None
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_process(stream: Any) -> int | None:
    """Return the id of the process at the other end of a Unix socket; None where that is not known."""
    number = ffi.new("uint64_t *")
    return None if lib.nng_stream_get_uint64(stream, b"ipc:peer-pid", number) else int(number[0])


def common_name(stream: Any) -> str | None:
    """Return the common name in the certificate of the peer."""
    name = ffi.new("char **")
    # a certificate without one gives NULL, and no error
    if lib.nng_stream_get_string(stream, b"tls-peer-cn", name) or not name[0]:
        return None
    text = bytes(ffi.string(name[0])).decode("utf-8", "replace")
    lib.nng_strfree(name[0])
    return text


def alternative_names(stream: Any) -> tuple[str, ...]:
    """Return the subject alternative names in the certificate of the peer."""
    slot = ffi.new("void **")
    if lib.nng_stream_get_ptr(stream, b"tls-peer-alt-names", slot) or not slot[0]:
        return ()
    array = ffi.cast("char **", slot[0])
    names: list[str] = []
    while array[len(names)]:
        names.append(bytes(ffi.string(array[len(names)])).decode("utf-8", "replace"))
    for index in range(len(names)):
        lib.nng_strfree(array[index])
    lib.nng_free(slot[0], (len(names) + 1) * ffi.sizeof("char *"))
    return tuple(names)


def verified(stream: Any) -> bool:
    """Return whether the certificate of the peer was checked; meant after the handshake only."""
    checked = ffi.new("bool *")
    return not lib.nng_stream_get_bool(stream, b"tls-verified", checked) and bool(checked[0])
