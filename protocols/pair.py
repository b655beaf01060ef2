"""PAIR: exactly two peers, in both directions.

::

    with Pair1(listen="tcp://127.0.0.1:0") as left, Pair1(dial=left.address) as right:
        left.send(b"ping")
        right.recv()

The first connection keeps the socket; others are refused until it ends. A stranger that connects first keeps the
intended peer out: use ``admit`` or TLS if strangers can connect. Flow-controlled like PIPELINE: nothing is dropped
while both ends live; messages in transit when one ends are lost. Pair0 (protocol 16) is nanomsg's; Pair1 (17) is NNG's
and adds a hop count. The two are not compatible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from nngkit.errors import BadMessage
from nngkit.protocols._core.connection import Connection
from nngkit.protocols._core.core import Outbox
from nngkit.protocols._core.send_queue import WhenFull
from nngkit.protocols._core.shared_queue import SharedQueue
from nngkit.protocols._socket.options import QueueOptions
from nngkit.protocols._socket.receiving import MessageReceiver
from nngkit.protocols._socket.sending import Sender
from nngkit.protocols._socket.socket import Socket
from nngkit.protocols._waiting.waiters import weakly
from nngkit.protocols.sp import PAIR0, PAIR1, split_hops


class _Pair(Sender, MessageReceiver, Socket):
    _alone: ClassVar[bool] = True
    _queues: ClassVar[type[Outbox]] = SharedQueue
    _outbox: SharedQueue
    _batches_in: ClassVar[bool] = True
    _batches_out: ClassVar[bool] = True
    _drains: ClassVar[bool] = True
    _policies: ClassVar[tuple[WhenFull, ...]] = ("block", "drop", "drop_oldest", "raise")

    def __init__(self, **options: Unpack[QueueOptions]) -> None:
        super().__init__(**options)


class Pair0(_Pair):
    """One end of a pair, version 0, as in nanomsg."""

    _protocol: ClassVar[int] = PAIR0


class Pair1(_Pair):
    """One end of a pair, version 1, as in NNG."""

    _protocol: ClassVar[int] = PAIR1
    _header = b"\0\0\0\1"  # hop count: sent here, no device passed
    _header_room: ClassVar[int] = len(_header)

    def _set_up(self) -> None:
        split = weakly(self._split_all, ()) if self._batch is not None else None

        def unpack(connection: Connection, messages: Sequence[bytes]) -> Sequence[Any]:
            try:
                bodies = split_hops(messages)
            except BadMessage as wrong:
                connection.fault = wrong
                return ()
            return bodies if split is None else split(connection, bodies)

        self._inbox.unpack = unpack
