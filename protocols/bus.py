"""BUS: each message goes once to every directly connected peer, and no further.

::

    with Bus(listen="tcp://127.0.0.1:0") as hub, Bus(dial=hub.address) as spoke:
        spoke.wait_for_peers(1)
        hub.send(b"to all")

Best effort: a message that finds a peer's queue full is dropped for that peer, and counted. Delivery guarantees need
other means (sequence numbers and repair, REQ/REP). A message goes to every connected peer, unknown ones too: decide
with ``admit`` or TLS which may join. Protocol number 112.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Unpack

from nngkit.protocols._core.inbox import WhenBehind
from nngkit.protocols._core.peer_queues import PeerQueues
from nngkit.protocols._core.pipe import Pipe
from nngkit.protocols._core.send_queue import WhenFull
from nngkit.protocols._nng.library import Payload
from nngkit.protocols._socket.options import MOST_BUFFER, BroadcastOptions
from nngkit.protocols._socket.receiving import Message, MessageReceiver
from nngkit.protocols._socket.sending import Sender, messages
from nngkit.protocols._socket.socket import Socket
from nngkit.protocols.sp import BUS


class Bus(Sender, MessageReceiver, Socket):
    """Exchange messages with all directly connected peers. Both buffers hold 1 to 8192 messages.

    ``send_buffer`` caps the queue of each peer, ``recv_buffer`` the one receive queue. ``send`` never waits: a full
    send queue drops the newest message, or with ``when_full="drop_oldest"`` the oldest. A full receive queue drops new
    messages.
    """

    _protocol: ClassVar[int] = BUS
    _outbox: PeerQueues
    _when_behind: ClassVar[WhenBehind] = "oldest"
    _batches_in: ClassVar[bool] = True
    _batches_out: ClassVar[bool] = True
    _drains: ClassVar[bool] = True
    _least_send_buffer: ClassVar[int] = 1
    _policies: ClassVar[tuple[WhenFull, ...]] = ("drop", "drop_oldest")

    def __init__(self, **options: Unpack[BroadcastOptions]) -> None:
        super().__init__(**options)

    def relay(self, messages: Iterable[Message]) -> int:
        """Queue each message for every peer except its sender; return their number.

        Like ``send``, it never waits. A message without ``pipe`` goes to every peer. Raises Closed.
        """
        frames = [
            (
                bytes(each) if self._open_batch is None else self._pack(b"", (bytes(each),)),
                None if each.pipe is None else each.pipe.id,
            )
            for each in messages
        ]
        self._outbox.to_others(frames)
        return len(frames)

    def send_except(self, pipe: Pipe | None, items: Iterable[Payload]) -> None:
        """Queue messages for every peer except one. Otherwise like ``send_many``."""
        number = None if pipe is None else pipe.id
        self._outbox.to_others([(each, number) for each in self._packed(items)])

    def send_to(self, pipe: Pipe, items: Iterable[Payload]) -> bool:
        """Queue messages for one peer; return False if it has left.

        Like ``send``, it never waits: messages without room in the peer's queue are dropped and counted. Raises Closed.
        """
        return self._outbox.to_one(self._packed(items), pipe.id)

    def send_to_some(self, pipes: Iterable[Pipe], item: Payload) -> None:
        """Queue a message for these peers; those that have left get none. Otherwise like ``send_to``."""
        for each in self._packed((item,)):
            self._outbox.to_some(each, {pipe.id for pipe in pipes})

    def offer_to(self, pipe: Pipe, items: Iterable[Payload], most: int = MOST_BUFFER) -> bool:
        """Queue all of the messages for one peer, or none of them; return False if it has left or has no room.

        No room: more than ``most`` messages, or more than ``send_buffer`` or ``send_window`` allow, would be queued.
        Never waits. Raises Closed.
        """
        return self._outbox.whole_to_one(self._packed(items), pipe.id, most)

    def _packed(self, items: Iterable[Payload]) -> Sequence[bytes]:
        frames = messages(items)
        return frames if self._open_batch is None else [self._pack(b"", (each,)) for each in frames]
