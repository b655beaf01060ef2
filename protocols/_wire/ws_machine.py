"""One side of SP over WebSocket after its handshake: received bytes become messages, messages become frames.

ServerMachine and ClientMachine of `websocket.py` add the handshakes. Whole binary frames are scanned in one go
(`_ws_frames.py`); ``take`` continues with pings, close frames and fragments. wsproto only validates close frames.
Measured: a ping costs wsproto 14 us, so 256 KiB of pings would take half a second.

NNG by default refuses a frame of more than 1 MiB (close code 1009; measured with NNG 1.11), and itself sends fragments
of 64 KiB. So ``frames`` cuts larger messages into fragments of 1 MiB.

Memory is bounded: besides complete messages, a machine keeps at most one message of ``limit`` bytes and what one
``feed`` brought.

A signal handler of Python's main thread may raise between any two calls. So ``feed``, ``take`` and the handshakes work
on local names and change the machine in statements without calls in between: all of it happens or nothing, and the call
can be repeated. ``fed`` and ``count`` tell an interrupted caller which.

May not know: HTTP, sockets, time; random bytes come from ``mask``.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import CloseConnection

from nngkit.errors import BadMessage, TooLarge
from nngkit.protocols._wire.ws_frames import (
    CLOSE,
    FIN,
    MOST_FRAME,
    MOST_FRAME_HEAD,
    NORMAL,
    PONG,
    PROTOCOL_ERROR,
    WHOLE,
    Fault,
    apply_mask,
    bad,
    fragments,
    frame_head,
    join_large,
    masked_run,
    other_frame,
    scan,
)
from nngkit.protocols._wire.ws_handshake import MOST_HEAD, Refusal, Request

LARGE: Final = 16 * 1024  # bytes from which a body is joined separately, which saves a copy
SMALL_CHUNK: Final = 4096  # bytes below which chunks are collected in one buffer: an object each costs 40 bytes
ALL: Final = 1 << 62

Mask = Callable[[int], bytes]


class Machine:
    """One side of a connection; base of ServerMachine and ClientMachine.

    ``limit``: bytes of the largest message accepted; up to ``headroom`` more pass, for protocol headers. ``large``:
    bytes from which ``frames`` leaves a body in a buffer of its own.

    ``to_send``: bytes to send now, in order: take the list and replace it by an empty one. ``open``: the handshake is
    complete. ``awaits_accept``: the ``request`` is valid, and ``accept`` or ``refuse`` must follow (server only).
    ``ended``: the peer sent a close frame, or the handshake failed: send ``to_send`` and close. ``fed``: calls of
    ``feed``; ``count``: messages taken.
    """

    metered = False  # see `sp.Machine`
    _side: ConnectionType
    _mask_in: int  # MASKED if the peer's frames must be masked, else 0
    _mask_out: int  # the same for ours

    def __init__(self, limit: int, headroom: int, large: int, mask: Mask = bytes) -> None:
        self._limit = limit + headroom
        self._headroom = headroom
        self._large = large
        self._mask = mask
        self._data = b""  # bytes being parsed, from _at on; empty unless _more
        self._at = 0
        self._more = False
        self._parts: list[bytes | bytearray] = []  # bytes received after it; the first part is bytes
        self._have = 0  # bytes in both
        self._need = 2  # bytes needed to continue
        self._partial: bytearray | None = None  # fragments of an incomplete message
        self._fault: BadMessage | TooLarge | None = None
        self._closing = False  # end() has returned a close frame
        self.to_send: list[bytes] = []
        self.open = False
        self.awaits_accept = False
        self.ended = False
        self.request: Request | None = None
        self.fed = 0
        self.count = 0

    # ------------------------------------------------------------------ receiving

    @property
    def begun(self) -> bool:
        """True while the handshake or a message is incomplete, or the handshake has not begun."""
        if self.ended:
            return False
        return not self.open or self._partial is not None or (self._have > 0 and not self._more)

    @property
    def more(self) -> bool:
        """True if complete messages may be left: ``take`` stopped at ``most``, or they came before ``accept``."""
        return self._more

    def place(self) -> None:
        """Return None: bodies are not received in place; use ``feed``."""

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream. After the end they are dropped."""
        size = len(data)
        parts = self._parts
        if not size or self.ended or self._fault is not None:
            self.fed += 1
        elif size >= SMALL_CHUNK or not parts:
            parts += (data,)
            self._have += size
            self.fed += 1
        elif isinstance(tail := parts[-1], bytearray):
            tail += data
            self._have += size
            self.fed += 1
        else:
            tail = bytearray(data)
            parts += (tail,)
            self._have += size
            self.fed += 1

    def take(self, out: MutableSequence[bytes], most: int = ALL) -> None:
        """Append complete messages to ``out``, up to ``most``.

        Raises BadMessage and TooLarge, after appending the messages before the fault and putting the close frame, or
        the HTTP error, into ``to_send``; the stream is then unusable.
        """
        if not self.open and (self.awaits_accept or self.ended or not self._handshake()):
            return
        if self._fault is not None:
            raise self._fault
        if self.ended or most < 1:
            return
        items: list[bytes] = []
        data, at, behind = self._data, self._at, self._parts
        partial = self._partial
        had_more = self._more
        if not had_more:
            if self._have < self._need:
                return
            first = behind[0]
            over = self._have - self._need
            if (
                self._need >= LARGE
                and partial is None
                and first[0] == WHOLE
                and len(first) >= MOST_FRAME_HEAD
                and over <= len(behind[-1])  # otherwise more than its end was fed and not taken
            ):
                body, data = join_large(behind, over, self._mask_in)
                items.append(body)
            else:
                data = b"".join(behind)
            at, behind = 0, []
            have = len(data)
        else:
            have = self._have
        have += at
        pieces: list[bytes] = []
        said: list[bytes] = []
        fault: BadMessage | TooLarge | None = None
        ended = False
        need = 0
        gathered = 0 if partial is None else len(partial)
        try:
            while True:
                if partial is None:
                    at, need = scan(data, at, most, items, self._limit, self._mask_in)
                    if need or len(items) >= most:
                        break
                lead, body, stop = other_frame(
                    data, at, partial is not None, gathered, self._limit, self._headroom, self._mask_in
                )
                need = stop - at
                if stop > len(data):
                    break
                match lead & 0x0F:
                    case 0x09:
                        said.append(self._frame(FIN | PONG, body))
                    case 0x0A:
                        pass
                    case 0x08:
                        said += self._answer_close(data[at:stop])
                        ended = True
                        break
                    case _:
                        pieces.append(body)
                        gathered += len(body)
                        if partial is None:
                            partial = bytearray()
                        if lead & FIN:
                            items.append(b"".join((partial, *pieces)))
                            partial, pieces, gathered = None, [], 0
                at, need = stop, 2
        except Fault as found:
            fault = found.error
            said.append(self._close(found.code))
        grown = b"".join(pieces)
        count = len(items)
        have -= at
        more = count >= most and have > 0
        if ended or fault is not None:
            data, at, behind, have, more = b"", 0, [], 0, False
        elif not more:
            rest = data[at:]
            data, at, behind = b"", 0, [rest, *behind] if rest else behind
        # no calls from here to the raise: see the module docstring
        if partial is not None:
            partial += grown
        self._partial = partial
        self._data = data
        self._at = at
        self._more = more
        self._parts = behind
        self._have = have
        self._need = need or 2  # 0: `most` was reached; taken again, there may be nothing
        self._fault = fault
        self.ended = ended
        self.to_send += said
        out += items
        self.count += count
        if fault is not None:
            raise fault
        if had_more and behind and not more:
            self.take(out, most - count)  # chunks that were fed before the last one was taken completely

    def _handshake(self) -> bool:
        """Continue the handshake; return True if messages may flow."""
        raise NotImplementedError

    def _frame(self, first: int, body: bytes) -> bytes:
        bit = self._mask_out
        key = self._mask(4) if bit else b""
        return frame_head(first, len(body), bit) + key + (apply_mask(body, key) if bit else body)

    def _close(self, code: int) -> bytes:
        return self._frame(FIN | CLOSE, code.to_bytes(2, "big"))

    def _split_head(self) -> tuple[bytes, bytes] | None:
        """Return the head of an HTTP message and the bytes after it; None if it is incomplete."""
        data = b"".join(self._parts)  # joined again for each chunk; MOST_HEAD bounds that
        cut = data.find(b"\r\n\r\n", max(0, self._need - 3), MOST_HEAD) + 4
        if cut > 3:
            return data[:cut], data[cut:]
        if len(data) >= MOST_HEAD:
            raise Refusal(431, f"head over {MOST_HEAD} bytes")
        self._need = len(data)  # searched so far
        return None

    def _answer_close(self, frame: bytes) -> tuple[bytes, ...]:
        """Return the response to a close frame; nothing if it is a response itself. Raises Fault."""
        peer = Connection(self._side)
        peer.receive_data(frame)
        event = next(peer.events())
        if not isinstance(event, CloseConnection) or peer.state is not ConnectionState.REMOTE_CLOSING:
            raise bad(f"close frame: {getattr(event, 'reason', '')}", getattr(event, "code", PROTOCOL_ERROR))
        return () if self._closing else (bytes(peer.send(event.response())),)

    # ------------------------------------------------------------------ sending

    @property
    def framing(self) -> object:
        """Machines with equal values here return equal frames for equal bodies; None equals no other."""
        return None if self._mask_out else "unmasked"

    def frames(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Return the frames of ``bodies`` as buffers for one write: small ones joined, large ones separate.

        A client's frames have a mask each (RFC 6455, 5.3), all drawn in one call. A server's large bodies are not
        copied, unless they are cut into fragments.
        """
        if not bodies:
            return []
        large, bit = self._large, self._mask_out
        size = len(bodies[0])
        if not bit and size < large and len(set(map(len, bodies))) == 1:
            head = frame_head(WHOLE, size, 0)  # joined on their common head
            return [head + head.join(bodies)]
        if bit and size < 126 and len(bodies) > 3 and len(set(map(len, bodies))) == 1:
            return [masked_run(bodies, size, self._mask(4 * len(bodies)))]
        keys = self._mask(4 * sum([len(body) // MOST_FRAME + 1 for body in bodies])) if bit else b""
        at = 0
        out: list[bytes] = []
        small: list[bytes] = []
        for body in bodies:
            for first, piece in ((WHOLE, body),) if len(body) <= MOST_FRAME else fragments(body):
                small.append(frame_head(first, len(piece), bit))
                if bit:
                    key = keys[at : at + 4]
                    at += 4
                    small.append(key)
                    piece = apply_mask(piece, key)
                if len(piece) < large:
                    small.append(piece)
                else:
                    out += (b"".join(small), piece)
                    small = []
        if small:
            out.append(b"".join(small))
        return out

    def wire_size(self, size: int) -> int:
        """Return the bytes that a message of ``size`` bytes takes on the wire."""
        whole, rest = divmod(size, MOST_FRAME)
        extra = 4 if self._mask_out else 0
        last = rest + extra + (2 if rest < 126 else 4 if rest < 65536 else 10) if rest or not whole else 0
        return whole * (MOST_FRAME + 10 + extra) + last

    def end(self) -> bytes:
        """Return the bytes to send before the stream is closed: a close frame, or nothing if none is due."""
        if not self.open or self.ended or self._fault is not None:
            return b""
        frame = self._close(NORMAL)
        self._closing = True
        return frame
