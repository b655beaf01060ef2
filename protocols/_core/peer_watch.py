"""End of TCP connections to peers that cannot be reached: options of the kernel, and looks at its TCP_INFO.

By itself TCP gives up such a peer after a quarter of an hour if it sends, and after two hours if it only receives.
TCP_USER_TIMEOUT is no way out: it also ends the connection of a peer that can be reached and does not read. So the
kernel is only told to ask often enough. The alarm thread reads TCP_INFO, and ``tcp_info.py`` decides.

May not know: messages, protocols.
"""

from __future__ import annotations

import math
import socket as sockets
import time
from contextlib import suppress
from typing import ClassVar, Final

from nngkit.protocols._core.connection import CLOSED, Connection
from nngkit.protocols._core.guard import Guard
from nngkit.protocols._core.state import State
from nngkit.protocols._nng import descriptors, streams
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._wire.tcp_info import TCP_INFO_SIZE, TCPInfo, is_gone, longest_pause, look, next_look, parse

TCP_RTO_MAX_MS: int | None = 44
"""From <linux/tcp.h>; the socket module does not have it. Set it to None to see how a kernel before 6.15 behaves."""

SYSTEMS_RTO_MAX: Final = 120_000  # milliseconds, the default
AT_ONCE: Final = 64  # connections that are looked at before others may use the lock
SOON: Final = 0.2  # seconds until the descriptors of new connections, such as those of TLS, are searched for together
RESET: Final = b"\1\0\0\0\0\0\0\0"  # SO_LINGER, 0 s: close sends a reset


class PeerWatch:
    """Watch of one socket's TCP connections. ``timeout``: seconds without an answer; 0 leaves all to the system."""

    _index: ClassVar[descriptors.Index] = descriptors.Index()  # for the alarm thread

    def __init__(self, state: State[Connection], guard: Guard, timeout: float) -> None:
        self._state = state
        self._guard = guard
        self._timeout = timeout
        self._alarm = Alarm(self._look)

    def begin(self, connection: Connection) -> None:
        """Watch a new connection, if it is one of TCP. Under the lock."""
        if self._timeout and descriptors.available and connection.address.ported:
            if connection.descriptor is not None:
                descriptors.ask(connection.descriptor, self._configure)
            self._alarm.set(SOON if connection.descriptor is None else longest_pause(self._timeout) / 2)

    def _configure(self, connection: sockets.SocketType) -> None:
        """Let the kernel ask often enough.

        With 10 s: a keepalive probe after 3 s without data, then one every second; at 12 s the kernel gives up itself.
        Retransmissions and window probes are 1 s apart at most, from Linux 6.15. Before, their pauses double up to two
        minutes: until the watch ends the connection, it stays silent for as long again as the network was away.
        """
        idle, pause = max(1, int(0.3 * self._timeout)), max(1, int(0.1 * self._timeout))
        tries = math.ceil((1.2 * self._timeout - idle) / pause)
        tcp = sockets.IPPROTO_TCP
        connection.setsockopt(tcp, sockets.TCP_KEEPIDLE, idle)
        connection.setsockopt(tcp, sockets.TCP_KEEPINTVL, pause)
        connection.setsockopt(tcp, sockets.TCP_KEEPCNT, tries)
        if TCP_RTO_MAX_MS is not None:
            # The kernel gives up after 15 retransmissions: so later than the watch, for any timeout that is allowed.
            with suppress(OSError):
                connection.setsockopt(tcp, TCP_RTO_MAX_MS, max(1_000, int(200 * self._timeout) - 1_000))

    def _look(self) -> float | None:
        """End the connections whose peers do not answer; return the seconds until the next look."""
        state, wait = self._state, longest_pause(self._timeout)
        with state.lock:
            connections = [*state.present.values(), *state.handshaking.values()]
        for first in range(0, len(connections), AT_ONCE):
            with state.lock:
                if state.reason is not None and not state.lingers:
                    return None
                now = time.monotonic()
                for connection in connections[first : first + AT_ONCE]:
                    wait = min(wait, self._look_at(connection, now))
            state.notify()
        return wait if connections else None

    def _look_at(self, connection: Connection, now: float) -> float:
        """Look at one connection; return the seconds until its next look. Under the lock, which keeps its stream."""
        timeout, number = self._timeout, self._descriptor(connection)
        if number is None or not (info := descriptors.ask(number, _tcp_info)):
            return longest_pause(timeout)
        if info.finished:
            # Its keepalive probes would be answered by a reset, a minute after the peer has closed, and NNG would drop
            # what is not read yet.
            descriptors.ask(number, _no_keepalive)
            return longest_pause(timeout)
        answers = connection.answers = look(connection.answers, info, now, timeout)
        if not is_gone(answers, info, timeout):
            return next_look(answers, info, timeout)
        # Without a reset, unsent data would keep the closed socket alive for minutes, and with it the peer's end: now
        # its next packet that arrives is answered by a reset.
        descriptors.ask(number, _reset_at_close)
        reason = f"no answer for {timeout:g} s"
        self._guard.cut(connection.where(), reason)
        self._state.lose(connection, reason)
        return longest_pause(timeout)

    def _descriptor(self, connection: Connection) -> int | None:
        """Return the descriptor of a connection of TCP; None if it has ended, or is not found."""
        if connection.stage == CLOSED or not connection.address.ported:
            return None
        if connection.descriptor is None and (ends := streams.both_ends(connection.stream)) is not None:
            connection.descriptor = self._index.find(*ends)
            if connection.descriptor is not None:
                descriptors.ask(connection.descriptor, self._configure)
        return connection.descriptor

    def end(self, connection: Connection) -> None:
        """Let the kernel deliver what is left, before a connection is closed. Under the lock.

        With short pauses, the kernel gives up a closed connection after 1.4 s in which the peer does not read.
        """
        number = connection.descriptor
        if self._timeout and TCP_RTO_MAX_MS is not None and number is not None and connection.address.ported:
            descriptors.ask(number, _patient)

    def close(self) -> None:
        """Stop looking."""
        self._alarm.close()


def _tcp_info(connection: sockets.SocketType) -> TCPInfo | None:
    return parse(connection.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, TCP_INFO_SIZE))


def _reset_at_close(connection: sockets.SocketType) -> None:
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, RESET)


def _no_keepalive(connection: sockets.SocketType) -> None:
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 0)


def _patient(connection: sockets.SocketType) -> None:
    assert TCP_RTO_MAX_MS is not None
    connection.setsockopt(sockets.IPPROTO_TCP, TCP_RTO_MAX_MS, SYSTEMS_RTO_MAX)
