"""SP on a connection with shared memory: the frames of ipc, and frames that refer to slots. May not know: sockets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nngkit.errors import BadMessage, TooLarge
from nngkit.protocols._shm import memory
from nngkit.protocols._shm.formats import REFERENCE
from nngkit.protocols._shm.link import Link
from nngkit.protocols._shm.sharing import Reference, Shared, Sharing
from nngkit.protocols.sp import MOST_REFERENCE, Machine


class SharedMachine(Machine):
    """Machine of one connection of a socket with ``sharing``; ``begin`` gives it its side channel."""

    __slots__ = ("_connection", "_copies", "_link", "_sharing", "_state")

    metered = True
    _refers = True
    _link: Link

    def __init__(self, protocol: int, *, limit: int, headroom: int, sharing: Sharing) -> None:
        super().__init__(protocol, limit=limit, headroom=headroom, ipc=True, in_place=True)
        self._sharing = sharing
        self._copies = True  # of the frame that is looked up

    def begin(self, link: Link, connection: Any, state: Any) -> None:
        """Serve ``connection``. Under the lock of its socket."""
        self._link = link
        self._connection = connection
        self._state = state
        link.begin(self._sharing, connection, state)

    # ------------------------------------------------------------------ sending

    @property
    def framing(self) -> object:
        """None: each peer has its own uses."""
        return None

    def allowance(self, queue: Sequence[bytes], most: int) -> int:
        """Return how many of the first ``most`` messages may be written now; 0: the link writes on later."""
        room = -1
        for index, body in enumerate(queue[:most]):
            if type(body) is Reference:
                if room < 0:
                    room = self._link.room()
                if not room:
                    if not index:
                        self._link.waiting = True
                        self._link.watch()
                        if self._link.room():  # released meanwhile
                            self._link.waiting = False
                            return 1
                    return index
                room -= 1
        return most

    def frames(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Like ``Machine.frames``. A slot is noted as held by the peer before its frame can be written."""
        if Reference not in set(map(type, bodies)):
            return super().frames(bodies)
        out: list[bytes] = []
        for index, body in enumerate(bodies):
            if not isinstance(body, Reference):
                out += super().frames((body,))
                continue
            try:
                self._sharing.introduce(self._link, body.slot)
            except OSError:  # it is gone, or reads nothing: the messages are requeued
                self._connection.fault = "the peer takes no segment"
                return []
            out.append(self._frame(body, index))
        return [b"".join(out)] if sum(map(len, out)) < 4096 else out

    def frame_now(self, body: Reference) -> bytes:
        """Return the frame of one message; nothing if its segment is new to the peer, which then has to be told.

        Nothing too if the peer has enough. The slot is noted as in ``frames``.
        """
        link = self._link
        return self._frame(body, 0) if link.knows(body.slot.place.segment) and link.room() else b""

    def _frame(self, body: Reference, index: int) -> bytes:
        # the number of the message: interrupted, the same messages get the same numbers
        use: int = self._connection.written + index
        self._link.holding[use] = body.slot
        return b"\2" + len(body).to_bytes(8, "big") + body[:-8] + use.to_bytes(8, "big")

    # ------------------------------------------------------------------ receiving

    def refer(self, frame: bytes) -> Any:
        """Return the message of a frame that refers to a slot, and count its bytes. Raises BadMessage, TooLarge."""
        message = self._look_up(frame)
        self._state.inbox.read(len(message))
        return message

    def glance(self, frame: bytes) -> Any:
        """Return the message of a frame that refers to a slot; None if there is none."""
        try:
            return self._look_up(frame) if len(frame) <= MOST_REFERENCE else None
        except (BadMessage, TooLarge):
            return None

    def _look_up(self, frame: bytes) -> Any:
        at = len(frame) - REFERENCE.size
        if at < 0:
            raise BadMessage("frame", f"{len(frame)} bytes refer to nothing")
        header = frame[:at]
        segment, offset, size, use = REFERENCE.unpack_from(frame, at)
        if size + at > self.limit:
            raise TooLarge(size + at, self.limit - self._headroom)
        link = self._link
        mapping = link.mapping(segment)
        if offset + size > mapping.size:
            raise BadMessage("frame", f"{size} bytes from {offset} on are not in a segment of {mapping.size}")
        if self.referred is None:  # else it is the same frame again
            copies = link.keeps_many(size)
            self._copies = copies or not self._sharing.lazy
            for self.referred in link.looked_at(use, mapping, offset, size):
                pass
            self._sharing.copied += copies and self._sharing.lazy
        body = memory.view(self.referred, size).toreadonly()
        return memory.copy(body, header) if self._copies else Shared(header, body)
