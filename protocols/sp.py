"""SP over a byte stream as a pure state machine: bytes in, messages out, as h11 does for HTTP.

::

    ours, theirs = Machine(PUSH), Machine(PULL)
    wire = b"".join(ours.to_send)               # the hello; `to_send` holds bytes to send now
    wire += b"".join(ours.frames([b"work", b"more work"]))
    theirs.feed(wire)                           # in chunks of any size
    messages = []
    theirs.take(messages)                       # [b"work", b"more work"]

A connection begins with a hello of 8 bytes from each side, which the other checks (RFC "SP over TCP", nanomsg
sp-tcp-mapping-01)::

    hello = 00 53 50 00  protocol: u16  00 00
    frame = length: u64  body                     tcp, tls+tcp
    frame = 01  length: u64  body                 ipc, unix, abstract

Some protocols begin the body with a header of 32-bit words, most significant byte first::

    PAIR1                       hops: u32, 1 at the sender, one more at each device
    REQ, REP,                   zero to seven words without the top bit, one for each device passed,
    SURVEYOR, RESPONDENT        then the id of the question, with the top bit set

Memory is bounded: besides complete messages, a machine keeps at most one message of ``limit`` bytes and what one
``feed`` brought, however small the chunks.

A signal handler of Python's main thread may raise between any two calls. So ``feed`` and ``take`` work on local names
and change the machine in statements without calls at their end: all of it happens or nothing. ``fed`` and ``count``
tell an interrupted caller which.

Pure: no socket, no clock, no thread. Raises BadMessage and TooLarge of ``nngkit.errors``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, MutableSequence, Sequence
from ctypes import c_char_p, c_ssize_t, memmove, py_object, pythonapi
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

from nngkit.errors import AccessDenied, BadMessage, TooLarge
from nngkit.trust.refusals import ALERT, spoken

__all__ = [
    "BUS",
    "NAMES",
    "PAIR0",
    "PAIR1",
    "PEERS",
    "PUB",
    "PULL",
    "PUSH",
    "REP",
    "REQ",
    "RESPONDENT",
    "SUB",
    "SURVEYOR",
    "TOP_BIT",
    "Machine",
    "hello",
    "split_hops",
    "split_question",
    "split_reply",
]

# Protocol numbers (nanomsg sp-protocol-ids; PAIR1 is NNG's)
PAIR0, PAIR1, PUB, SUB, REQ, REP, PUSH, PULL, SURVEYOR, RESPONDENT, BUS = 16, 17, 32, 33, 48, 49, 80, 81, 98, 99, 112
PEERS: Final = {
    PAIR0: PAIR0,
    PAIR1: PAIR1,
    PUB: SUB,
    SUB: PUB,
    REQ: REP,
    REP: REQ,
    PUSH: PULL,
    PULL: PUSH,
    SURVEYOR: RESPONDENT,
    RESPONDENT: SURVEYOR,
    BUS: BUS,
}
NAMES: Final = {  # as in WebSocket subprotocols and log lines
    PAIR0: "pair",
    PAIR1: "pair1",
    PUB: "pub",
    SUB: "sub",
    REQ: "req",
    REP: "rep",
    PUSH: "push",
    PULL: "pull",
    SURVEYOR: "surveyor",
    RESPONDENT: "respondent",
    BUS: "bus",
}

MIB: Final = 1 << 20
ALL: Final = 1 << 62  # more than any number of messages or bytes
HELLO: Final = 8  # bytes
REFUSED: Final = b"\0NO\0"
MOST_REFUSAL: Final = 500  # bytes of its text
MOST_REFERENCE: Final = 128  # bytes of a frame that refers to a body elsewhere
HEADROOM: Final = 64  # bytes of protocol headers, which a message may have beyond the limit
LARGE: Final = 16 * 1024  # bytes from which a body is received in place: below, one more copy costs less than the calls
# bytes that must arrive before memory for a larger body is taken: a length alone must not cost that much
IN_PLACE: Final = 16 * MIB
PIECES: Final = 1024  # chunks of a message after which they are joined: a Python object costs 33 bytes and a pointer
KEPT: Final = MIB // 2  # bytes of a body whose memory is kept from the beginning: up to 2 MiB in all
MOST_KEPT: Final = 16 * MIB  # bytes of the largest block for it: up to 32 MiB in all
APART: Final = 32 * 1024  # bytes from which a body is a buffer of its own in a write, and is not copied
RUN: Final = 32  # frames of equal length taken in one step; more is no faster, and fewer fit into small queues
BLOCK: Final = 64  # messages taken singly before the next try for a run, which costs as much as four
SHORT: Final = 1024  # bytes of a body up to which runs pay
TOP_BIT: Final = 0x80000000  # marks the last word of a question's header
MOST_WORDS: Final = 8  # words of a header: NNG and nanomsg drop messages that passed more devices
MOST_PAIR_HOPS: Final = 8  # hops of a PAIR1 message

Messages = MutableSequence[Any]  # a list or a deque: no signal handler runs during their +=

LENGTHS: Final = {
    8: struct.Struct(">Q").unpack_from,
    9: struct.Struct(">xQ").unpack_from,
}  # by the size of a frame's head
_WORD = struct.Struct(">I")

_blank: Any = pythonapi.PyBytes_FromStringAndSize  # returns bytes of a given size with undefined content
_blank.restype, _blank.argtypes = py_object, (c_char_p, c_ssize_t)
_BODY: Final = bytes.__basicsize__ - 1  # offset of the content in a bytes object
_kept = 0  # bytes of a body up to which memory is kept


def _keep(size: int) -> None:
    """Let memory of received bytes stay in the process, for bodies of up to ``size`` bytes: the next ones get it.

    glibc gives freed memory at the end of its heap back to the system, from 128 KiB on, so a third of the CPU that
    1 KiB or 1 MiB took was page faults. How much it keeps, it learns from the largest block that was mapped and freed
    (M_MMAP_THRESHOLD in mallopt(3)): twice that. No page of the block here is touched.
    """
    global _kept
    _kept = size
    _blank(None, min(2 * size, MOST_KEPT))


_keep(KEPT)


def blank_bytes(size: int) -> tuple[bytes, int]:
    """Return a bytes object of ``size`` with undefined content, and the address to fill before it is shared."""
    body: bytes = _blank(None, size)
    return body, id(body) + _BODY


def hello(protocol: int) -> bytes:
    """Return the hello of a peer of ``protocol``."""
    return b"\0SP\0" + protocol.to_bytes(2, "big") + b"\0\0"


def refusal(why: str) -> bytes:
    """Return what a peer that is not let in gets in place of the hello: 00 'N' 'O' 00, a length (u16), text."""
    text = why.encode()[:MOST_REFUSAL]
    return REFUSED + len(text).to_bytes(2, "big") + text


@lru_cache(512)
def _run(size: int, head: int) -> tuple[Any, Any]:
    """Return the unpackers of bodies and of heads of a run of frames with bodies of ``size``."""
    bodies = struct.Struct(f"{head}x{size}s" * RUN).unpack_from
    heads = struct.Struct(f"{head}s{size}x" * RUN).unpack_from
    return bodies, heads


class Machine:
    """One side of a connection. ``protocol`` is ours; the peer must speak the matching one.

    ``limit``: bytes of the largest message accepted; up to ``headroom`` more pass, for protocol headers. ``ipc``: the
    framing of Unix sockets. ``in_place``: bodies of LARGE bytes and more are offered by ``place``, to be received into,
    and buffers for messages that may follow by ``chain``.

    ``to_send``: bytes to send now, in order: take the list and replace it by an empty one. ``open``: the peer's hello
    was valid, so messages may flow. ``fed``: calls of ``feed`` and ``fill``; ``count``: messages taken.
    ``awaits_accept`` and ``ended`` belong to handshakes that SP does not have: they stay False.
    """

    __slots__ = (
        "_body",
        "_data",
        "_filled",
        "_have",
        "_headroom",
        "_in_place",
        "_joined",
        "_need",
        "_parts",
        "_peer",
        "_pos",
        "_previous",
        "_whole",
        "count",
        "fed",
        "first",
        "head",
        "limit",
        "open",
        "referred",
        "to_send",
    )

    awaits_accept = False
    ended = False
    metered = False  # `allowance` says how many messages may be written
    _refers = False  # frames may refer to bodies elsewhere, see `refer`

    def __init__(
        self, protocol: int, *, limit: int = MIB, headroom: int = HEADROOM, ipc: bool = False, in_place: bool = False
    ) -> None:
        self._peer = PEERS[protocol]
        self.limit = limit + headroom
        self._headroom = headroom
        self.head = 9 if ipc else 8
        self.first = b"\1" if ipc else b""
        self._in_place = in_place
        self._data = b""  # bytes being parsed, from _pos on
        self._pos = 0
        self._parts: list[bytes] = []  # bytes received after it
        self._joined = 0  # how many of the first parts are joined chunks
        self._have = 0  # bytes in both
        self._need = HELLO  # bytes needed to continue
        self._body: bytes | None = None  # body being received in place, of which _filled bytes are there
        self._filled = 0
        self._whole: list[bytes] = []  # complete bodies before it
        self._previous = 0  # bytes of the one before those
        self.to_send = [hello(protocol)]
        self.open = False
        self.fed = 0
        self.count = 0
        self.referred: Any = None  # memory of a message that is being taken, see `refer`

    # ------------------------------------------------------------------ receiving

    @property
    def begun(self) -> bool:
        """True while the hello or a message is incomplete, or the hello has not begun."""
        return not self.open or self._have > 0 or self._body is not None

    @property
    def more(self) -> bool:
        """True if a complete message may be inside."""
        body = self._body
        return self._have >= self._need or (body is not None and (self._filled == len(body) or len(self._whole) > 0))

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        size = len(data)
        body = self._body
        if self._parts and len(self._parts) - self._joined >= PIECES:
            self._join()
        if body is not None:
            part = min(len(body) - self._filled, size)
            memmove(id(body) + _BODY + self._filled, data, part)  # the object is not shared yet
            self._filled += part
            if part < size:
                self._parts += (data[part:],)
                self._have += size - part
            self.fed += 1
        elif self._have:
            self._parts += (data,)
            self._have += size
            self.fed += 1
        else:
            self._data = data
            self._pos = 0
            self._have = size
            self.fed += 1

    def _join(self) -> None:
        parts, joined = self._parts, self._joined
        piece = b"".join(parts[joined:])
        # no calls from here: see the module docstring
        parts[joined:] = (piece,)
        self._joined = joined + 1

    def place(self) -> tuple[bytes, int] | None:
        """Return a body to receive into and the number of its bytes that are there; None: use ``feed``."""
        body = self._body
        return None if body is None or self._filled == len(body) else (body, self._filled)

    def chain(self, room: int) -> list[bytes]:
        """Return buffers for what may follow the body of ``place``, up to about ``room`` bytes; none: not known.

        They are heads and bodies in turn, a head at the end: after a message of equal size others mostly follow.
        """
        body = self._body
        if body is None or len(body) != self._previous:
            return []
        size, head = len(body), self.head
        sizes = (head, size) * (room // (head + size))
        return [*map(_blank, repeat(None), (*sizes, head))] if sizes else []

    def fill(self, size: int, data: bytes = b"", chain: Sequence[bytes] = ()) -> None:
        """Note that ``size`` more bytes are in place; ``data`` followed the body, if these completed it.

        ``chain``: the bytes beyond the body are there, and the buffers are not used again.
        """
        body, filled, whole, at = self._body, self._filled + size, self._whole, 0
        if chain:
            assert body is not None
            whole, length, head = [*whole], len(body), self.head
            same = self.first + length.to_bytes(8, "big")
            while (beyond := filled - length) >= head and chain[at] == same:
                whole.append(body)
                body = chain[at + 1] if at + 1 < len(chain) else _blank(None, length)
                filled = beyond - head
                at += 2
            if beyond > 0:
                data = (chain[at] if beyond < head else b"".join(chain[at:]))[:beyond]
                filled = length
        more = len(data)
        # no calls from here: see the module docstring
        self._body = body
        self._filled = filled
        self._whole = whole
        if more:
            self._parts += (data,)
            self._have += more
        self.fed += 1

    def take(self, out: Messages, most: int = ALL) -> None:
        """Append complete messages to ``out``, up to ``most``.

        Raises BadMessage and TooLarge, after appending the messages before the fault; the stream is then unusable.
        """
        body = self._body
        if body is not None:
            if self._whole and most > 0:
                some, rest = self._whole[:most], self._whole[most:]
                taken = len(some)
                # no calls, so no signal handler runs in between
                self._whole = rest
                out += some
                self.count += taken
                most -= taken
            previous = len(body)
            if self._filled < previous or most < 1:
                return
            self._body = None
            self._filled = 0
            self._previous = previous
            out += (body,)
            self.count += 1
            most -= 1
        if self._have < self._need:
            if not self.open:
                self._check_alert()
            return
        data, pos = self._data, self._pos
        if self._parts:
            data, pos = b"".join((data[pos:], *self._parts)), 0
        end = len(data)
        opened = self.open
        if not opened:
            self._check_hello(data)
            opened, pos = True, HELLO
        head, limit = self.head, self.limit
        unpack = LENGTHS[head]
        marked = head == 9
        suspect = marked or end > limit  # less data cannot hold a body over the limit
        items: list[bytes] = []
        add = items.append
        fault: BadMessage | TooLarge | None = None
        need, final = head, end - head
        body = None
        filled = size = start = behind = 0
        stuck = False  # at an incomplete or invalid frame
        while most > 0 and pos <= final:
            if most >= RUN and pos + RUN * head <= end:
                (size,) = unpack(data, pos)
                length = RUN * (head + size)
                far = pos + length - head - size
                first = data[pos : pos + head]
                if (
                    data[far : far + head] == first  # most vain tries end here
                    and size <= limit
                    and size < SHORT
                    and (not marked or data[pos] == 1)
                ):
                    bodies, heads = _run(size, head)
                    while pos + length <= end and most >= RUN and set(heads(data, pos)) == {first}:
                        items += bodies(data, pos)
                        pos += length
                        most -= RUN
            # Hot loop. CPython 3.11 compares and jumps in one step only while jumps are short, so rare cases are
            # handled elsewhere.
            for _ in repeat(None, most if most < BLOCK else BLOCK):
                if pos > final:
                    break
                (size,) = unpack(data, pos)
                start = pos + head
                behind = start + size
                if behind > end or (suspect and (size > limit or (marked and data[pos] != 1))):
                    stuck = True
                    break
                add(data[start:behind])
                pos = behind
            else:
                most -= BLOCK
                continue
            break
        if stuck:
            if marked and data[pos] == 2 and self._refers and size <= MOST_REFERENCE:
                if behind > end:
                    need = head + size
                else:
                    try:
                        items.append(self.refer(data[start:behind]))
                        pos = behind
                    except (BadMessage, TooLarge) as wrong:
                        fault = wrong
            elif size > limit or (marked and data[pos] != 1):
                fault = self._fault(size, data[pos])
            elif self._in_place and size > IN_PLACE and end - pos < IN_PLACE:
                need = IN_PLACE  # so much must have arrived before memory is taken for all of it
            elif self._in_place and size >= LARGE:
                if size > _kept:
                    _keep(2 * size)
                body, filled = _blank(None, size), end - start
                memmove(id(body) + _BODY, data[start:], filled)
                pos = end
            else:
                need = head + size
        count = len(items)
        left = end - pos
        if not left:
            data, pos = b"", 0
        elif left < need or pos > left:  # do not keep taken messages alive, nor copy the rest repeatedly
            data, pos = data[pos:], 0
        # no calls from here to the raise: see the module docstring
        self.open = opened
        self._data = data
        self._pos = pos
        self._parts = []
        self._joined = 0
        self._have = left
        self._need = need
        self._body = body
        self._filled = filled
        out += items
        self.count += count
        self.referred = None
        if fault is not None:
            raise fault

    def refer(self, frame: bytes) -> Any:
        """Return the message to which a frame refers; ``referred`` keeps its memory until it was taken.

        Such frames begin with 2 in place of 1. Each ends its ``take``. Raises BadMessage, TooLarge.
        """
        raise NotImplementedError

    def glance(self, frame: bytes) -> Any:
        """Like ``refer``, for a frame that may be fed and taken after all; None in place of an error."""
        return None

    def _check_alert(self) -> None:
        """Look whether TLS has answered our hello: its alert is shorter than a hello, and nothing follows."""
        first = b"".join((self._data[self._pos :], *self._parts))
        if first.startswith(ALERT):
            raise BadMessage("hello", f"the peer speaks {spoken(first)}")

    def _check_hello(self, data: bytes) -> None:
        if data[:4] == REFUSED:
            raise AccessDenied(data[6 : 6 + int.from_bytes(data[4:6], "big")].decode(errors="replace"))
        if data[:4] != b"\0SP\0" or data[6:8] != b"\0\0":
            what = spoken(data)
            raise BadMessage("hello", f"the peer speaks {what}" if what else f"{data[:8].hex(' ')} is not an SP hello")
        protocol = int.from_bytes(data[4:6], "big")
        if protocol != self._peer:
            theirs = NAMES.get(protocol, f"protocol {protocol}")
            raise BadMessage("hello", f"{theirs} instead of {NAMES[self._peer]}")

    def _fault(self, size: int, first: int) -> BadMessage | TooLarge:
        if self.first and first != 1:
            return BadMessage("frame", f"begins with {first} instead of 1")
        return TooLarge(size, self.limit - self._headroom)

    # ------------------------------------------------------------------ sending

    @property
    def framing(self) -> object:
        """Machines with equal values here return equal frames for equal bodies; None equals no other."""
        return self.first

    def frames(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Return the frames of ``bodies`` as buffers for one write: small ones joined, large ones separate."""
        first = bodies[0]
        size = len(first)
        if len(bodies) == 1:
            head = self.first + size.to_bytes(8, "big")
            return [head + first] if size < APART else [head, first]
        if size < APART and len(set(map(len, bodies))) == 1:  # joined on their common head
            head = self.first + size.to_bytes(8, "big")
            return [head + head.join(bodies)]
        out: list[bytes] = []
        small: list[bytes] = []
        one, last, head = self.first, -1, b""
        for body in bodies:
            size = len(body)
            if size != last:
                head, last = one + size.to_bytes(8, "big"), size
            small.append(head)
            if size < APART:
                small.append(body)
            else:
                out += (b"".join(small), body)
                small = []
        if small:
            out.append(b"".join(small))
        return out

    def wire_size(self, size: int) -> int:
        """Return the bytes that a message of ``size`` bytes takes on the wire."""
        return self.head + size

    def end(self) -> bytes:
        """Return the bytes to send before the stream is closed: none in SP."""
        return b""


# ---- headers ---------------------------------------------------------------------------------------------------------


def split_question(message: bytes) -> tuple[bytes, bytes] | None:
    """Return header and body of a request or survey; None to drop it, as it passed too many devices.

    Raises BadMessage if the header has no end: the peer does not speak the protocol.
    """
    size = len(message)
    if size >= 4 and message[0] & 0x80:  # no device passed: the usual case
        return message[:4], message[4:]
    for at in range(4, MOST_WORDS * 4, 4):
        if at + 4 > size:
            raise BadMessage("header", f"{size} bytes without an id")
        if message[at] & 0x80:
            return message[: at + 4], message[at + 4 :]
    return None


def split_reply(message: bytes) -> tuple[int, bytes]:
    """Return id and body of a reply. Raises BadMessage if it has no id."""
    if len(message) < 4 or not message[0] & 0x80:
        raise BadMessage("reply", f"{len(message)} bytes without an id")
    return int.from_bytes(message[:4], "big"), message[4:]


def split_hops(messages: Iterable[bytes]) -> list[bytes]:
    """Return the bodies of PAIR1 messages; drop those with more than 8 hops. Raises BadMessage."""
    bodies = []
    for message in messages:
        if message[:4] != b"\0\0\0\1":
            if len(message) < 4 or message[:3] != b"\0\0\0":
                raise BadMessage("header", "no hop count")
            if message[3] > MOST_PAIR_HOPS:
                continue
        bodies.append(message[4:])
    return bodies
