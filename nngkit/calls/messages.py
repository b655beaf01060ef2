"""Requests and replies of calls with a codec. Pure; docs/wire.md has them as CDDL.

::

    caller -> provider   CallRequest(id, body, method, timeout, stream)      run the handler
                         MoreRequest(id)                                     the next parts of a stream
                         CancelRequest(id)                                   the caller has given up
                         PlainRequest("ping" | "info" | "stats")
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
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from nngkit import envelope
from nngkit.errors import BadMessage, ConfigError, RemoteError, TooLarge

__all__ = [
    "MAX_PARTS",
    "CallRequest",
    "CancelRequest",
    "Codec",
    "DoneReply",
    "ErrorReply",
    "MoreRequest",
    "PartsReply",
    "PlainRequest",
    "Reply",
    "Request",
    "ResultReply",
    "check_codec",
    "parse_reply",
    "parse_request",
]

VERSION: Final = 1
Codec: TypeAlias = Literal["cbor", "json"]
Plain: TypeAlias = Literal["ping", "info", "stats"]

MAX_ID: Final = 64
MAX_METHOD: Final = 128  # bytes; as long as a name of a service
MAX_KIND: Final = 64
MAX_MESSAGE: Final = 1024  # characters of an error's message
MAX_PARTS: Final = 64
"""Cap on the parts of one reply: enough to fill it with small ones, and a bound for the reader."""
_REQUEST, _REPLY = "call request", "call reply"


def check_codec(codec: str | None) -> Codec | None:
    """Return the codec. Raises ConfigError."""
    if codec is None or codec in ("cbor", "json"):
        return codec  # type: ignore[return-value]
    raise ConfigError("codec", f"{codec!r} is none of None, 'cbor' and 'json'", codec)


# ---- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallRequest:
    """Call of a handler. `id`: unique, chosen by the caller. `timeout`: seconds that the caller still waits, or None.

    `stream`: the caller reads the reply in parts.
    """

    id: str
    body: Any
    method: str = ""
    timeout: float | None = None
    stream: bool = False

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message. Raises TypeError or ValueError for a body that the codec cannot carry; TooLarge."""
        fields: dict[str, object] = {"v": VERSION, "type": "call", "id": self.id, "body": self.body}
        if self.method:
            fields["method"] = self.method
        if self.timeout is not None:
            fields["timeout"] = self.timeout
        if self.stream:
            fields["stream"] = True
        return _encode(fields, codec, limit)


@dataclass(frozen=True, slots=True)
class MoreRequest:
    """Request for the next parts of the stream of the call `id`."""

    id: str

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message."""
        return _encode({"v": VERSION, "type": "more", "id": self.id}, codec, limit)


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Notice that the caller of `id` has given up."""

    id: str

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message."""
        return _encode({"v": VERSION, "type": "cancel", "id": self.id}, codec, limit)


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """Request that every server answers without a handler."""

    kind: Plain

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message."""
        return _encode({"v": VERSION, "type": self.kind}, codec, limit)


Request: TypeAlias = CallRequest | MoreRequest | CancelRequest | PlainRequest


def parse_request(data: bytes, codec: Codec, *, limit: int, peer: str | None = None) -> Request:
    """Decode a request of at most `limit` bytes. Raises BadMessage, TooLarge."""
    fields = _decode(data, codec, _REQUEST, limit, peer)
    kind = envelope.field(fields, "type", str, what=_REQUEST, peer=peer)
    for plain in get_args(Plain):
        if kind == plain:
            return PlainRequest(plain)
    if kind not in ("call", "more", "cancel"):
        raise BadMessage(_REQUEST, f"type is {envelope.shown(kind)!r}", peer)
    number = _text(fields, "id", MAX_ID, _REQUEST, peer)
    if not number:
        raise BadMessage(_REQUEST, "id is empty", peer)
    if kind == "more":
        return MoreRequest(number)
    if kind == "cancel":
        return CancelRequest(number)
    if "body" not in fields:
        raise BadMessage(_REQUEST, "body is missing", peer)
    timeout = fields.get("timeout")
    if timeout is not None and not (type(timeout) in (int, float) and 0 <= timeout < 1e9):
        raise BadMessage(_REQUEST, "timeout is not a number of seconds", peer)
    return CallRequest(
        number,
        fields["body"],
        _text(fields, "method", MAX_METHOD, _REQUEST, peer, default=""),
        None if timeout is None else float(timeout),
        envelope.field(fields, "stream", bool, what=_REQUEST, peer=peer, default=False),
    )


# ---- replies ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultReply:
    """The value that the handler returned."""

    body: Any

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message. Raises TypeError or ValueError for a body that the codec cannot carry; TooLarge."""
        return _encode({"v": VERSION, "type": "result", "body": self.body}, codec, limit)


@dataclass(frozen=True, slots=True)
class PartsReply:
    """Parts of a stream, in order. `end`: no more follow. At most MAX_PARTS."""

    parts: tuple[Any, ...]
    end: bool

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message. Raises as ResultReply.encode."""
        return _encode({"v": VERSION, "type": "parts", "parts": list(self.parts), "end": self.end}, codec, limit)


@dataclass(frozen=True, slots=True)
class DoneReply:
    """Reply to CancelRequest."""

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message."""
        return _encode({"v": VERSION, "type": "done"}, codec, limit)


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """A call that has no result.

    kind     "failed": the handler raised. "busy", "draining", "unhealthy", "no method", "bad request": not run.
             "deadline", "cancelled", "too large" (the reply), "gone" (the stream). Or a handler's own word
    ran      False if the handler has surely not run, so that the call can go to another provider
    error    class name of the exception
    data     any value that the codec carries
    """

    kind: str
    message: str
    ran: bool = True
    error: str = ""
    data: Any = None

    def encode(self, codec: Codec, limit: int | None = None) -> bytes:
        """Encode the message. Raises as ResultReply.encode."""
        fields: dict[str, object] = {
            "v": VERSION,
            "type": "error",
            "kind": _cut(self.kind, MAX_KIND),
            "message": _cut(self.message, MAX_MESSAGE),
            "ran": self.ran,
        }
        if self.error:
            fields["error"] = _cut(self.error, MAX_KIND)
        if self.data is not None:
            fields["data"] = self.data
        return _encode(fields, codec, limit)

    def exception(self, provider: str = "") -> RemoteError:
        """Return it as an exception for the caller."""
        return RemoteError(
            self.message, kind=self.kind, error=self.error, data=self.data, ran=self.ran, provider=provider
        )


Reply: TypeAlias = ResultReply | PartsReply | DoneReply | ErrorReply


def parse_reply(data: bytes, codec: Codec, *, limit: int, peer: str | None = None) -> Reply:
    """Decode a reply of at most `limit` bytes. Raises BadMessage, TooLarge."""
    fields = _decode(data, codec, _REPLY, limit, peer)
    kind = envelope.field(fields, "type", str, what=_REPLY, peer=peer)
    if kind == "result":
        if "body" not in fields:
            raise BadMessage(_REPLY, "body is missing", peer)
        return ResultReply(fields["body"])
    if kind == "parts":
        parts = envelope.field(fields, "parts", list, what=_REPLY, peer=peer, max_len=MAX_PARTS)
        return PartsReply(tuple(parts), envelope.field(fields, "end", bool, what=_REPLY, peer=peer))
    if kind == "done":
        return DoneReply()
    if kind == "error":
        return ErrorReply(
            _text(fields, "kind", MAX_KIND, _REPLY, peer),
            _cut(envelope.field(fields, "message", str, what=_REPLY, peer=peer), MAX_MESSAGE),
            envelope.field(fields, "ran", bool, what=_REPLY, peer=peer),
            _text(fields, "error", MAX_KIND, _REPLY, peer, default=""),
            fields.get("data"),
        )
    raise BadMessage(_REPLY, f"type is {envelope.shown(kind)!r}", peer)


# ---- codecs ----------------------------------------------------------------------------------------------------------


def _encode(fields: dict[str, object], codec: Codec, limit: int | None) -> bytes:
    if codec == "cbor":
        return envelope.encode(fields, limit=limit)
    envelope.encode(fields)  # the reader has the same limits on depth, integers and keys
    data = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if limit is not None and len(data) > limit:
        raise TooLarge(len(data), limit)
    return data


def _decode(data: bytes, codec: Codec, what: str, limit: int, peer: str | None) -> dict[str, Any]:
    if codec == "cbor":
        value = envelope.decode(data, what=what, limit=limit, peer=peer)
    else:
        value = _from_json(data, what, limit, peer)
    fields = envelope.as_map(value, what=what, peer=peer)
    envelope.check_version(fields, VERSION, what=f"{what} version", peer=peer)
    return fields


def _from_json(data: bytes, what: str, limit: int, peer: str | None) -> Any:
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


def _text(
    fields: dict[str, Any], key: str, most: int, what: str, peer: str | None, *, default: str | None = None
) -> str:
    text: str
    if default is None:
        text = envelope.field(fields, key, str, what=what, peer=peer)
    else:
        text = envelope.field(fields, key, str, what=what, peer=peer, default=default)
    if len(text.encode("utf-8", "surrogatepass")) > most:
        raise BadMessage(what, f"{key} is over {most} bytes", peer)
    return text


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
