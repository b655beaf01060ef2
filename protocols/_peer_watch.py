"""End of TCP connections to peers that cannot be reached: options of the kernel, and looks at its TCP_INFO.

By itself TCP gives up such a peer after a quarter of an hour if it sends, and after two hours if it only receives.
TCP_USER_TIMEOUT is no way out: it also ends the connection of a peer that can be reached and does not read. So the
kernel is only told to ask often enough. The alarm thread reads TCP_INFO, and ``_tcp_info.py`` decides.

May not know: messages, protocols.
"""

from __future__ import annotations

import math
import socket as sockets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from . import _descriptors as descriptors
from ._alarm import Alarm
from ._connection import Connection
from ._tcp_info import TCP_INFO_SIZE, TCPInfo, is_gone, look, next_look, parse, period
from ._transfer import CLOSED

if TYPE_CHECKING:
    from ._core import Core

TCP_RTO_MAX_MS: int | None = 44
"""From <linux/tcp.h>; the socket module does not have it. Set it to None to see how a kernel before 6.15 behaves."""

AT_ONCE: Final = 64  # connections that are looked at before others may use the lock
RESET: Final = b"\1\0\0\0\0\0\0\0"  # SO_LINGER, 0 s: close sends a reset


class PeerWatch:
    """Watch of one core's TCP connections. ``timeout``: seconds without an answer; 0 leaves all to the system."""

    def __init__(self, core: Core, timeout: float) -> None:
        self._core = core
        self._timeout = timeout
        self._alarm = Alarm(self._look)

    def begin(self, connection: Connection) -> None:
        """Watch a new connection, if it is one of TCP whose descriptor is known. Under the core's lock."""
        number = connection.descriptor
        if self._timeout and number is not None and connection.address.ported:
            descriptors.ask(number, self._configure)
            self._alarm.set(period(self._timeout))

    def _configure(self, connection: sockets.socket) -> None:
        """Let the kernel ask often enough.

        With 10 s: a keepalive probe after 4 s without data, then one every 2 s; after 12 s the kernel itself gives up.
        Retransmissions and window probes are 1 s apart at most, from Linux 6.15. Before, their pauses double up to two
        minutes: until the watch ends the connection, it stays silent for as long again as the network was away.
        """
        idle, pause = max(1, int(0.4 * self._timeout)), max(1, int(0.2 * self._timeout))
        tries = math.ceil((1.2 * self._timeout - idle) / pause)
        tcp = sockets.IPPROTO_TCP
        connection.setsockopt(tcp, sockets.TCP_KEEPIDLE, idle)
        connection.setsockopt(tcp, sockets.TCP_KEEPINTVL, pause)
        connection.setsockopt(tcp, sockets.TCP_KEEPCNT, tries)
        if TCP_RTO_MAX_MS is not None:
            # The kernel gives up after 15 retransmissions, here later than this watch.
            with suppress(OSError):
                connection.setsockopt(tcp, TCP_RTO_MAX_MS, max(1_000, int(100 * self._timeout)))

    def _look(self) -> float | None:
        """End the connections whose peers do not answer; return the seconds until the next look."""
        core, wait = self._core, period(self._timeout)
        with core.lock:
            connections = [*core.present.values(), *core.handshaking.values()]
        for first in range(0, len(connections), AT_ONCE):
            with core.lock:
                if core.reason is not None and not core.lingers:
                    return None
                now = time.monotonic()
                for connection in connections[first : first + AT_ONCE]:
                    wait = min(wait, self._look_at(connection, now))
            core.notify()
        return wait if connections else None

    def _look_at(self, connection: Connection, now: float) -> float:
        """Look at one connection; return the seconds until its next look. Under the lock, which keeps its stream."""
        number, timeout = connection.descriptor, self._timeout
        if number is None or connection.stage == CLOSED or not (info := descriptors.ask(number, _tcp_info)):
            return period(timeout)
        answers = connection.answers = look(connection.answers, info, now, timeout)
        if not is_gone(answers, info, timeout):
            return next_look(answers, timeout)
        # Without a reset, unsent data would keep the closed socket alive for minutes, and with it the peer's end: now
        # its next packet that arrives is answered by a reset.
        descriptors.ask(number, _reset_at_close)
        reason = f"no answer for {timeout:g} s"
        self._core.guard.cut(connection.where(), reason)
        self._core.lose(connection, reason)
        return period(timeout)

    def close(self) -> None:
        """Stop looking."""
        self._alarm.close()


def _tcp_info(connection: sockets.socket) -> TCPInfo | None:
    return parse(connection.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, TCP_INFO_SIZE))


def _reset_at_close(connection: sockets.socket) -> None:
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, RESET)
