"""PIPELINE: PUSH sends each message to one of its peers, PULL receives from all of them.

::

    with Push(listen="tcp://127.0.0.1:0") as push, Pull(dial=push.address) as pull:
        push.send(b"work")
        pull.recv()

Flow-controlled: nothing is dropped while both ends live, and a sender with a full queue waits (``when_full="block"``,
the default). Messages that a peer had read ahead when it died are lost: at most once across a death. Messages go in
turn to the peers with room. RFC: nanomsg SP pipeline, protocol numbers 80 (PUSH) and 81 (PULL).
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from nngkit.protocols._core.core import Outbox
from nngkit.protocols._core.send_queue import WhenFull
from nngkit.protocols._core.shared_queue import SharedQueue
from nngkit.protocols._socket.options import QueueOptions, ReceiveOptions
from nngkit.protocols._socket.receiving import MessageReceiver
from nngkit.protocols._socket.sending import Sender
from nngkit.protocols._socket.socket import Socket
from nngkit.protocols.sp import PULL, PUSH


class Push(Sender, Socket):
    """Send each message to one peer. ``send_buffer`` (default 1024, 0 to 8192) is one queue for all peers."""

    _protocol: ClassVar[int] = PUSH
    _queues: ClassVar[type[Outbox]] = SharedQueue
    _outbox: SharedQueue
    _prioritizes: ClassVar[bool] = True
    _never_receives: ClassVar[bool] = True
    _batches_out: ClassVar[bool] = True
    _drains: ClassVar[bool] = True
    _policies: ClassVar[tuple[WhenFull, ...]] = ("block", "drop", "drop_oldest", "raise")

    def __init__(self, **options: Unpack[QueueOptions]) -> None:
        super().__init__(**options)


class Pull(MessageReceiver, Socket):
    """Receive from all peers in turn. ``recv_buffer`` (default 128) messages are read ahead.

    A slow worker should set ``recv_buffer=1``, so that other workers get the messages that it has no time for. Small
    messages still queue in the buffers of the network.
    """

    _protocol: ClassVar[int] = PULL
    _batches_in: ClassVar[bool] = True
    _default_recv_buffer: ClassVar[int] = 128

    def __init__(self, **options: Unpack[ReceiveOptions]) -> None:
        super().__init__(**options)
