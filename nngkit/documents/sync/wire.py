"""Encoding of the messages between the peers of a document. Pure; docs/wire.md ("Documents") is the specification.

::

    >>> from nngkit.documents.versions import EditStream
    >>> decode_bus(encode(Bye(EditStream(b"aaaaaaaa", 1))))
    Bye(sender=EditStream(origin=b'aaaaaaaa', epoch=1))

A message is a CBOR array that begins with its kind, a number. Decoding validates every field of hostile input, and
raises BadMessage or TooLarge. Knows neither sockets nor time, nor the content of updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nngkit import envelope
from nngkit.documents.sync.messages import (
    ADDRESSES,
    AWARENESS_LIMIT,
    BUS_LIMIT,
    CHUNKS,
    DOCUMENTS,
    EDITS,
    HEADS,
    LONGEST_WAIT,
    MANY_DOCUMENTS,
    MOST_CHUNKS,
    RANGES,
    REPLY_LIMIT,
    REQUEST_LIMIT,
    VERSION,
    Aware,
    BusMessage,
    Bye,
    Chunks,
    Diff,
    DocumentHeartbeat,
    Give,
    Given,
    Has,
    Have,
    Heartbeat,
    Hello,
    Manifest,
    Nack,
    Pull,
    Range,
    Refused,
    Resent,
    SyncReply,
    SyncRequest,
    Updates,
    Want,
    Welcome,
)
from nngkit.documents.sync.refused import RefusedEdit
from nngkit.documents.sync.wire_reader import WireReader
from nngkit.documents.versions import ORIGIN, Edit, stream_from, to_wire
from nngkit.errors import BadMessage

__all__ = ["decode_bus", "decode_reply", "decode_request", "encode"]


def encode(message: BusMessage | SyncRequest | SyncReply) -> bytes:
    """Encode any message."""
    return envelope.encode(_wire(message))


def _wire(message: BusMessage | SyncRequest | SyncReply) -> list[Any]:
    match message:
        case Updates(stream, doc, first, edits):
            return [0, list(stream), doc, first, [[edit.payload, to_wire(edit.deps)] for edit in edits]]
        case Heartbeat():
            about: dict[str, Any] = {"v": VERSION}
            if message.name is not None:
                about["name"] = message.name
            if message.repair:
                about["repair"] = message.repair
            if message.relay:
                about["relay"] = True
            if message.clients:
                about["client"] = message.clients
            if message.refused:
                about["refused"] = [[doc, *one.stream, one.seq, one.why] for doc, one in message.refused]
            docs = [[one.doc, one.versions, one.content, to_wire(one.heads)] for one in message.docs]
            return [1, list(message.sender), about, docs]
        case Aware(sender, doc, clock, state):
            return [2, list(sender), doc, clock, state]
        case Bye(sender):
            return [3, list(sender)]
        case Hello(sender, token, name, docs_, store):
            hello: dict[str, Any] = {"v": VERSION}
            if name is not None:
                hello["name"] = name
            if docs_:
                hello["documents"] = docs_
            if store is not None:
                hello["store"] = store
            return [4, list(sender), token, hello]
        case Nack(sender, token, doc, ranges):
            return [5, list(sender), token, doc, [[*one.stream, one.first, one.last] for one in ranges]]
        case Want(sender, token, doc, state, versions):
            return [6, list(sender), token, doc, state, to_wire(versions)]
        case Pull(sender, token, transfer, indexes):
            return [8, list(sender), token, transfer, indexes]
        case Give(sender, token, doc, update, versions, deps):
            return [10, list(sender), token, doc, update, to_wire(versions), *([to_wire(deps)] if deps else [])]
        case Have(sender, token, doc, versions, durable, wait):
            return [12, list(sender), token, doc, to_wire(versions), durable, wait]
        case Welcome():
            welcome: dict[str, Any] = {
                "v": VERSION,
                "bus": message.bus,
                "documents": message.docs,
                "max_update": message.max_update,
            }
            if message.name is not None:
                welcome["name"] = message.name
            return [4, list(message.sender), welcome]
        case Resent(sender, doc, updates, rest):
            return [5, list(sender), doc, [_wire(one) for one in updates], rest]
        case Diff(sender, doc, body, versions):
            return [7, list(sender), doc, body if isinstance(body, bytes) else _manifest(body), to_wire(versions)]
        case Chunks(sender, transfer, chunks):
            return [9, list(sender), transfer, chunks]
        case Given(sender, doc, versions):
            return [11, list(sender), doc, to_wire(versions)]
        case Has(sender, doc, yes):
            return [13, list(sender), doc, yes]
        case Refused(sender, code, why):
            return [15, list(sender), code, why]


def _manifest(manifest: Manifest) -> list[Any]:
    return [manifest.transfer, manifest.size, manifest.chunk_size, manifest.sha256, manifest.chunks]


# ---- decoding --------------------------------------------------------------------------------------------------------


def decode_bus(data: bytes, *, peer: str | None = None) -> BusMessage:
    """Decode a BUS message. Raises BadMessage, TooLarge."""
    message: BusMessage = _decode(data, _BUS, "BUS message", BUS_LIMIT, peer)
    return message


def decode_request(data: bytes, *, peer: str | None = None) -> SyncRequest:
    """Decode a request. Raises BadMessage, TooLarge."""
    message: SyncRequest = _decode(data, _REQUESTS, "request", REQUEST_LIMIT, peer)
    return message


def decode_reply(data: bytes, *, peer: str | None = None) -> SyncReply:
    """Decode a reply. Raises BadMessage, TooLarge."""
    message: SyncReply = _decode(data, _REPLIES, "reply", REPLY_LIMIT, peer)
    return message


def _decode(data: bytes, kinds: dict[int, Callable[[WireReader], Any]], what: str, limit: int, peer: str | None) -> Any:
    value = envelope.decode(data, what=what, limit=limit, peer=peer)
    if type(value) is not list or not value or type(value[0]) is not int:
        raise BadMessage(what, "it must be a list that begins with a kind", peer)
    read = kinds.get(value[0])
    if read is None:
        raise BadMessage(what, f"unknown kind {value[0]}", peer)
    reader = WireReader(value, what, peer)
    reader.at = 1
    return read(reader)


def _updates(reader: WireReader) -> Updates:
    stream, doc, first = reader.stream(), reader.doc(), reader.seq()
    edits = tuple(Edit(entry.blob(), entry.versions()) for entry in reader.each(EDITS, 1))
    if first + len(edits) > 2**53:
        raise reader.bad("the sequence numbers exceed 2^53")
    return Updates(stream, doc, first, edits)


def _heartbeat(reader: WireReader) -> Heartbeat:
    sender, about = reader.stream(), reader.fields()
    docs = []
    for entry in reader.each(DOCUMENTS):
        one = DocumentHeartbeat(entry.doc(), entry.blob_or_none(8), entry.blob_or_none(16), entry.versions())
        if len(one.heads) > HEADS:
            raise reader.bad(f"{len(one.heads)} heads, over the limit of {HEADS}")
        docs.append(one)
    clients = tuple((entry.doc(), entry.whole()) for entry in reader.lists(about, "client", DOCUMENTS))
    refused = []
    for entry in reader.lists(about, "refused", DOCUMENTS):
        doc, stream = entry.doc(), stream_from([entry.next(), entry.next()], what=reader.what, peer=reader.peer)
        refused.append((doc, RefusedEdit(stream, entry.seq(), envelope.shown(entry.text()))))
    return Heartbeat(
        sender,
        tuple(docs),
        name=reader.label(about),
        repair=reader.addresses(about, "repair", ADDRESSES),
        relay=envelope.field(about, "relay", bool, what=reader.what, peer=reader.peer, default=False),
        clients=clients,
        refused=tuple(refused),
    )


def _aware(reader: WireReader) -> Aware:
    return Aware(reader.stream(), reader.doc(), reader.whole(), reader.blob_or_none(most=AWARENESS_LIMIT))


def _bye(reader: WireReader) -> Bye:
    return Bye(reader.stream())


def _hello(reader: WireReader) -> Hello:
    sender, token, about = reader.stream(), reader.text_or_none(), reader.fields()
    store: bytes | None = envelope.field(about, "store", bytes, what=reader.what, peer=reader.peer, default=None)
    if store is not None and len(store) != ORIGIN:
        raise reader.bad(f"a store must be {ORIGIN} bytes")
    return Hello(sender, token, reader.label(about), reader.names(about, "documents", DOCUMENTS), store)


def _nack(reader: WireReader) -> Nack:
    sender, token, doc = reader.stream(), reader.text_or_none(), reader.doc()
    ranges = []
    for entry in reader.each(RANGES, 1):
        origin, epoch = entry.next(), entry.next()
        stream = stream_from([origin, epoch], what=reader.what, peer=reader.peer)
        one = Range(stream, entry.seq(), entry.seq())
        if one.first > one.last:
            raise reader.bad("a range ends before it begins")
        ranges.append(one)
    return Nack(sender, token, doc, tuple(ranges))


def _want(reader: WireReader) -> Want:
    sender, token, doc = reader.stream(), reader.text_or_none(), reader.doc()
    return Want(sender, token, doc, reader.blob_or_none(), reader.versions())


def _pull(reader: WireReader) -> Pull:
    sender, token, transfer = reader.stream(), reader.text_or_none(), reader.blob(16)
    indexes = WireReader(reader.entries(CHUNKS, 1), reader.what, reader.peer)
    return Pull(sender, token, transfer, tuple(indexes.whole(0, MOST_CHUNKS - 1) for _ in indexes.items))


def _give(reader: WireReader) -> Give:
    sender, token, doc = reader.stream(), reader.text_or_none(), reader.doc()
    update, versions = reader.blob(), reader.versions()
    return Give(sender, token, doc, update, versions, reader.versions() if reader.at < len(reader.items) else {})


def _have(reader: WireReader) -> Have:
    sender, token, doc = reader.stream(), reader.text_or_none(), reader.doc()
    versions, durable, wait = reader.versions(), reader.of(bool), reader.next()
    if type(wait) not in (int, float) or not 0 <= wait <= LONGEST_WAIT:
        raise reader.bad(f"the wait must be 0 to {LONGEST_WAIT} s")
    return Have(sender, token, doc, versions, durable, float(wait))


def _welcome(reader: WireReader) -> Welcome:
    sender, about = reader.stream(), reader.fields()
    return Welcome(
        sender,
        reader.addresses(about, "bus", ADDRESSES),
        reader.names(about, "documents", MANY_DOCUMENTS),
        envelope.field(about, "max_update", int, what=reader.what, peer=reader.peer, low=1),
        reader.label(about),
    )


def _resent(reader: WireReader) -> Resent:
    sender, doc = reader.stream(), reader.doc()
    updates = []
    for entry in reader.each(RANGES * EDITS):
        if entry.whole() != 0:
            raise reader.bad("an entry is not an update")
        updates.append(_updates(entry))
    return Resent(sender, doc, tuple(updates), reader.of(bool))


def _diff(reader: WireReader) -> Diff:
    sender, doc = reader.stream(), reader.doc()
    body = reader.next()
    if type(body) is list:
        entry = WireReader(body, f"{reader.what}: manifest", reader.peer)
        transfer, size, chunk_size = entry.blob(16), entry.whole(1), entry.whole(1024, BUS_LIMIT)
        sha256, hashes = entry.blob(32), WireReader(entry.entries(MOST_CHUNKS, 1), entry.what, entry.peer)
        chunks = tuple(hashes.blob(32) for _ in hashes.items)
        if len(chunks) != -(-size // chunk_size):
            raise entry.bad(f"{len(chunks)} chunks of {chunk_size} bytes are not {size} bytes")
        body = Manifest(transfer, size, chunk_size, sha256, chunks)
    elif type(body) is not bytes:
        raise reader.bad("the body must be bytes or a manifest")
    return Diff(sender, doc, body, reader.versions())


def _chunks(reader: WireReader) -> Chunks:
    sender, transfer = reader.stream(), reader.blob(16)
    chunks = tuple((entry.whole(0, MOST_CHUNKS - 1), entry.blob()) for entry in reader.each(CHUNKS))
    return Chunks(sender, transfer, chunks)


def _given(reader: WireReader) -> Given:
    return Given(reader.stream(), reader.doc(), reader.versions())


def _has(reader: WireReader) -> Has:
    return Has(reader.stream(), reader.doc(), reader.of(bool))


def _refused(reader: WireReader) -> Refused:
    return Refused(reader.stream(), envelope.shown(reader.text()), envelope.shown(reader.text()))


_BUS: Final[dict[int, Callable[[WireReader], Any]]] = {0: _updates, 1: _heartbeat, 2: _aware, 3: _bye}
_REQUESTS: Final[dict[int, Callable[[WireReader], Any]]] = {
    4: _hello,
    5: _nack,
    6: _want,
    8: _pull,
    10: _give,
    12: _have,
}
_REPLIES: Final[dict[int, Callable[[WireReader], Any]]] = {
    4: _welcome,
    5: _resent,
    7: _diff,
    9: _chunks,
    11: _given,
    13: _has,
    15: _refused,
}
