"""One attempt to connect to one address: an NNG dialer that is used once. Independent of SP, messages and sockets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from nngkit.protocols._nng import descriptors
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.library import check, ffi, lib
from nngkit.protocols._nng.names import Number, spelled
from nngkit.protocols._nng.operations import Owner, apart
from nngkit.protocols._nng.process import free_later
from nngkit.protocols._nng.streams import close, configure, expected_descriptor, find_descriptor, remote, unix_path

log = logging.getLogger("nngkit.protocols")


class Attempt(Owner):
    """Connect to ``number``, or to an ``address`` that has none; ``index`` is its place in the race.

    ``done(attempt, code, stream)`` is called on an NNG thread and owns the stream, which is None unless the code is 0.
    Raises NngkitError or OSError.
    """

    def __init__(
        self,
        address: Address,
        number: Number | None,
        index: int,
        done: Callable[[Attempt, int, Any], None],
    ) -> None:
        self.index = index
        self._address = address
        self._done = done
        self._aio: Any = None
        self._expected: int | None = None  # likely descriptor of the stream
        self._found: int | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._stream: Any = None  # one that may not be connected yet
        url = address.stream if number is None else address.at(spelled(number, address), address.port or 0)
        slot = ffi.new("nng_stream_dialer **")
        check(lib.nng_stream_dialer_alloc(slot, url.encode()), address.url)
        self._dialer = slot[0]
        super().__init__()
        try:
            configure("dialer", self._dialer, address)
            self._aio = self.aio(0)
        except BaseException:
            self._free()
            raise

    def __repr__(self) -> str:
        return f"<Attempt {self.number} {self._address.url}>"

    def start(self) -> None:
        """Begin to connect."""
        if self._address.local and descriptors.available:
            with descriptors.one_at_a_time:  # NNG creates a Unix socket before this call returns
                path = unix_path(self._address.url)
                descriptors.look(path, dialed=True)
                lib.nng_stream_dialer_dial(self._dialer, self._aio)
                self._found = descriptors.newcomer(path, dialed=True)
        else:
            self._expected = expected_descriptor(self._address)
            lib.nng_stream_dialer_dial(self._dialer, self._aio)

    def descriptor(self, stream: Any) -> int | None:
        """Return the descriptor of the stream; None if it is unknown."""
        if not self._address.local:
            try:
                return find_descriptor(stream, self._expected)
            except Exception:  # the connection works without it
                log.exception("%r: no descriptor", self)
                return None
        with descriptors.one_at_a_time:
            return self._found

    def completed(self, which: int) -> None:
        code = lib.nng_aio_result(self._aio)
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is None and not code:
            stream = ffi.cast("nng_stream *", lib.nng_aio_get_output(self._aio, 0))
            if self._address.ported and remote(stream) is None and self._wait(stream):
                return
        if stream is not None and code:
            close(stream)
        self._settle(code, None if code else stream)

    def _wait(self, stream: Any) -> bool:
        """Wait until ``stream`` is connected, which NNG may report too early (docs/nng.md); False if it was stopped."""
        with self._lock:
            if self._stopped:
                return False
            self._stream = stream
            lib.nng_stream_send(stream, self._aio)  # one of no bytes ends when the socket is connected or has failed
        return True

    def _settle(self, code: int, stream: Any) -> None:
        self.ending()
        try:
            self._done(self, code, stream)
        finally:
            apart(self._free)

    def stop(self) -> None:
        """End the attempt; ``done`` follows. Idempotent."""
        self.ending()
        apart(self._close)

    def _close(self) -> None:
        if self.freed:
            return
        lib.nng_stream_dialer_close(self._dialer)
        with self._lock:
            self._stopped = True
            stream = self._stream
            if stream is not None:
                lib.nng_stream_close(stream)  # ends the send

    def _free(self) -> None:
        aios = () if self._aio is None else (self._aio,)
        free = free_later if self._stopped else lib.nng_stream_dialer_free
        self.ended(*aios, frees=[(free, self._dialer)])
