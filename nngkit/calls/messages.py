"""Requests and replies of calls with a codec. Pure; docs/wire.md has them as CDDL.

::

    caller -> provider   CallRequest(id, body, method, timeout, stream)      run the handler
                         MoreRequest(id)                                     the next parts of a stream
                         CancelRequest(id)                                   the caller has given up
                         PingRequest()  InfoRequest()  StatsRequest()
    provider -> caller   ResultReply(body)
                         PartsReply(parts, end)                              to a call with `stream`, and to MoreRequest
                         DoneReply()                                         to CancelRequest
                         ErrorReply(kind, message, ran, error, data)

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
from nngkit.messages import ANY_TEXT, Fields, Flag, Maps, always

VERSION: Final = 1
Codec: TypeAlias = Literal["cbor", "json"]

MAX_KIND: Final = 64
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

    `stream`: the caller reads the reply in parts.
    """

    id: Id
    body: Any
    method: Annotated[str, Meta(max_length=128, extra=ANY_TEXT)] = ""  # as long as a name of a service
    timeout: Annotated[float, Meta(ge=0, lt=1e9)] | None = None
    stream: Flag = False


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


class ResultReply(_Reply, frozen=True, tag="result"):
    """The value that the handler returned."""

    body: Any


class PartsReply(_Reply, frozen=True, tag="parts"):
    """Parts of a stream, in order. `end`: no more follow."""

    parts: Annotated[tuple[Any, ...], Meta(max_length=MAX_PARTS)]
    end: Flag


class DoneReply(_Reply, frozen=True, tag="done"):
    """Reply to CancelRequest."""


class ErrorReply(_Reply, frozen=True, tag="error", omit_defaults=True):
    """A call that has no result.

    kind     "failed": the handler raised. "busy", "draining", "unhealthy", "no method", "bad request": not run.
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

    def __post_init__(self) -> None:
        for name, most in (("kind", MAX_KIND), ("message", MAX_MESSAGE), ("error", MAX_KIND)):
            if len(text := getattr(self, name)) > most:
                force_setattr(self, name, text[: most - 3] + "...")

    def exception(self, provider: str = "") -> RemoteError:
        """Return it as an exception for the caller."""
        return RemoteError(
            self.message, kind=self.kind, error=self.error, data=self.data, ran=self.ran, provider=provider
        )


Reply: TypeAlias = ResultReply | PartsReply | DoneReply | ErrorReply

REPLIES: Final = Maps[Any]("call reply", ResultReply, PartsReply, DoneReply, ErrorReply, version=VERSION, limit=None)


def parse_reply(data: bytes, codec: Codec, *, limit: int, peer: str | None = None) -> Reply:
    """Decode a reply of at most `limit` bytes. Raises BadMessage, TooLarge."""
    if codec == "cbor" and len(data) <= limit and data.startswith(_RESULT) and data.endswith(_RESULT_END):
        body = _item(data[len(_RESULT) : -len(_RESULT_END)])
        if body is not _UNUSUAL:
            return ResultReply(body)
    decode = envelope.decode if codec == "cbor" else _from_json
    reply: Reply = REPLIES.parse(decode(data, what=REPLIES.what, limit=limit, peer=peer), peer)
    return reply


# ---- the usual messages ----------------------------------------------------------------------------------------------

# Nearly all messages are calls with a timeout, and their results, as `encode` writes them. These are taken apart here,
# in a fifth of the time; the general reader takes, or refuses, all others. Both return the same: between the bytes
# around a body there is nothing but one item, or it is not a usual message.

_CALL: Final = b"av\x01bid"
_CALL_END: Final = b"dtypedcall"
_METHOD: Final = b"fmethod"
_TIMEOUT: Final = b"gtimeout\xfb"  # and the eight bytes of a float
_RESULT: Final = b"\xa3av\x01dbody"
_RESULT_END: Final = b"dtypefresult"
_UNUSUAL: Final = object()
_unpack_float = struct.Struct(">d").unpack_from


def _usual_call(data: bytes) -> CallRequest | None:
    """Return a call with a timeout, and perhaps a method; None if the general reader has to look at it."""
    size = data[7] & 0x1F if len(data) > 40 else 0
    start, timeout = 13 + size, len(data) - 8 - len(_TIMEOUT)
    end, method = timeout - len(_CALL_END), b""
    if data[:1] == b"\xa6":
        end = data.rfind(_CALL_END + _METHOD, start, timeout)
        method = data[end + len(_CALL_END + _METHOD) : timeout]
        if not method or method[0] != 0x60 + len(method) - 1 or len(method) > 24:
            return None
    elif data[:1] != b"\xa5" or not data.startswith(_CALL_END, end):
        return None
    if not (
        data.startswith(_CALL, 1)
        and 0x61 <= data[7] <= 0x77
        and data.startswith(b"dbody", 8 + size)
        and data.startswith(_TIMEOUT, timeout)
        and start < end
    ):
        return None
    (seconds,) = _unpack_float(data, len(data) - 8)
    body = _item(data[start:end])
    if body is _UNUSUAL or not 0 <= seconds < 1e9:
        return None
    try:
        return CallRequest(data[8 : 8 + size].decode(), body, method[1:].decode(), seconds)
    except UnicodeDecodeError:
        return None


def _item(data: bytes) -> Any:
    """Return the value in `data` inside a map, if it is exactly one; else `_UNUSUAL`."""
    kind = data[0] if data else 0
    if 0x40 <= kind < 0x58 and len(data) == kind - 0x3F:  # short bytes
        return data[1:]
    try:
        return envelope.decode(data, what="item", limit=len(data), depth=1)
    except BadMessage:
        return _UNUSUAL


# ---- codecs ----------------------------------------------------------------------------------------------------------


def _to_json(fields: dict[str, object], *, limit: int | None) -> bytes:
    envelope.encode(fields)  # the reader has the same limits on depth, integers and keys
    data = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if limit is not None and len(data) > limit:
        raise TooLarge(len(data), limit)
    return data


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
