"""DNS over UDP and TCP, at one port: takes queries, and sends what a function replies. trio.

    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve, "127.0.0.1", 8600, zone.reply, zone.stats)

All that reach it may ask, and a sender's address proves nothing over UDP. So work is limited: the time spent,
connections, their queries and their time. What is over a limit is dropped and counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from nngkit.errors import Unreachable

if TYPE_CHECKING:
    from nngkit.discovery.dns.zone import DnsStats

DATAGRAM: Final = 4096  # bytes of a query; they have 50 or so
SHARE: Final = 0.25  # of the time is spent on replies at most; more would slow the surveys in the same loop
BURST: Final = 0.25  # seconds that may be spent at once
CONNECTIONS: Final = 64
QUERIES: Final = 100  # of a connection
PATIENCE: Final = 5.0  # seconds for each query, and for sending its reply
REACHABLE_SIZE: Final = 1232  # bytes of a datagram that no network fragments (DNS flag day 2020)

Reply = Callable[[bytes, int | None], bytes | None]
"""Function of a query, and of the most bytes of the reply (None: any number); None gets no reply."""


class _Replies:
    """The function that replies, within the time that it may take."""

    def __init__(self, reply: Reply, stats: DnsStats) -> None:
        self._reply, self._stats = reply, stats
        self._left, self._at = BURST, time.monotonic()

    def __call__(self, query: bytes, most: int | None) -> bytes | None:
        began = time.monotonic()
        self._left, self._at = min(BURST, self._left + SHARE * (began - self._at)), began
        if self._left < 0.0:
            self._stats.dropped += 1
            return None
        found = self._reply(query, most)
        self._left -= time.monotonic() - began
        return found


async def serve(
    host: str,
    port: int,
    reply: Reply,
    stats: DnsStats,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve at the numeric address `host` until cancelled; report the port, which the system chooses for 0.

    Counts what it drops and cuts in `stats`. Raises Unreachable if the port cannot be had.
    """
    family = trio.socket.AF_INET6 if ":" in host else trio.socket.AF_INET
    replies = _Replies(reply, stats)
    with trio.socket.socket(family, trio.socket.SOCK_DGRAM) as datagrams:
        try:
            (listener,) = await trio.open_tcp_listeners(port, host=host)
            bound: int = listener.socket.getsockname()[1]
            async with listener:
                await datagrams.bind((host, bound))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_answer_datagrams, datagrams, replies)
                    nursery.start_soon(_accept, listener, replies, stats)
                    task_status.started(bound)
        except OSError as error:
            raise Unreachable(f"{host}:{port}", f"cannot listen: {error.strerror or error}") from error


async def _answer_datagrams(datagrams: trio.socket.SocketType, replies: _Replies) -> None:
    while True:
        query, sender = await datagrams.recvfrom(DATAGRAM)
        if (found := replies(query, REACHABLE_SIZE)) is not None:
            with contextlib.suppress(OSError):  # an address that cannot be sent to
                await datagrams.sendto(found, sender)


async def _accept(listener: trio.SocketListener, replies: _Replies, stats: DnsStats) -> None:
    open_now = 0

    async def converse(stream: trio.SocketStream) -> None:
        nonlocal open_now
        open_now += 1
        try:
            async with stream:
                if open_now > CONNECTIONS or not await _converse(stream, replies):
                    stats.cut += 1
        finally:
            open_now -= 1

    await trio.serve_listeners(converse, [listener])


async def _converse(stream: trio.SocketStream, replies: _Replies) -> bool:
    """Answer the queries of a connection; return True if the peer ended it, between two of them."""
    received = bytearray()
    for _ in range(QUERIES):
        with trio.move_on_after(PATIENCE), contextlib.suppress(trio.BrokenResourceError):
            while len(received) < 2 or len(received) < 2 + int.from_bytes(received[:2]):
                some = await stream.receive_some(DATAGRAM)
                if not some:
                    return not received
                received += some
            size = 2 + int.from_bytes(received[:2])
            query = bytes(received[2:size])
            del received[:size]
            found = replies(query, None)
            if found is None:
                return False
            await stream.send_all(len(found).to_bytes(2) + found)
            continue
        return False
    return False
