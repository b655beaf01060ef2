"""Requests and replies of calls with a codec. Pure; docs/wire.md has them as CDDL.

::

    caller -> provider   CallRequest(id, body, method, timeout, stream, headers)     run the handler
                         MoreRequest(id)                                     the next parts of a stream
                         CancelRequest(id)                                   the caller has given up
                         PingRequest()  InfoRequest()  StatsRequest()
    provider -> caller   ResultReply(body, headers)
                         PartsReply(parts, end, headers)                     to a call with `stream`, and to MoreRequest
                         DoneReply()                                         to CancelRequest
                         ErrorReply(kind, message, ran, error, data, headers)

A message is one map: CBOR, or the same map as JSON text, in which there are no byte strings. With codec None there are
no messages: a request and a reply are the bytes of the body. Bytes from a peer are decoded with limits; what they do
not allow raises BadMessage or TooLarge, never anything else.
"""

from __future__ import annotations

import json
import struct
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta
from msgspec.structs import force_setattr

from nngkit import envelope
from nngkit.errors import BadMessage, ConfigError, RemoteError, TooLarge
from nngkit.headers import MOST_PACKED, WireHeaders, pack_headers, unpack_few
from nngkit.messages import ANY_TEXT, Fields, Flag, Maps, always

VERSION: Final = 1
Codec: TypeAlias = Literal["cbor", "json"]

DENIED: Final = "access denied"  # the kinds of errors for which the handler has not run
BAD_REQUEST: Final = "bad request"
BUSY: Final = "busy"
DRAINING: Final = "draining"
NO_METHOD: Final = "no method"
UNHEALTHY: Final = "unhealthy"
DEADLINE: Final = "deadline"  # also of one that has begun
MAX_KIND: Final = 64
MAX_METHOD: Final = 128  # bytes: as long as a name of a service
MAX_MESSAGE: Final = 1024  # characters of an error's message
MAX_PARTS: Final = 64
"""Cap on the parts of one reply: enough to fill it with small ones, and a bound for the reader."""

Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64, extra=ANY_TEXT)]
Kind: TypeAlias = Annotated[str, Meta(max_length=MAX_KIND, extra=ANY_TEXT)]


def check_codec(codec: str | None) -> Codec | None:
    """Return the codec. Raises ConfigError."""
    if codec is None or codec in ("cbor", "json"):
        return codec  # type: ignore[return-value]
    raise ConfigError("codec", f"{codec!r} is none of None, 'cbor' and 'json'", codec)


# ---- requests --------------------------------------------------------------------------------------------------------


class _Request(Fields, frozen=True):
    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message. Raises TypeError or ValueError for a body that the codec cannot carry; TooLarge."""
        return REQUESTS.encode(self, limit) if codec == "cbor" else _to_json(REQUESTS.pack(self), limit=limit)


class CallRequest(_Request, frozen=True, tag="call", omit_defaults=True):
    """Call of a handler. `id`: unique, chosen by the caller. `timeout`: seconds that the caller still waits, or None.

    `stream`: the caller reads the reply in parts. `headers`: None, or the program's, of at least one.
    """

    id: Id
    body: Any
    method: Annotated[str, Meta(max_length=MAX_METHOD, extra=ANY_TEXT)] = ""
    timeout: Annotated[float, Meta(ge=0, lt=1e9)] | None = None
    stream: Flag = False
    headers: WireHeaders | None = None

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message, as the other ones; written out, in a third of the time."""
        if codec != "cbor":
            return _Request.encode(self, codec, limit)
        method, timeout, stream, headers = self.method, self.timeout, self.stream, self.headers
        count = 4 + (method != "") + (timeout is not None) + stream + (headers is not None)
        head = _MAPS[count] + _CALL + _text(self.id) + _BODY + _written(self.body) + _CALL_END
        if method:
            head += _METHOD + _text(method)
        if stream:
            head += _STREAM
        if headers is not None:
            head += _HEADERS + pack_headers(headers)
        return _limited(head if timeout is None else head + _TIMEOUT + _written(timeout), limit)


class MoreRequest(_Request, frozen=True, tag="more"):
    """Request for the next parts of the stream of the call `id`."""

    id: Id


class CancelRequest(_Request, frozen=True, tag="cancel"):
    """Notice that the caller of `id` has given up."""

    id: Id


class PingRequest(_Request, frozen=True, tag="ping"):
    """Request that every server answers without a handler."""


class InfoRequest(_Request, frozen=True, tag="info"):
    """Request for the server's information."""


class StatsRequest(_Request, frozen=True, tag="stats"):
    """Request for the server's figures."""


Request: TypeAlias = CallRequest | MoreRequest | CancelRequest | PingRequest | InfoRequest | StatsRequest

REQUESTS: Final = Maps[Any](
    "call request",
    CallRequest,
    MoreRequest,
    CancelRequest,
    PingRequest,
    InfoRequest,
    StatsRequest,
    version=VERSION,
    limit=None,
)


def parse_request(data: bytes, codec: Codec, *, limit: int, peer: str | None = None) -> Request:
    """Decode a request of at most `limit` bytes. Raises BadMessage, TooLarge."""
    if codec == "cbor" and len(data) <= limit and (call := _usual_call(data)) is not None:
        return call
    decode = envelope.decode if codec == "cbor" else _from_json
    request: Request = REQUESTS.parse(decode(data, what=REQUESTS.what, limit=limit, peer=peer), peer)
    return request


# ---- replies ---------------------------------------------------------------------------------------------------------


class _Reply(Fields, frozen=True):
    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message. Raises TypeError or ValueError for a body that the codec cannot carry; TooLarge."""
        return REPLIES.encode(self, limit) if codec == "cbor" else _to_json(REPLIES.pack(self), limit=limit)


class ResultReply(_Reply, frozen=True, tag="result", omit_defaults=True):
    """The value that the handler returned."""

    body: Any
    headers: WireHeaders | None = None

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message, as the other ones; written out, in a third of the time."""
        if codec != "cbor":
            return _Reply.encode(self, codec, limit)
        if self.headers is None:
            return _limited(_RESULT + _written(self.body) + _RESULT_END, limit)
        told = _HEADERS + pack_headers(self.headers)
        return _limited(_MAPS[4] + _RESULT[1:] + _written(self.body) + _RESULT_END + told, limit)


class PartsReply(_Reply, frozen=True, tag="parts", omit_defaults=True):
    """Parts of a stream, in order. `end`: no more follow."""

    parts: Annotated[tuple[Any, ...], Meta(max_length=MAX_PARTS)]
    end: Flag
    headers: WireHeaders | None = None

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message, as the other ones; written out, in a third of the time."""
        if codec != "cbor":
            return _Reply.encode(self, codec, limit)
        head = _PARTS_END if self.end else _PARTS
        if self.headers is None:
            return _limited(head + _written(self.parts), limit)
        told = _HEADERS + pack_headers(self.headers)
        return _limited(_MAPS[5] + head[1:] + _written(self.parts) + told, limit)


class DoneReply(_Reply, frozen=True, tag="done"):
    """Reply to CancelRequest."""


class ErrorReply(_Reply, frozen=True, tag="error", omit_defaults=True):
    """A call that has no result.

    kind     "failed": the handler raised. "busy", "draining", "unhealthy", "no method", "bad request", "access denied":
             not run.
             "deadline", "cancelled", "too large" (the reply), "gone" (the stream). Or a handler's own word
    ran      False if the handler has surely not run, so that the call can go to another provider
    error    class name of the exception
    data     any value that the codec carries

    Longer texts are cut.
    """

    kind: Kind
    message: Annotated[str, Meta(extra=ANY_TEXT)]
    ran: Flag = always(True)
    error: Kind = ""
    data: Any = None
    headers: WireHeaders | None = None

    def __post_init__(self) -> None:
        for name, most in (("kind", MAX_KIND), ("message", MAX_MESSAGE), ("error", MAX_KIND)):
            if len(text := getattr(self, name)) > most:
                force_setattr(self, name, text[: most - 3] + "...")

    def exception(self, provider: str = "") -> RemoteError:
        """Return it as an exception for the caller."""
        return RemoteError(
            self.message,
            kind=self.kind,
            error=self.error,
            data=self.data,
            ran=self.ran,
            provider=provider,
            headers=self.headers,
        )


Reply: TypeAlias = ResultReply | PartsReply | DoneReply | ErrorReply

REPLIES: Final = Maps[Any]("call reply", ResultReply, PartsReply, DoneReply, ErrorReply, version=VERSION, limit=None)


def parse_reply(data: bytes, codec: Codec, *, limit: int, peer: str | None = None) -> Reply:
    """Decode a reply of at most `limit` bytes. Raises BadMessage, TooLarge."""
    if codec == "cbor" and len(data) <= limit:
        if data[: len(_RESULT)] == _RESULT and data.endswith(_RESULT_END):
            body = _item(data, len(_RESULT), len(data) - len(_RESULT_END))
            if body is not _UNUSUAL:
                return ResultReply(body)
        elif data[:1] == _MAPS[4] and (result := _result_with_headers(data)) is not None:
            return result
    decode = envelope.decode if codec == "cbor" else _from_json
    reply: Reply = REPLIES.parse(decode(data, what=REPLIES.what, limit=limit, peer=peer), peer)
    return reply


# ---- the usual messages ----------------------------------------------------------------------------------------------

# Nearly all messages are calls with a timeout, and their results. `encode` writes them, and they are taken apart here,
# without a map of their fields; the general reader takes, or refuses, all others. Both return the same: between the
# bytes around a body there is nothing but one item, or it is not a usual message.

_MAPS: Final = [bytes((0xA0 + size,)) for size in range(24)]
_TEXTS: Final = [bytes((0x60 + size,)) for size in range(24)]
_BYTES: Final = [bytes((0x40 + size,)) for size in range(24)]
_CALL: Final = b"av\x01bid"
_BODY: Final = b"dbody"
_CALL_END: Final = b"dtypedcall"
_METHOD: Final = b"fmethod"
_STREAM: Final = b"fstream\xf5"
_HEADERS: Final = b"gheaders"
_TIMEOUT: Final = b"gtimeout"
_RESULT: Final = b"\xa3av\x01dbody"
_RESULT_END: Final = b"dtypefresult"
_PARTS: Final = b"\xa4av\x01cend\xf4dtypeepartseparts"
_PARTS_END: Final = b"\xa4av\x01cend\xf5dtypeepartseparts"
_MOST_AFTER: Final = MOST_PACKED + 64  # bytes of a method and headers, behind a body
_UNUSUAL: Final = object()
_unpack_float = struct.Struct(">d").unpack_from


def _text(text: str) -> bytes:
    data = str.encode(text)
    return _TEXTS[len(data)] + data if len(data) < 24 else envelope.encode(text)


def _written(value: Any) -> bytes:
    """Return the bytes of a value inside a map."""
    if type(value) is bytes and len(value) < 24:
        return _BYTES[len(value)] + value
    return envelope.encode(value, depth=1)


def _limited(data: bytes, limit: int | None) -> bytes:
    if limit is not None and len(data) > limit:
        raise TooLarge(len(data), limit)
    return data


def _usual_call(data: bytes) -> CallRequest | None:
    """Return a call with a timeout, and perhaps a method and headers; None if the general reader has to look at it."""
    count = len(data)
    further = data[0] - 0xA5 if count > 40 else -1  # fields beside `v`, `id`, `body`, `type` and `timeout`
    if not 0 <= further <= 2:
        return None
    size = data[7] - 0x60
    start, timeout = 13 + size, count - 17  # `gtimeout`, and the nine bytes of a float
    end, method, headers = timeout - len(_CALL_END), b"", None
    if further:
        end = data.rfind(_CALL_END, max(start, timeout - _MOST_AFTER), timeout)
    if not (
        data[1:7] == _CALL
        and 1 <= size <= 23
        and data[start - 5 : start] == _BODY
        and data[timeout : count - 8] == b"gtimeout\xfb"
        and start < end
    ):
        return None
    at = end + len(_CALL_END)
    if further and data[at : at + len(_METHOD)] == _METHOD:
        at += len(_METHOD) + 1
        size = data[at - 1] - 0x60
        method = data[at : at + size]
        if not 1 <= size <= 23:
            return None
        at += size
        further -= 1
    if further and data[at : at + len(_HEADERS)] == _HEADERS:
        headers = unpack_few(data[at + len(_HEADERS) : timeout])
        if headers is None:
            return None
        at = timeout
        further -= 1
    if further or at != timeout or data[end : end + len(_CALL_END)] != _CALL_END:
        return None
    (seconds,) = _unpack_float(data, count - 8)
    body = _item(data, start, end)
    if body is _UNUSUAL or not 0 <= seconds < 1e9:
        return None
    try:
        return CallRequest(data[8 : start - 5].decode(), body, method.decode(), seconds, False, headers)
    except UnicodeDecodeError:
        return None


def _result_with_headers(data: bytes) -> ResultReply | None:
    """Return a result with headers; None if the general reader has to look at it."""
    start = len(_RESULT)
    least = max(start, len(data) - _MOST_AFTER)
    end = data.rfind(_RESULT_END + _HEADERS, least) if data[1:start] == _RESULT[1:] else -1
    headers = None if end <= start else unpack_few(data[end + len(_RESULT_END + _HEADERS) :])
    if headers is None:
        return None
    body = _item(data, start, end)
    return None if body is _UNUSUAL else ResultReply(body, headers)


def _item(data: bytes, start: int, end: int) -> Any:
    """Return the value between two places in a map, if it is exactly one; else `_UNUSUAL`."""
    kind = data[start]
    if 0x40 <= kind < 0x58 and end - start == kind - 0x3F:  # short bytes
        return data[start + 1 : end]
    try:
        return envelope.decode(data[start:end], what="item", limit=end - start, depth=1)
    except BadMessage:
        return _UNUSUAL


# ---- codecs ----------------------------------------------------------------------------------------------------------


def _to_json(fields: dict[str, object], *, limit: int | None) -> bytes:
    envelope.encode(fields)  # the reader has the same limits on depth, integers and keys
    return _limited(json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(), limit)


def _from_json(data: bytes, *, what: str, limit: int, peer: str | None) -> Any:
    if len(data) > limit:
        raise TooLarge(len(data), limit, peer)
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
        envelope.encode(value)  # the same limits on depth, integers and keys as in CBOR
    except (ValueError, TypeError, RecursionError) as error:
        raise BadMessage(what, envelope.shown(str(error)), peer) from error
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
