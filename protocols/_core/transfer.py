"""State that both halves of a connection share: the stream, the machine, the stages.

May not know: protocols, waiters.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from nngkit.errors import NngkitError
from nngkit.protocols._nng import streams
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.library import lib, strerror
from nngkit.protocols._nng.operations import Owner
from nngkit.protocols._waiting.faults import check_ours, internal

log = logging.getLogger("nngkit.protocols")

RX: Final = 0
TX: Final = 1
IDLE, POSTED, COMPLETED = 0, 1, 2
SHAKING, ASKING, JOINED, CLOSED = 0, 1, 2, 3

_count, _result = lib.nng_aio_count, lib.nng_aio_result


class Transfer(Owner):
    """Base of both halves. ``fault``: why the connection must end; the thread that finds it set calls ``core.lose``."""

    core: Any  # a Core, typed in Connection: its queues take whole connections

    def __init__(self, stream: Any, descriptor: int | None, machine: Any, address: Address) -> None:
        super().__init__()
        self.stream = stream
        self.descriptor = descriptor  # None if unknown
        self.machine = machine
        self.address = address
        # Under TLS an operation is cancelled on NNG's threads, which may wait for the lock that is held meanwhile.
        self.sync_io = not address.tls
        self.stage = SHAKING
        self.fault: str | NngkitError | None = None
        self.crashed = False

    @staticmethod
    def _complete(aio: Any) -> bool:
        return bool(_count(aio) or _result(aio))

    def crash(self, error: Exception) -> None:
        """Let an error of our own code end the connection: its machine is not used again. Under the core's lock.

        Raises it again if a signal handler has raised it.
        """
        check_ours(error)
        core = self.core
        if core.reading is self:
            core.reading = None
        if core.writing is self:
            core.writing = None
        if not self.crashed:
            self.crashed = True
            self.fault = internal(error)
            log.error("%r: the connection ends: %s", self, self.fault, exc_info=error)

    def _failed(self, code: int) -> None:
        if self.fault is None:
            ended = code in (0, lib.NNG_ECLOSED, lib.NNG_ECONNSHUT)
            # NNG's code after a TLS peer's close_notify
            ended = ended or (code == lib.NNG_ECONNREFUSED and self.address.tls)
            if self.address.tls and self.stage == SHAKING and code in (lib.NNG_ECRYPTO, lib.NNG_EPEERAUTH):
                self.fault = streams.refusal(self.stream, code, checks=self.core.verifies)
            else:
                self.fault = "the peer closed" if ended else strerror(code)
