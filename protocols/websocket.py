"""SP over WebSocket as a pure machine: bytes in, messages out, as wsproto is for WebSocket itself.

::

    client = ClientMachine("push.sp.nanomsg.org", "/", "127.0.0.1:9000", limit=1 << 20, mask=os.urandom)
    server = ServerMachine("push.sp.nanomsg.org", "/", "127.0.0.1", limit=1 << 20)
    messages = []
    server.feed(b"".join(client.said))          # the request; `said` holds what is to be sent now
    server.take(messages)
    if server.asks:                             # right so far; server.request says path, origin and host
        server.accept()                         # or refuse()
    client.feed(b"".join(server.said))
    client.take(messages)                       # client.open from here on
    client.feed(b"".join(server.frames([b"work", b"more work"])))
    client.take(messages)                       # [b"work", b"more work"]

One SP message is one binary WebSocket message. There is no SP hello: the subprotocol names the listener's protocol, and
both sides say the same one (nanomsg, sp-websocket-mapping-01)::

    pair (PAIR0)  pair1  pub  sub  req  rep  push  pull  surveyor  respondent  bus      and .sp.nanomsg.org behind it

Frames are those of RFC 6455, those of the client masked::

    82  length: 1, 3 or 9 bytes  [mask: 4 bytes]  body

Whole binary frames, pings and fragments are parsed here. h11 parses the handshake; wsproto knows its token, and which
close frames are valid. Measured: a ping costs wsproto 14 us, so 256 KiB full of pings would take half a second.

NNG refuses a frame of more than 1 MiB unless told otherwise (close code 1009; measured with NNG 1.11), and sends
fragments of 64 KiB itself. So ``frames`` cuts larger messages into fragments of 1 MiB.

Bytes kept that are not a message yet: one message of ``limit`` bytes at most, and what one ``feed`` brought.

A signal handler of Python's main thread may raise between any two calls. So ``feed``, ``take``, ``accept`` and
``refuse`` work on local names, and change the machine in lines without a call between them: either all of it has
happened or nothing, and the call can be repeated. ``fed`` and ``count`` tell an interrupted caller which.

Pure: no socket, no clock, no thread; random bytes come from the ``mask`` that is passed in. Raises BadMessage and
TooLarge of ``nngkit.errors``.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

import h11
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import CloseConnection
from wsproto.utilities import generate_accept_token

from nngkit.errors import BadMessage, ConfigError, TooLarge

from .sp import APART, HEADROOM

__all__ = ["ClientMachine", "Machine", "Request", "ServerMachine"]

NAMELESS: Final = b"GET  HTTP/1.1\r\n"  # what NNG asks for where its address has no path
ANY_HOST: Final = frozenset(("", "*", "0.0.0.0", "::"))  # a listener on one of these answers to every host
MOST_HEAD: Final = 16 * 1024  # bytes of a request or response; browsers send under 8 KiB, cookies included
MOST_FRAME_HEAD: Final = 14  # bytes
MOST_FRAME: Final = 1 << 20  # bytes of a frame that NNG lets in (WS_DEF_MAXRXFRAME)
LARGE: Final = 16 * 1024  # bytes from which a body is joined apart from its neighbours, which saves a copy
TRANSLATED: Final = 2048  # bytes from which `translate` unmasks faster than one integer
SMALL_CHUNK: Final = 4096  # bytes below which chunks are collected in one buffer: an object each costs 40 bytes
FIRST_RUN: Final = 16  # frames of one length looked for at first; a try in vain costs as much as three frames
MOST_RUN: Final = 1024  # and at most: 20 KiB of small frames, which stay in the cache
STRIDES: Final = 32  # bodies unpacked in one step; more is no faster
ALL: Final = 1 << 62

FIN, CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x80, 0, 1, 2, 8, 9, 10
WHOLE: Final = FIN | BINARY
MASKED: Final = 0x80
NORMAL, PROTOCOL_ERROR, UNSUPPORTED, TOO_BIG = 1000, 1002, 1003, 1009  # close codes, RFC 6455, 7.4.1

REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    505: "HTTP Version Not Supported",
}

Mask = Callable[[int], bytes]

_u16 = struct.Struct(">H").unpack_from
_u64 = struct.Struct(">Q").unpack_from
_integer = int.from_bytes


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for: ``path`` with its query, ``origin`` if a browser asks for a page, ``host`` with port."""

    path: str
    origin: str | None
    host: str | None


class _Refusal(Exception):
    """A handshake that fails: HTTP ``status`` and ``why``."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class _Fault(Exception):
    """A frame that must not be: close ``code``, and the ``error`` that the caller sees."""

    def __init__(self, code: int, error: BadMessage | TooLarge) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error


def _bad(why: str, code: int = PROTOCOL_ERROR) -> _Fault:
    return _Fault(code, BadMessage("WebSocket frame", why))


class Machine:
    """One side of a connection; ServerMachine and ClientMachine are the two.

    ``limit``: bytes of the largest message let in; up to ``headroom`` more pass, for protocol headers. ``large``: bytes
    from which ``frames`` leaves a body in a buffer of its own.

    ``said``: bytes to be sent now, in order: take the list and put an empty one in its place. ``open``: the handshake
    is complete. ``asks``: the ``request`` is right, and ``accept`` or ``refuse`` is awaited (server only). ``ended``:
    the peer sent a close frame, or the handshake failed: send ``said`` and close. ``fed``: calls of ``feed``;
    ``count``: messages handed out.
    """

    _side: ConnectionType
    _mask_in: int  # MASKED if the peer's frames have to be, else 0
    _mask_out: int  # and ours

    def __init__(self, limit: int, headroom: int, large: int, mask: Mask = bytes) -> None:
        self._limit = limit + headroom
        self._headroom = headroom
        self._large = large
        self._mask = mask
        self._data = b""  # what is being taken apart, from _at on; empty unless _more
        self._at = 0
        self._more = False
        self._parts: list[bytes | bytearray] = []  # what came after it; the first is bytes
        self._have = 0  # bytes in both
        self._need = 2  # bytes that are enough to go on
        self._partial: bytearray | None = None  # the fragments of a message that goes on
        self._fault: BadMessage | TooLarge | None = None
        self._closing = False  # a close frame was given out by end()
        self.said: list[bytes] = []
        self.open = False
        self.asks = False
        self.ended = False
        self.request: Request | None = None
        self.fed = 0
        self.count = 0

    # ------------------------------------------------------------------ receiving

    @property
    def begun(self) -> bool:
        """Whether the handshake, or a message, has begun or is awaited, and is not complete."""
        if self.ended:
            return False
        return not self.open or self._partial is not None or (self._have > 0 and not self._more)

    @property
    def more(self) -> bool:
        """Whether complete messages may still be inside: ``take`` stopped at ``most``, or came before ``accept``."""
        return self._more

    def place(self) -> None:
        """Return None: no body is received in place, use ``feed``."""

    def feed(self, data: bytes) -> None:
        """Add what came next on the stream. After the end it is dropped."""
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
        """Append the messages that are complete to ``out``, up to ``most``.

        Raises BadMessage and TooLarge after what came before the fault was appended and the close frame, or the HTTP
        error, was put into ``said``; the stream is then of no use.
        """
        if not self.open and (self.asks or self.ended or not self._shake()):
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
                and over <= len(behind[-1])  # more was fed than its end, and not taken
            ):
                body, data = self._join_large(behind, over)
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
                    at, need = self._scan(data, at, most, items)
                    if need or len(items) >= most:
                        break
                lead, body, stop = self._other(data, at, partial is not None, gathered)
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
        except _Fault as found:
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
        # from here to the raise no call: see the module's first lines
        if partial is not None:
            partial += grown
        self._partial = partial
        self._data = data
        self._at = at
        self._more = more
        self._parts = behind
        self._have = have
        self._need = need
        self._fault = fault
        self.ended = ended
        self.said += said
        out += items
        self.count += count
        if fault is not None:
            raise fault
        if had_more and behind and not more:
            self.take(out, most - count)  # what was fed before all of the last chunk was taken

    def _shake(self) -> bool:
        """Go on with the handshake; return True if messages may flow."""
        raise NotImplementedError

    def _scan(self, data: bytes, at: int, most: int, items: list[bytes]) -> tuple[int, int]:
        """Append whole binary messages, from ``at`` on; return where the next frame is and how many bytes it needs.

        0: it is there, but is another kind of frame or a wrong one, or ``most`` is reached.
        """
        end, add, limit, masked = len(data), items.append, self._limit, self._mask_in
        key = 4 if masked else 0
        room = most - len(items)
        last, window = -1, FIRST_RUN
        while room > 0:
            left = end - at
            if left < 2:
                return at, 2
            size = data[at + 1] ^ masked
            if data[at] != WHOLE or size > 127:
                return at, 0
            start = at + 2 + key
            if size > 125:
                wide = size == 127
                if left < (10 if wide else 4):
                    return at, 10 if wide else 4
                (size,) = _u64(data, at + 2) if wide else _u16(data, at + 2)
                start += 8 if wide else 2
                if size < (65536 if wide else 126):
                    return at, 0
            if size > limit:
                return at, 0
            stop = start + size
            if stop > end:
                return at, stop - at
            if size == last and size < 126 and room > 3 and left >= 4 * (stop - at):
                stride = stop - at
                count = _same(data, at, stride, min(window, room))
                stop = at + count * stride
                items += _uncover(data[at:stop], count, size) if masked else _bodies(data[at:stop], count, 2, size)
                at = stop
                room -= count
                window, last = (min(window * 8, MOST_RUN), size) if count == window else (FIRST_RUN, -1)
                continue
            if not masked:
                add(data[start:stop])
            elif size < TRANSLATED:
                cover = (data[start - 4 : start] * (size // 4 + 1))[:size]
                whole = _integer(data[start:stop], "little") ^ _integer(cover, "little")
                add(whole.to_bytes(size, "little"))
            else:
                add(_mask(data[start:stop], data[start - 4 : start]))
            last = size
            room -= 1
            at = stop
        return at, 0

    def _frame(self, first: int, body: bytes) -> bytes:
        bit = self._mask_out
        key = self._mask(4) if bit else b""
        return _length(first, len(body), bit) + key + (_mask(body, key) if bit else body)

    def _close(self, code: int) -> bytes:
        return self._frame(FIN | CLOSE, code.to_bytes(2, "big"))

    def _split_head(self) -> tuple[bytes, bytes] | None:
        """Return the head of an HTTP message and what came behind it; None if it is not complete."""
        data = b"".join(self._parts)  # again for each chunk, which MOST_HEAD bounds
        cut = data.find(b"\r\n\r\n", max(0, self._need - 3), MOST_HEAD) + 4
        if cut > 3:
            return data[:cut], data[cut:]
        if len(data) >= MOST_HEAD:
            raise _Refusal(431, f"a head of more than {MOST_HEAD} bytes")
        self._need = len(data)  # looked at so far
        return None

    def _other(self, data: bytes, at: int, inside: bool, gathered: int) -> tuple[int, bytes, int]:
        """Return first byte, body and end of the frame at ``at``, of whatever kind; the end is beyond if it is cut off.

        ``inside``: a message has begun, with ``gathered`` bytes so far. Raises _Fault as soon as the bytes show it.
        """
        left = len(data) - at
        if left < 2:
            return 0, b"", at + 2
        first, size = data[at], data[at + 1]
        opcode, final = first & 0x0F, first & FIN
        if first & 0x70:
            raise _bad("reserved bits are set")
        if size & 0x80 != self._mask_in:
            raise _bad("a frame of a client is not masked" if self._mask_in else "a frame of a server is masked")
        size &= 0x7F
        if opcode in (CLOSE, PING, PONG):
            if not final or size > 125:
                raise _bad("a control frame in fragments" if not final else "a control frame of more than 125 bytes")
        elif opcode == TEXT:
            raise _bad("text where a binary message was expected", UNSUPPORTED)
        elif opcode == (BINARY if inside else CONTINUATION):
            raise _bad("a message inside another" if inside else "a fragment of no message")
        elif opcode > BINARY:
            raise _bad(f"unknown opcode {opcode}")
        start = at + 2
        if size > 125:
            width, least = (2, 126) if size == 126 else (8, 65536)
            start += width
            if left < 2 + width:
                return first, b"", start
            size = _integer(data[start - width : start], "big")
            if size < least:
                raise _bad(f"a length of {size} in {width} bytes")
        if opcode < CLOSE and gathered + size > self._limit:
            raise _Fault(TOO_BIG, TooLarge(gathered + size, self._limit - self._headroom))
        start += 4 if self._mask_in else 0
        stop = start + size
        if stop > len(data):
            return first, b"", stop
        body = data[start:stop]
        return first, _mask(body, data[start - 4 : start]) if self._mask_in else body, stop

    def _join_large(self, parts: Sequence[bytes | bytearray], over: int) -> tuple[bytes, bytes]:
        """Return the body of the large frame that ``parts`` begin with, and the ``over`` bytes behind it."""
        first, *middle, last = parts
        start = 2 + (0, 2, 8)[max(first[1] & 0x7F, 125) - 125]
        key = bytes(first[start : start + 4]) if self._mask_in else b""
        cut = len(last) - over
        body = b"".join((memoryview(first)[start + len(key) :], *middle, memoryview(last)[:cut]))
        return _mask(body, key) if key else body, bytes(last[cut:])

    def _answer_close(self, frame: bytes) -> tuple[bytes, ...]:
        """Return the answer to a close frame, none if it is an answer itself. Raises _Fault."""
        peer = Connection(self._side)
        peer.receive_data(frame)
        event = next(peer.events())
        if not isinstance(event, CloseConnection) or peer.state is not ConnectionState.REMOTE_CLOSING:
            raise _bad(f"close frame: {getattr(event, 'reason', '')}", getattr(event, "code", PROTOCOL_ERROR))
        return () if self._closing else (bytes(peer.send(event.response())),)

    # ------------------------------------------------------------------ sending

    def frames(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Return the frames of ``bodies`` as buffers for one write: small ones joined, large ones apart.

        A client's frames have a mask each (RFC 6455, 5.3); they are drawn in one call. A server's large bodies are not
        copied, unless they are cut into fragments.
        """
        if not bodies:
            return []
        large, bit = self._large, self._mask_out
        size = len(bodies[0])
        if not bit and size < large and len(set(map(len, bodies))) == 1:
            head = _length(WHOLE, size, 0)  # joined on
            return [head + head.join(bodies)]
        if bit and size < 126 and len(bodies) > 3 and len(set(map(len, bodies))) == 1:
            return [_cover(bodies, size, self._mask(4 * len(bodies)))]
        keys = self._mask(4 * sum([len(body) // MOST_FRAME + 1 for body in bodies])) if bit else b""
        at = 0
        out: list[bytes] = []
        small: list[bytes] = []
        for body in bodies:
            for first, piece in ((WHOLE, body),) if len(body) <= MOST_FRAME else _pieces(body):
                small.append(_length(first, len(piece), bit))
                if bit:
                    key = keys[at : at + 4]
                    at += 4
                    small.append(key)
                    piece = _mask(piece, key)
                if len(piece) < large:
                    small.append(piece)
                else:
                    out += (b"".join(small), piece)
                    small = []
        if small:
            out.append(b"".join(small))
        return out

    def cost(self, size: int) -> int:
        """Return the bytes that a message of ``size`` takes on the wire."""
        whole, rest = divmod(size, MOST_FRAME)
        extra = 4 if self._mask_out else 0
        last = rest + extra + (2 if rest < 126 else 4 if rest < 65536 else 10) if rest or not whole else 0
        return whole * (MOST_FRAME + 10 + extra) + last

    def end(self) -> bytes:
        """Return what is to be sent before the stream is closed: a close frame, or nothing where none is due."""
        if not self.open or self.ended or self._fault is not None:
            return b""
        frame = self._close(NORMAL)
        self._closing = True
        return frame


class ServerMachine(Machine):
    """The listener's side: answers to ``path`` and ``host`` only, with ``subprotocol``, its own protocol's name.

    ``path`` is compared whole, the query aside; none is ``/``. ``host``: what a client has to say in ``Host:``, the
    port aside; None and the addresses that mean every interface let every host in.
    """

    _side = ConnectionType.SERVER
    _mask_in = MASKED
    _mask_out = 0

    def __init__(
        self, subprotocol: str, path: str, host: str | None, limit: int, *, headroom: int = HEADROOM, large: int = APART
    ) -> None:
        super().__init__(limit, headroom, large)
        self._subprotocol = subprotocol
        self._path = path or "/"
        host = _bare(host or "")
        self._host = None if host in ANY_HOST else host
        self._token = b""

    def _shake(self) -> bool:
        try:
            if self._parts and self._parts[0][0] <= 0x20:  # SP or TLS, which have no end of a line to wait for
                raise _Refusal(400, "not HTTP")
            split = self._split_head()
            if split is None:
                return False
            request, token = self._judge(split[0])
        except _Refusal as refusal:
            error = BadMessage("WebSocket handshake", refusal.why)
            self._fail(refusal.status)
            raise error from None
        rest = split[1]
        parts: list[bytes | bytearray] = [rest] if rest else []
        have = len(rest)
        # from here no call: see the module's first lines
        self._token = token
        self._parts = parts
        self._have = have
        self._need = 2
        self.request = request
        self.asks = True
        return False

    def _judge(self, head: bytes) -> tuple[Request, bytes]:
        """Return the request and the token that accepts it. Raises _Refusal; the order is NNG's."""
        http = h11.Connection(h11.SERVER)
        if head.startswith(NAMELESS):
            head = b"GET / HTTP/1.1\r\n" + head[len(NAMELESS) :]
        try:
            http.receive_data(head)
            event = http.next_event()
            rest = http.next_event()
        except h11.RemoteProtocolError as error:
            raise _Refusal(400, str(error)) from None
        if not isinstance(event, h11.Request):
            raise _Refusal(400, "no request")
        fields = _Fields(event.headers)
        target = event.target.decode("latin-1")
        host = fields.one("host")
        if event.http_version != b"1.1":
            raise _Refusal(505, f"HTTP/{event.http_version.decode()}")
        if self._path not in (target, target.partition("?")[0]):
            raise _Refusal(404, f"path {target}")
        if self._host is not None and _bare(host or "", port=True) != self._host:
            raise _Refusal(404, f"host {host}")
        if event.method != b"GET":
            raise _Refusal(405, f"method {event.method.decode()}")
        if "websocket" not in fields.tokens("upgrade") or "upgrade" not in fields.tokens("connection"):
            raise _Refusal(426, "no upgrade to websocket")
        version = fields.one("sec-websocket-version")
        if version != "13":
            raise _Refusal(426 if version else 400, f"version {version}")
        key = (fields.one("sec-websocket-key") or "").encode("latin-1")
        if not _is_key(key):
            raise _Refusal(400, "no key of 16 bytes")
        offers = fields.words("sec-websocket-protocol")
        if self._subprotocol not in offers:
            raise _Refusal(400, f"{', '.join(offers) or 'no protocol'} where {self._subprotocol} was expected")
        if not isinstance(rest, h11.EndOfMessage):
            raise _Refusal(400, "a request with a body")
        return Request(target, fields.one("origin"), host), generate_accept_token(key)

    def _fail(self, status: int) -> None:
        answer = _response(status)
        # from here no call
        self._parts = []
        self._have = 0
        self.asks = False
        self.ended = True
        self.said += (answer,)

    def accept(self) -> None:
        """Let the client in: from now on messages may flow. Nothing happens unless ``asks``."""
        if not self.asks:
            return
        answer = _head(
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {self._token.decode()}",
            f"Sec-WebSocket-Protocol: {self._subprotocol}",
        )
        # from here no call
        self.asks = False
        self._more = self._have > 0
        self.open = True
        self.said += (answer,)

    def refuse(self) -> None:
        """Answer the client with HTTP 403. Nothing happens unless ``asks``."""
        if self.asks:
            self._fail(403)


class ClientMachine(Machine):
    """The dialer's side: asks for ``path`` and ``subprotocol``, the listener's protocol's name.

    ``host``: what it says in ``Host:``, the port included. ``mask``: returns as many unpredictable bytes as it is asked
    for, as ``os.urandom`` does. Raises ConfigError for a path or host that HTTP cannot say.
    """

    _side = ConnectionType.CLIENT
    _mask_in = 0
    _mask_out = MASKED

    def __init__(
        self,
        subprotocol: str,
        path: str,
        host: str,
        limit: int,
        mask: Mask,
        *,
        headroom: int = HEADROOM,
        large: int = APART,
    ) -> None:
        super().__init__(limit, headroom, large, mask)
        self._subprotocol = subprotocol
        self._key = b64encode(mask(16))
        fields = [
            ("Host", host),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Key", self._key.decode()),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Protocol", subprotocol),
        ]
        try:
            self._asked = h11.Request(method="GET", target=path or "/", headers=fields)
            said = h11.Connection(h11.CLIENT).send(self._asked)
        except (h11.LocalProtocolError, UnicodeError) as error:
            raise ConfigError("WebSocket address", str(error), f"{host}{path}") from None
        self.said.append(said or b"")

    def _shake(self) -> bool:
        try:
            start = bytes(self._parts[0][:7]) if self._parts else b""
            if not b"HTTP/1.".startswith(start):
                raise _Refusal(400, "not HTTP")
            split = self._split_head()
            if split is None:
                return False
            self._judge(split[0])
        except _Refusal as refusal:
            error = BadMessage("WebSocket handshake", refusal.why)
            # from here no call
            self._parts = []
            self._have = 0
            self.ended = True
            raise error from None
        rest = split[1]
        parts: list[bytes | bytearray] = [rest] if rest else []
        have = len(rest)
        # from here no call
        self._parts = parts
        self._have = have
        self._need = 2
        self._more = have > 0
        self.open = True
        return True

    def _judge(self, head: bytes) -> None:
        """Check the listener's answer. Raises _Refusal."""
        http = h11.Connection(h11.CLIENT)
        http.send(self._asked)
        http.send(h11.EndOfMessage())
        try:
            http.receive_data(head)
            event = http.next_event()
        except h11.RemoteProtocolError as error:
            raise _Refusal(400, str(error)) from None
        if not isinstance(event, (h11.InformationalResponse, h11.Response)) or event.status_code != 101:
            raise _Refusal(400, f"the listener answered {head[9:].splitlines()[0].decode('latin-1')}")
        fields = _Fields(event.headers)
        if "websocket" not in fields.tokens("upgrade") or "upgrade" not in fields.tokens("connection"):
            raise _Refusal(400, "no upgrade to websocket")
        if fields.one("sec-websocket-accept") != generate_accept_token(self._key).decode():
            raise _Refusal(400, "the listener accepted another key")
        if fields.words("sec-websocket-protocol") != [self._subprotocol]:
            said = fields.one("sec-websocket-protocol") or "no protocol"
            raise _Refusal(400, f"{said} where {self._subprotocol} was expected")
        if fields.words("sec-websocket-extensions"):
            raise _Refusal(400, "an extension that was not asked for")


# ---- frames ----------------------------------------------------------------------------------------------------------


@lru_cache(512)
def _length(first: int, size: int, masked: int) -> bytes:
    """Return the head of a frame, up to its mask."""
    if size < 126:
        return bytes((first, masked | size))
    if size < 65536:
        return bytes((first, masked | 126)) + size.to_bytes(2, "big")
    return bytes((first, masked | 127)) + size.to_bytes(8, "big")


def _pieces(body: bytes) -> Iterable[tuple[int, bytes]]:
    """Yield first byte and body of the fragments of a message that is too large for one frame."""
    final = (len(body) - 1) // MOST_FRAME * MOST_FRAME
    for at in range(0, final + 1, MOST_FRAME):
        yield (CONTINUATION if at else BINARY) | (FIN if at == final else 0), body[at : at + MOST_FRAME]


def _same(data: bytes, at: int, stride: int, most: int) -> int:
    """Return how many whole frames from ``at`` on have the head of the first, up to ``most``; at least 1."""
    count = min((len(data) - at) // stride, most)
    stop = at + count * stride
    for place in (at, at + 1):
        column = data[place:stop:stride]
        count = min(count, len(column) - len(column.lstrip(data[place : place + 1])))
    return count


@lru_cache(256)
def _strider(head: int, size: int) -> struct.Struct:
    return struct.Struct(f"{head}x{size}s" * STRIDES)


def _bodies(run: bytes, count: int, head: int, size: int) -> list[bytes]:
    """Return the bodies of ``count`` frames of one length, which ``run`` consists of."""
    stride = head + size
    middle = count // STRIDES * STRIDES * stride
    items = list(chain.from_iterable(_strider(head, size).iter_unpack(memoryview(run)[:middle])))
    items += [run[start : start + size] for start in range(middle + head, len(run) + 1, stride)]
    return items


def _uncover(run: bytes, count: int, size: int) -> list[bytes]:
    """Return the same of masked frames, unmasked as one integer."""
    stride = 6 + size
    cover = bytearray(len(run))
    for place in range(4):
        column = run[2 + place :: stride]
        for start in range(6 + place, stride, 4):
            cover[start::stride] = column
    return _bodies(_xor(run, cover), count, 6, size)


def _cover(bodies: Sequence[bytes], size: int, keys: bytes) -> bytes:
    """Return masked frames of bodies of one ``size``, under 126 bytes; ``keys``: four bytes for each."""
    head = _length(WHOLE, size, MASKED) + bytes(4)
    stride = 6 + size
    runs = []
    for at in range(0, len(bodies), MOST_RUN):
        some = bodies[at : at + MOST_RUN]
        plain = head + head.join(some)
        cover = bytearray(len(plain))
        for place in range(4):
            column = keys[4 * at + place : 4 * (at + len(some)) : 4]
            for start in range(2 + place, stride, 4):
                cover[start::stride] = column
        runs.append(_xor(plain, cover))
    return b"".join(runs)


def _xor(one: bytes | bytearray, other: bytes | bytearray) -> bytes:
    return (_integer(one, "little") ^ _integer(other, "little")).to_bytes(len(one), "little")


@lru_cache(256)
def _table(key: int) -> bytes:
    return _xor(bytes(range(256)), bytes((key,)) * 256)


def _mask(body: bytes, key: bytes) -> bytes:
    """Return ``body`` masked or unmasked with ``key``."""
    size = len(body)
    if size < TRANSLATED:
        return _xor(body, (key * (size // 4 + 1))[:size])
    masked = bytearray(body)
    for place in range(4):
        masked[place::4] = masked[place::4].translate(_table(key[place]))
    return bytes(masked)


# ---- HTTP ------------------------------------------------------------------------------------------------------------


class _Fields:
    """The header fields of a request or response."""

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        self._fields = [(name.decode("ascii"), value.decode("latin-1")) for name, value in fields]

    def one(self, name: str) -> str | None:
        """Return the first value of ``name``."""
        values = [value for key, value in self._fields if key == name]
        return values[0] if values else None

    def words(self, name: str) -> list[str]:
        """Return the parts between commas of all values of ``name``."""
        parts = ",".join(value for key, value in self._fields if key == name).split(",")
        return [word for part in parts if (word := part.strip())]

    def tokens(self, name: str) -> list[str]:
        """Return the same in lower case."""
        return [word.lower() for word in self.words(name)]


def _bare(host: str, *, port: bool = False) -> str:
    """Return ``host`` in lower case, without brackets and, if it may have one, without ``port``."""
    if port and not host.endswith("]"):
        name, colon, _ = host.rpartition(":")
        host = name if colon else host
    return host.strip("[]").lower()


def _is_key(key: bytes) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except ValueError:
        return False


def _head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _response(status: int) -> bytes:
    more = {
        405: ["Allow: GET"],
        426: ["Upgrade: websocket", "Sec-WebSocket-Version: 13"],
    }.get(status, [])
    connection = "Connection: Upgrade, close" if status == 426 else "Connection: close"
    return _head(f"HTTP/1.1 {status} {REASONS[status]}", *more, connection, "Content-Length: 0")
