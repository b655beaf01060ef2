"""Durable outbox: messages are stored on disk, then sent in order to a connected peer, also after a restart.

::

    async with Req(dial="tcp://host:7000") as req, Outbox("spool", req) as outbox:
        await outbox.put(b"order 42")          # on disk when it returns; the peer may be away
        await outbox.flush()                   # acknowledged

===========  ======================================================================================================
socket       an acknowledged record was
===========  ======================================================================================================
REQ          replied to, and the reply is noted on disk: it is never sent again, by any restart. Delivery is at least
             once: a reply that is lost in a crash is asked for again, with the same number. With an OutboxReceiver (or
             a Recorder, `form="record"`) at the other end, exactly once
PUSH         written to a connection, in order, while a peer was connected. What a peer had not read when it died is
             lost: PUSH has no acknowledgement. After a kill of the sender, one message may be sent again
===========  ======================================================================================================

Forms of a message: "numbered" (several values in one, with the outbox's id and their numbers: outbox_entries.py),
"record" (the requests of a Recorder's REP), "plain" (each value as it is, so that duplicates cannot be recognized).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Self

import trio

from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.errors import BadMessage, Closed, ConfigError, Damaged, Full, NngkitError, NotStored, TimedOut, TooLarge
from nngkit.fanout.outbox.entries import encode_entries
from nngkit.fanout.outbox.store import OVERHEAD, OutboxStore
from nngkit.file_modes import checked_path
from nngkit.instruments import Bytes, Gauge, Problem, Total
from nngkit.journal.ingest import encode_request, parse_reply
from nngkit.journal.record import held_bytes
from nngkit.protocols import Push, Req
from nngkit.redial import SilentServer

PAUSES: Final = (0.02, 0.1, 0.3, 1.0)  # seconds between tries; the last one repeats
TRY: Final = 10.0  # seconds that a peer has for a reply before it is asked again
MOST: Final = 256  # values of a message
SIZE: Final = 256 << 10  # bytes of a message's values: a quarter of what sockets accept by default
FORMS: Final = ("numbered", "record", "plain")


@dataclass(frozen=True, slots=True)
class OutboxStats:
    """State and counters of an Outbox."""

    stored: Gauge
    """One past the number of the last value stored."""
    acknowledged: Gauge
    """One past the number of the last value acknowledged."""
    size: Bytes
    """Bytes that wait, of `cap_bytes`."""
    sent: Total
    """Values sent, with repetitions."""
    retries: Total
    """Retries after a failure."""
    refused: Total
    """Values refused because the outbox was full."""
    failure: Problem
    """Why the last try failed, None after a success."""


class Outbox(UnderTrio):
    """Outbox in `directory`, for one process; use it with `async with`, under trio. Does not close the socket.

    `cap_bytes`: values that may wait, with 64 bytes for each. `when_full`: "block" until there is room, "raise" Full,
    or "drop" the new value and count it. `segment_bytes`: a log file over it is followed by a new one; those before
    the position are deleted. Entering raises ConfigError, Damaged.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        socket: Req | Push,
        *,
        form: Literal["numbered", "record", "plain"] = "numbered",
        cap_bytes: int = 1 << 30,
        when_full: Literal["block", "raise", "drop"] = "block",
        segment_bytes: int = 16 << 20,
        reply_timeout: float = TRY,
    ) -> None:
        if not isinstance(socket, Req | Push):
            raise ConfigError("socket", f"{type(socket).__name__} is neither Req nor Push", socket)
        if form not in FORMS or (form == "record" and isinstance(socket, Push)):
            known = ", ".join(FORMS)
            raise ConfigError("form", f"{form!r} is none of {known}, or is not for a Push", form)
        if when_full not in ("block", "raise", "drop"):
            raise ConfigError("when_full", f"{when_full!r} is none of 'block', 'raise' and 'drop'", when_full)
        if cap_bytes < 1:
            raise ConfigError("cap_bytes", f"{cap_bytes!r} is not 1 or more", cap_bytes)
        self._folder = checked_path("outbox", directory)
        self._socket = socket
        self._server = SilentServer(socket, "receiver of an outbox") if isinstance(socket, Req) else None
        self._form = form
        self._cap = cap_bytes
        self._when_full = when_full
        self._segment_bytes = segment_bytes
        self._reply_timeout = reply_timeout

    async def __aenter__(self) -> Self:
        self._entering()
        self._token = trio.lowlevel.current_trio_token()
        self._store: OutboxStore = await trio.to_thread.run_sync(
            partial(
                OutboxStore,
                self._folder,
                segment_bytes=self._segment_bytes,
                buffer_bytes=self._cap + SIZE,
                deliver=self._deliver,
            )
        )
        self._size = self._store.size
        self._acknowledged = self._store.acknowledged
        self._sent = self._retries = self._refused = 0
        self._failure: str | None = None
        self._stored = WakeUp()
        self._moved = trio.Event()
        self._sending = True
        self._background = Background()
        await self._background.open()
        self._background.start(self._send_all)
        return self

    async def _before_end(self) -> None:
        self._stop()

    async def _after_end(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._store.close)

    @property
    def id(self) -> bytes:
        """The outbox's id, 16 bytes, kept with the directory."""
        return self._store.id

    @property
    def stats(self) -> OutboxStats:
        """Current state."""
        return OutboxStats(
            self._store.end, self._acknowledged, self._size, self._sent, self._retries, self._refused, self._failure
        )

    async def put(self, value: bytes) -> int | None:
        """Store `value`; return its number when it is on disk, None if it was dropped.

        If cancelled, it may still be stored. Raises Full, NotStored, TooLarge; Closed if it waits for room in vain.
        """
        return await self.put_many((value,))

    async def put_many(self, values: Sequence[bytes]) -> int | None:
        """Like `put`, for several, stored contiguously. Return the number of the first."""
        values = [held_bytes(value) for value in values]
        size = sum(map(len, values)) + OVERHEAD * len(values)
        if size > self._cap:
            raise TooLarge(size, self._cap)
        while self._size + size > self._cap:
            if self._when_full == "block":
                await self._next_move()
                continue
            self._refused += len(values)
            if self._when_full == "raise":
                raise Full(f"{self._folder}: {self._size} of {self._cap} bytes wait for the peer")
            return None
        self._size += size
        stored = trio.Event()
        results: list[tuple[int, NotStored | None]] = []

        def done(first: int, _: int, why: NotStored | None) -> None:
            results.append((first, why))
            if why is not None:
                self._size -= size
            stored.set()
            self._stored.wake()

        try:
            self._store.append(values, time.time_ns() // 1000, done)
        except NngkitError:
            self._size -= size
            raise
        await stored.wait()
        first, why = results[0]
        if why is not None:
            raise why
        return first

    async def flush(self) -> None:
        """Wait until all records stored so far are acknowledged. Raises Closed if the outbox or its socket is."""
        end = self._store.end
        while self._acknowledged < end:
            await self._next_move()

    async def _next_move(self) -> None:
        """Wait until records were acknowledged. Raises Closed, or what has ended the outbox, if none will be."""
        if not self._sending:
            raise self._background.ended(f"{self._folder}: this outbox, or its socket, is closed")
        await self._moved.wait()

    def _stop(self) -> None:
        self._sending = False
        self._moved.set()

    def _deliver(self, calls: list[Callable[[], None]]) -> None:  # on the log's thread
        def run() -> None:
            for call in calls:
                call()

        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(run)

    # Sending

    async def _send_all(self) -> None:
        attempt = 0
        while True:
            while self._acknowledged >= self._store.end:
                await self._stored.wait()
            first = self._acknowledged
            most = 1 if self._form == "plain" and isinstance(self._socket, Req) else MOST
            try:
                values = await trio.to_thread.run_sync(self._store.read, first, self._store.end, most, SIZE)
                await self._send(first, values)
                await trio.to_thread.run_sync(self._store.acknowledge, first + len(values))
            except Closed:
                self._stop()
                return  # the socket is closed: the rest waits for the next start
            except Damaged:
                raise  # no later try reads it
            except (NngkitError, OSError) as error:
                self._failure = str(error)
                self._retries += 1
                await trio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
                attempt += 1
                continue
            attempt = 0
            self._failure = None
            self._acknowledged = first + len(values)
            self._size -= sum(map(len, values)) + OVERHEAD * len(values)
            self._moved.set()
            self._moved = trio.Event()

    async def _send(self, first: int, values: list[bytes]) -> None:
        """Send values and wait for their acknowledgement. Raises an error of the socket, NotStored."""
        socket, store = self._socket, self._store
        if self._form == "plain":
            messages = values
        elif self._form == "numbered":
            messages = [encode_entries(store.id, first, values)]
        else:
            messages = [encode_request(store.id + first.to_bytes(8, "big"), values)]
        if self._server is not None:
            reply = await self._server.request(messages[0], self._reply_timeout)
            self._sent += len(values)
            if self._form == "record":
                try:
                    parse_reply(reply)
                except BadMessage as error:
                    raise NotStored(str(error)) from error
            return
        assert isinstance(socket, Push)
        await socket.await_for_peers(1, timeout=None)
        broken = socket.stats.broken
        await socket.asend_many(messages, timeout=None)
        self._sent += len(values)
        await socket.adrain(timeout=None)
        if socket.stats.broken > broken:
            raise TimedOut("the connection ended while a message was written")
