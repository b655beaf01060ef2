"""Dialers: connect to an address, and reconnect. Independent of SP, messages and nngkit's sockets."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Final

from nngkit.errors import Closed, ConfigError, NngkitError

from . import _descriptors as descriptors
from ._addresses import Address
from ._alarm import Alarm
from ._listener import Listener
from ._nng import ffi, lib, strerror
from ._operations import Owner, atomically
from ._streams import close, configure, expected_descriptor, find_descriptor, remote, tls_config, unix_path
from ._tls import TLS

SHORTEST: Final = 0.05  # seconds between the first two tries of a dialer
# Milliseconds of one try. The kernel repeats its request after 1 s, 3 s, 7 s, 15 s ..., and a new try asks at once: one
# that began while the network was away would sleep through its return.
TRY: Final = 2_000
LONG_TRY: Final = 5_000  # of every fourth, for peers whose answer takes longer


class Dialer(Owner):
    """Connect to ``address``, again and again until it succeeds, and again after ``lost``.

    ``connected(stream, descriptor, dialer)`` is called on an NNG thread (inproc: the alarm thread) and owns the stream;
    ``descriptor`` is None if unknown. ``longest``: seconds between two tries at most.
    """

    def __init__(
        self,
        address: Address,
        tls: TLS | None,
        longest: float,
        connected: Callable[[Any, int | None, Dialer], None],
        priority: int,
    ) -> None:
        self.address = address
        self.priority = priority
        self._connected = connected
        self._longest = longest
        self._pause = min(SHORTEST, longest)
        self._lock = threading.Lock()
        self._closed = False
        self._pending = False
        self._close_returned = False  # the closing thread has made its last call, before the last callback
        self._aio: Any = None
        self._dialer: Any = None
        self._tries = 0
        self._expected: int | None = None  # likely descriptor of the next stream
        self._found: int | None = None
        self._config = tls_config(tls, address, "dial")
        self._alarm = Alarm(self._again)
        if address.scheme == "inproc":
            super().__init__()
            return
        slot = ffi.new("nng_stream_dialer **")
        if code := lib.nng_stream_dialer_alloc(slot, address.stream.encode()):
            raise ConfigError("dial", f"{address.url}: {strerror(code)}", address.url)
        self._dialer = slot[0]
        try:
            configure("dialer", self._dialer, address, self._config)
            super().__init__()
        except BaseException:
            lib.nng_stream_dialer_free(self._dialer)
            raise

    @property
    def closed(self) -> bool:
        """True once ``close`` has begun."""
        return self._closed

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
            with descriptors.one_at_a_time:  # NNG creates a Unix socket before this call returns
                path = unix_path(self.address.url)
                descriptors.look(path, dialed=True)
                self._dial()
                self._found = descriptors.newcomer(path, dialed=True)
        else:
            self._dial()

    def _dial(self) -> None:
        with self._lock:
            if not self._closed and not self._pending:
                self._expected = expected_descriptor(self.address)
                if self.address.ported:
                    self._tries += 1
                    lib.nng_aio_set_timeout(self._aio, TRY if self._tries % 4 else LONG_TRY)
                atomically((setattr, self, "_pending", True), (lib.nng_stream_dialer_dial, self._dialer, self._aio))

    def _descriptor(self, stream: Any) -> int | None:
        if not self.address.local:
            return find_descriptor(stream, self.address, self._expected)
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
        except (NngkitError, OSError):
            self._retry()
        else:
            self._connected(stream, descriptor, self)

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
        elif stream is None:
            self._retry()
        elif self.address.ported and remote(stream) is None:
            # Still connecting, or over: NNG has taken an event of an earlier try, whose socket had this descriptor.
            # Were it used, its descriptor could not be found, and the end of its peer not be noticed.
            close(stream)
            self._retry()
        else:
            self._connected(stream, self._descriptor(stream), self)

    def _retry(self) -> None:
        # random, so that peers that lost the same listener do not return all at once
        pause = self._pause * random.uniform(0.5, 1.0)
        self._pause = min(self._pause * 2, self._longest)
        if not self._closed:
            self._alarm.set(pause)

    def lost(self, *, joined: bool) -> None:
        """Try again, as the connection has ended. ``joined``: it had joined, so the pauses start from the shortest."""
        if joined:
            self._pause = min(SHORTEST, self._longest)
        self._retry()

    def close(self) -> None:
        """Stop trying. Called again, it continues where a signal handler that raised interrupted it."""
        with self._lock:
            if self._close_returned or self.freed:
                return
            self._closed = True
            if self._pending:
                self.ending()
        self._alarm.close()
        if self._dialer is None:
            self.ended()
            return
        lib.nng_stream_dialer_close(self._dialer)
        with self._lock:
            pending = self._close_returned = self._pending  # if the callback is still to come, it frees
        if not pending:
            self._free()

    def _free(self) -> None:
        aios = () if self._aio is None else (self._aio,)
        self.ended(*aios, frees=[(lib.nng_stream_dialer_free, self._dialer)])
