"""PAIR: two peers, both ways, and nobody else.

::

    with Pair1(listen="tcp://127.0.0.1:0") as left, Pair1(dial=left.address) as right:
        left.send(b"ping")
        right.recv()

The first connection owns the socket; later ones are refused until it goes, so a stranger who comes first keeps the
honest peer out: use ``admit`` or TLS where strangers can reach it. Flow-controlled like PIPELINE: nothing is dropped
while both ends live; what was under way when one died is gone. Pair0 (protocol 16) is nanomsg's; Pair1 (17) is NNG's,
and adds a hop count on the wire. The two do not talk to each other.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ._nng import lib
from ._receiving import MessageReceiver
from ._sender import Sender
from ._sending import WhenFull
from ._socket import Socket

__all__ = ["Pair0", "Pair1"]


class _Pair(Sender, MessageReceiver, Socket):
    _batches_in: ClassVar[bool] = True
    _lends: ClassVar[bool] = True
    _batches_out: ClassVar[bool] = True
    _nng_recv_buffer: ClassVar[bool] = True
    _nng_send_buffer: ClassVar[bool] = True
    _drains: ClassVar[bool] = True
    _policies: ClassVar[tuple[WhenFull, ...]] = ("block", "drop", "raise")


class Pair0(_Pair):
    """One end of a pair, version 0: what nanomsg and nanocat speak."""

    _opener: ClassVar[Any] = lib.nng_pair0_open


class Pair1(_Pair):
    """One end of a pair, version 1: NNG's own."""

    _opener: ClassVar[Any] = lib.nng_pair1_open
