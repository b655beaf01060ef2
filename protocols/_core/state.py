"""State that all parts of a socket share: its lock, its connections, NNG's buffers, pending notifications.

Callbacks of users (``on_peer``) and wake-ups run without the lock: a thread that has released it calls ``notify``. A
State does not refer to its socket, so an abandoned socket is garbage although NNG's threads and ours still use this.

May not know: the parts, streams, protocols.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from nngkit.errors import Closed
from nngkit.protocols._core.pipe import PeerEvent
from nngkit.protocols._nng.library import IOVS, ffi, new_aio, uninitialized
from nngkit.protocols._waiting.faults import check_ours
from nngkit.protocols._waiting.waiters import wake_all

log = logging.getLogger("nngkit.protocols")

BUFFER: Final = 256 * 1024  # bytes of a receive buffer, of the shared one too: larger is no faster

Peer = TypeVar("Peer")  # a Connection, which is declared above this module


class State(Generic[Peer]):
    """State of one socket. ``reason``: why it is closed; ``lingers``: accepted messages are still written.

    ``reading`` and ``writing``: the connection whose operation on ``sync_aio`` was begun and not finished; for
    ``reading`` also the one whose direct reception was not handled yet.
    """

    # what connections and queues call of the parts above them; the core sets it
    inbox: Any
    outbox: Any
    poller: Any
    watch: Any
    lose: Callable[..., None]
    resume: Callable[[], None]
    complete_handshake: Callable[[Peer], None]
    identity: Any

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reason: Closed | None = None
        self.lingers = False
        # connections by number
        self.present: dict[int, Peer] = {}
        self.handshaking: dict[int, Peer] = {}  # not joined yet: handshake, or `admit`, in progress
        # for operations tried at once, under the lock
        self.iov = ffi.new("nng_iov[]", IOVS)
        self.sync_aio = new_aio()
        self.buffer: Any = uninitialized("char[]", BUFFER)  # the system allocates only the pages that are used
        self.view: Any = ffi.buffer(self.buffer)
        self.received = 0  # bytes in the buffer, of the direct reception of ``reading``
        self.read_at = 0.0  # perf_counter() at which a loop has last read
        self.reading: Peer | None = None
        self.writing: Peer | None = None
        # notifications, which are made without the lock
        self.wake_receivers = False
        self.wake_senders = False
        self.receivers: set[Any] = set()
        self.senders: set[Any] = set()
        self.peer_waiters: set[Any] = set()
        self.events: deque[PeerEvent] = deque()
        self._notifying = threading.Lock()
        self._followers: dict[object, Callable[[PeerEvent], None]] = {}
        self._told: set[int] = set()  # the peers of which all followers know that they have joined
        self._calls: deque[Callable[[object], None]] = deque()

    def check_open(self) -> None:
        """Raise the reason why the socket is closed, if it is."""
        if (reason := self.reason) is not None:
            raise reason.again()

    def joined(self) -> Sequence[Peer]:
        """Return the joined connections, oldest first. Under the lock."""
        return list(self.present.values())

    @property
    def told(self) -> int:
        """Number of joined connections of which all followers know, for callers that wait for peers."""
        return sum(number in self.present for number in list(self._told))

    def has_told(self, n: int) -> bool:
        """Return True if there are so many. Cheap as long as they are too few, as it is asked after each that joins."""
        return len(self._told) >= n and self.told >= n

    # ------------------------------------------------------------------ notifications, without the lock

    def follow(self, callback: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Call ``callback`` for every event, without the lock; return a function that unregisters it."""
        key = object()
        self._followers[key] = callback

        def end() -> None:
            self._followers.pop(key, None)

        return end

    def call_later(self, call: Callable[[object], None]) -> None:
        """Call ``call(loop)`` once the lock is free; ``loop`` is the loop it runs in, or None."""
        self._calls.append(call)

    def notify(self, loop: object = None) -> None:
        """Make the pending notifications, in ``loop`` or a thread (None). Called whenever the lock was released."""
        while self.wake_receivers or self.wake_senders or self.events or self._calls:
            # in a `for` statement: a signal handler that raised after a call would leave the lock held for ever
            for acquired in map(self._notifying.acquire, (False,)):
                if not acquired:
                    return  # its holder checks again
                try:
                    self._notify_once(loop)
                finally:
                    self._notifying.release()

    def _notify_once(self, loop: object) -> None:
        """Make each pending notification once; one that a raising signal handler interrupts is made again."""
        while self._calls:
            try:
                self._calls[0](loop)
            except Exception as wrong:
                check_ours(wrong)
                log.exception("a notification failed")
            self._calls.popleft()
        if self.wake_receivers:
            self.wake_receivers = False
            try:
                wake_all(self.receivers, loop)
            except BaseException:
                self.wake_receivers = True
                raise
        if self.wake_senders:
            self.wake_senders = False
            try:
                wake_all(self.senders)
            except BaseException:
                self.wake_senders = True
                raise
        while self.events:
            event = self.events[0]
            for follower in list(self._followers.values()):
                try:
                    follower(event)
                except Exception:
                    log.exception("on_peer callback failed")
            if event.kind == "joined":
                self._told.add(event.pipe.id)
            else:
                self._told.discard(event.pipe.id)
            wake_all(self.peer_waiters)
            self.events.popleft()

    def free_buffer(self) -> None:
        """Free the receive buffer: a closed socket may wait long for the garbage collector."""
        self.buffer = self.view = None

    def forked(self, reason: Closed) -> None:
        """Refuse everything in a forked child, which has none of the threads that may hold a lock."""
        self.lock = threading.Lock()
        self._notifying = threading.Lock()
        self.reason = reason
        self.lingers = False
        self.present = {}
