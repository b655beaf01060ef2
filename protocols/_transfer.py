"""What both halves of a connection share: its stream, its machine, and the states of its operations.

May not know: protocols, waiters.
"""

from __future__ import annotations

from typing import Any, Final

from nngkit.errors import NngkitError

from ._addresses import Address
from ._nng import lib, strerror
from ._operations import Owner

RX: Final = 0
TX: Final = 1
IDLE, POSTED, COMPLETED = 0, 1, 2
SHAKING, ASKING, JOINED, CLOSED = 0, 1, 2, 3

_count, _result = lib.nng_aio_count, lib.nng_aio_result


class Transfer(Owner):
    """Base of both halves. ``fault``: why the connection has to end; whoever finds it set has the core lose it."""

    core: Any  # a Core; its queues take the whole Connection

    def __init__(self, stream: Any, descriptor: int | None, machine: Any, address: Address) -> None:
        super().__init__()
        self.stream = stream
        self.descriptor = descriptor  # None: not known
        self.machine = machine
        self.address = address
        # TLS takes an operation back on NNG's threads, which may be waiting for the lock that is held meanwhile
        self.sync_io = not address.tls
        self.stage = SHAKING
        self.fault: str | NngkitError | None = None

    @staticmethod
    def _complete(aio: Any) -> bool:
        return bool(_count(aio) or _result(aio))

    def _failed(self, code: int) -> None:
        if self.fault is None:
            ended = code in (0, lib.NNG_ECLOSED, lib.NNG_ECONNSHUT)
            # what NNG says of a TLS peer that has said good-bye
            ended = ended or (code == lib.NNG_ECONNREFUSED and self.address.tls)
            self.fault = "the peer closed" if ended else strerror(code)
