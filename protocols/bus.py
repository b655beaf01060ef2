"""BUS: each message goes to every peer directly connected, once, and not further.

::

    with Bus(listen="tcp://127.0.0.1:0") as hub, Bus(dial=hub.address) as spoke:
        spoke.wait_for_peers(1)
        hub.send(b"to all")

Best effort: NNG drops silently where a peer's queue is full, and a full-speed mesh fills NNG's own 16 places at once;
the buffers here are 1024 by default. What has to arrive goes by other means (sequence numbers and repair, REQ/REP). It
reaches every pipe, whoever is behind it: decide with ``admit`` or TLS who may join. Protocol number 112.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ._nng import lib
from ._receiving import MessageReceiver
from ._sender import Sender
from ._sending import WhenFull
from ._socket import Socket

__all__ = ["Bus"]


class Bus(Sender, MessageReceiver, Socket):
    """A node of a bus. ``send_buffer`` is a queue for each peer, ``recv_buffer`` one for all (1 to 8192).

    ``send`` never waits. ``stats.written`` against messages sent times peers shows what was queued or dropped; after
    ``drain()`` what is missing was dropped.
    """

    _opener: ClassVar[Any] = lib.nng_bus0_open
    _batches_in: ClassVar[bool] = True
    _batches_out: ClassVar[bool] = True
    _nng_recv_buffer: ClassVar[bool] = True
    _nng_send_buffer: ClassVar[bool] = True
    _sends_to_all: ClassVar[bool] = True
    _drains: ClassVar[bool] = True
    _reads_at_once: ClassVar[bool] = True
    _lends: ClassVar[bool] = True
    _policies: ClassVar[tuple[WhenFull, ...]] = ("drop",)
