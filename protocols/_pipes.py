"""Connections of a socket: who is there, who came and went, and waiting for them.

NNG calls back on its own threads, with pynng's per-socket lock held. So nothing here takes a lock: a dict and a few
sets are changed by single operations, and those who wait are woken to look again. A pipe's remote address is gone when
NNG says that it left, so what is worth knowing of it is read when it comes.

May not know: messages, protocols.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pynng

from ._nng import ffi, lib, pipe_counters
from ._refusing import Refusing

COUNTED = 64  # pipes up to which a leaving pipe's counter is read (4 us a pipe each time); beyond, draining is by quiet

GONE = 64  # pipes remembered that left, for those who read what they said last
EARLY_ENDS = 1024  # pipes remembered that left before they came: some never come, and NNG does not reuse ids soon
UNCOUNTED = ("ws", "inproc")  # beginnings of addresses on which NNG counts no messages

log = logging.getLogger("nngkit.protocols")


@dataclass(frozen=True, slots=True)
class Pipe:
    """One connection: NNG's id of it (unique in this process while it lives), and what is known of the other end.

    ``address`` is the remote address as a URL (for ipc and inproc the one both ends share); ``dialed`` tells which
    side connected, ``pid`` is the other process on ipc and abstract. Under TLS ``verified`` says that the peer's
    certificate was checked, ``peer_name`` is its common name and ``alt_names`` its subject alternative names.
    """

    id: int
    address: str
    dialed: bool
    peer_name: str | None = None
    alt_names: tuple[str, ...] = ()
    verified: bool = False
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class PeerEvent:
    """A peer came or went. ``time`` is time.monotonic() seconds."""

    kind: Literal["joined", "left"]
    pipe: Pipe
    time: float


class Counting(Protocol):
    """What counts the messages sent."""

    sent: int


class Pipes:
    """The connections of one socket, and how many messages were written to them."""

    def __init__(
        self,
        pynng_socket: Any,
        *,
        admit: Callable[[Pipe], bool] | None,
        queue: Counting,
        verifies: bool,
        refusing: Refusing | None,
    ) -> None:
        self.present: dict[int, Pipe] = {}
        self.joined = 0
        self.left = 0
        self.refused = 0
        self.sent_at_join: dict[int, int] = {}
        self.written_to_gone = 0
        self.counted = True
        self.waiters: set[Any] = set()
        self._admit = admit
        self._queue = queue
        self._verifies = verifies
        self._refusing = refusing
        self._described: dict[int, Pipe] = {}
        self._followers: dict[object, Callable[[PeerEvent], None]] = {}
        self._raw: dict[int, Any] = {}
        self._ended: dict[int, bool] = {}
        self._gone: dict[int, Pipe] = {}
        self._uncounted = False
        pynng_socket.add_pre_pipe_connect_cb(self._before)
        pynng_socket.add_post_pipe_connect_cb(self._came)
        pynng_socket.add_post_pipe_remove_cb(self._went)

    # ------------------------------------------------------------------ on NNG's threads

    def _before(self, raw: Any) -> None:
        if self._refusing is not None:
            self._refusing.newest = time.monotonic()
        pipe = _describe(raw, self._verifies)
        if pipe is None:
            if self._admit is not None:  # nobody can have been asked about it
                self._bar(raw)
            return
        self._described[pipe.id] = pipe
        if self._admit is None:
            return
        try:
            allowed = self._admit(pipe)
        except Exception:
            log.exception("admit failed for %s: refused", pipe.address)
            allowed = False
        if not allowed:
            self.refused += 1
            del self._described[pipe.id]
            self._bar(raw)

    def _bar(self, raw: Any) -> None:
        if self._refusing is None:
            raw.close()
        else:
            self._refusing.bar(raw)

    def _came(self, raw: Any) -> None:
        # NNG may say that a pipe came before it asks whether it may join, and after it says that it left: then it has
        # been here for nobody.
        if self._ended.pop(raw.id, False) or (self._refusing is not None and self._refusing.bars(raw.id)):
            return
        pipe = self._described.get(raw.id) or _describe(raw, self._verifies)
        if pipe is None:
            return
        self.sent_at_join[pipe.id] = self._queue.sent
        self._raw[pipe.id] = raw
        self._uncounted = self._uncounted or pipe.address.startswith(UNCOUNTED)
        self.present[pipe.id] = pipe
        self._described.pop(pipe.id, None)
        self.joined += 1
        self._tell(PeerEvent("joined", pipe, time.monotonic()))

    def _went(self, raw: Any) -> None:
        self._described.pop(raw.id, None)
        self._raw.pop(raw.id, None)
        if (known := self.present.get(raw.id)) is not None:
            self._gone[raw.id] = known  # before it is not present any more: it is found at any time
        pipe = self.present.pop(raw.id, None)
        barred = self._refusing is not None and self._refusing.left(raw.id)
        if pipe is None:
            if barred:
                return
            self._ended[raw.id] = True
            if len(self._ended) > EARLY_ENDS:
                del self._ended[next(iter(self._ended))]
            return
        if len(self.present) < COUNTED:
            self.written_to_gone += pipe_counters((pipe.id,)).get(pipe.id, (0, 0))[0]
        else:
            self.counted = False
        self.sent_at_join.pop(pipe.id, None)
        self.left += 1
        if len(self._gone) > GONE:
            del self._gone[next(iter(self._gone))]
        self._tell(PeerEvent("left", pipe, time.monotonic()))

    def _tell(self, event: PeerEvent) -> None:
        for follower in list(self._followers.values()):
            try:
                follower(event)
            except Exception:
                log.exception("on_peer callback failed")
        self.wake()

    # ------------------------------------------------------------------ anywhere

    def wake(self) -> None:
        """Have everybody who waits for peers look again."""
        for waiter in self.waiters.copy():
            waiter.wake()

    def follow(self, callback: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Have ``callback`` called, on an NNG thread, for every event; what is returned ends it."""
        key = object()
        self._followers[key] = callback

        def end() -> None:
            self._followers.pop(key, None)

        return end

    def find(self, pipe: int) -> Pipe | None:
        """The connection of that id, None once it has left.

        A message may be here before NNG has told that its pipe came, but not before NNG has asked whether it may.
        """
        return self.present.get(pipe) or self._described.get(pipe) or self.present.get(pipe)

    def whose(self, pipe: int) -> Pipe | None:
        """The connection that a message came by; it may have left since. None if that is long ago."""
        return self.find(pipe) or self._gone.get(pipe)

    def disconnect(self, pipe: Pipe) -> bool:
        """Cut one connection; False if it has gone. A dialler will try again."""
        raw = self._raw.get(pipe.id)
        if raw is None:
            return False
        if self._refusing is not None and self._refusing.youth():
            self._refusing.cut_later(raw.pipe)
            return True
        return not lib.nng_pipe_close(raw.pipe)

    def written(self) -> tuple[int, int]:
        """Messages NNG wrote to and read from connections still here."""
        counters = pipe_counters(self.present).values()
        return sum(out for out, _ in counters), sum(into for _, into in counters)

    def written_by_pipe(self) -> dict[int, int]:
        """Messages NNG wrote to each connection whose transport it counts on."""
        wanted = {pipe.id for pipe in list(self.present.values()) if not pipe.address.startswith(UNCOUNTED)}
        return {pipe: written for pipe, (written, _) in pipe_counters(wanted).items()}

    def blind(self) -> bool:
        """Whether some connection was ever on a transport whose messages NNG does not count."""
        return self._uncounted


def _describe(raw: Any, verifies: bool) -> Pipe | None:
    """What can be said of a connection while it is there; None if it is not."""
    try:
        url = raw.url
    except pynng.NNGException:
        return None
    scheme = url.partition("://")[0]
    address, number = url, ffi.new("uint64_t *")
    if scheme.startswith(("tcp", "ws", "tls")):
        try:
            address = f"{scheme}://{raw.remote_address}"
        except pynng.NNGException:  # gone already
            log.debug("no remote address", exc_info=True)
    dialed = lib.nng_dialer_id(lib.nng_pipe_dialer(raw.pipe)) > 0
    pid = None if lib.nng_pipe_get_uint64(raw.pipe, b"ipc:peer-pid", number) else int(number[0])
    if not scheme.startswith(("tls", "wss")):
        return Pipe(raw.id, address, dialed, pid=pid)
    name, checked = ffi.new("char **"), ffi.new("bool *")
    common_name = None
    # a certificate without a common name gives NULL, and no error
    if not lib.nng_pipe_get_string(raw.pipe, b"tls-peer-cn", name) and name[0]:
        common_name = ffi.string(name[0]).decode("utf-8", "replace")
        lib.nng_strfree(name[0])
    # NNG says "verified", too, where it was told not to look
    verified = verifies and not lib.nng_pipe_get_bool(raw.pipe, b"tls-verified", checked) and bool(checked[0])
    return Pipe(raw.id, address, dialed, common_name, _alt_names(raw), verified)


def _alt_names(raw: Any) -> tuple[str, ...]:
    slot = ffi.new("void **")
    if lib.nng_pipe_get_ptr(raw.pipe, b"tls-peer-alt-names", slot) or not slot[0]:
        return ()
    array = ffi.cast("char **", slot[0])
    names: list[str] = []
    while array[len(names)]:
        names.append(ffi.string(array[len(names)]).decode("utf-8", "replace"))
    for index in range(len(names)):
        lib.nng_strfree(array[index])
    lib.nng_free(slot[0], (len(names) + 1) * ffi.sizeof("char *"))
    return tuple(names)
