"""Encoding of the documents' messages: round trips, and rejection of any hostile input with the sender's address."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit.documents.sync import messages as m
from nngkit.documents.sync.wire import decode_bus, decode_reply, decode_request, encode
from nngkit.documents.versions import EPOCHS, ORIGIN, STREAMS, Edit, EditStream, Versions
from nngkit.errors import BadMessage, TooLarge
from tests.documents.greetings import heartbeat, hello

ME, OTHER = EditStream(b"originAA", 1), EditStream(b"originBB", 2)
PEER = "tcp://10.0.0.9:51234"

# ---- random messages -------------------------------------------------------------------------------------------------

STREAM = st.builds(EditStream, st.binary(min_size=ORIGIN, max_size=ORIGIN), st.integers(0, EPOCHS))
SEQ = st.integers(1, EPOCHS)
VERSIONS = st.dictionaries(STREAM, SEQ, max_size=5)
LINE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=30)
DOC = st.lists(LINE.filter(lambda s: s.strip(".") and "/" not in s and "\\" not in s), min_size=1, max_size=3).map(
    "/".join
)
DOC = DOC.filter(lambda name: len(name.encode()) <= 200)
ADDRESS = LINE | LINE.map("ipc:///a folder/{}".format)
TOKEN = st.none() | st.text(max_size=50)
BLOB = st.binary(max_size=100)
INDEX = st.integers(0, m.MOST_CHUNKS - 1)
EDIT = st.builds(Edit, BLOB, VERSIONS)
UPDATES = st.builds(
    m.Updates, STREAM, DOC, st.integers(1, EPOCHS - 5), st.lists(EDIT, min_size=1, max_size=5).map(tuple)
)


def some(strategy: st.SearchStrategy[Any], least: int = 0, most: int = 4) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def exactly(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


DOCUMENT_HEARTBEAT = st.builds(m.DocumentHeartbeat, DOC, st.none() | exactly(8), st.none() | exactly(16), VERSIONS)
BUS = st.one_of(
    UPDATES,
    st.builds(
        m.Heartbeat,
        STREAM,
        st.builds(
            m.About,
            st.just(1),
            st.none() | LINE,
            some(ADDRESS),
            st.booleans(),
            some(st.builds(m.Client, DOC, st.integers(0, EPOCHS))),
            some(st.builds(m.Refusal, DOC, exactly(ORIGIN), st.integers(0, EPOCHS), SEQ, LINE)),
        ),
        some(DOCUMENT_HEARTBEAT),
    ),
    st.builds(m.Aware, STREAM, DOC, st.integers(0, EPOCHS), st.none() | BLOB),
    st.builds(m.Bye, STREAM),
)


@st.composite
def ranges(draw: st.DrawFn) -> m.Range:
    first, last = sorted((draw(SEQ), draw(SEQ)))
    return m.Range(*draw(STREAM), first, last)


@st.composite
def manifests(draw: st.DrawFn) -> m.Manifest:
    chunk, count = draw(st.integers(1024, m.BUS_LIMIT)), draw(st.integers(1, 4))
    size = chunk * (count - 1) + draw(st.integers(1, chunk))
    hashes = tuple(draw(exactly(32)) for _ in range(count))
    return m.Manifest(draw(exactly(16)), size, chunk, draw(exactly(32)), hashes)


INTRODUCTION = st.builds(m.Introduction, st.just(1), st.none() | LINE, some(DOC), st.none() | exactly(ORIGIN))
REQUESTS = st.one_of(
    st.builds(
        m.Hello,
        STREAM,
        TOKEN,
        INTRODUCTION,
    ),
    st.builds(m.Proof, STREAM, exactly(32), exactly(32), exactly(32), INTRODUCTION),
    st.builds(m.Nack, STREAM, TOKEN, DOC, some(ranges(), 1)),
    st.builds(m.Want, STREAM, TOKEN, DOC, st.none() | BLOB, VERSIONS),
    st.builds(m.Pull, STREAM, TOKEN, exactly(16), some(INDEX, 1, m.CHUNKS)),
    st.builds(m.Give, STREAM, TOKEN, DOC, BLOB, VERSIONS),
    st.builds(m.Have, STREAM, TOKEN, DOC, VERSIONS, st.booleans(), st.floats(0, m.LONGEST_WAIT)),
)
REPLIES = st.one_of(
    st.builds(
        m.Welcome,
        STREAM,
        st.builds(
            m.Invitation,
            st.integers(1, EPOCHS),
            st.just(1),
            some(ADDRESS),
            some(DOC),
            st.none() | LINE,
            st.none() | exactly(32),
        ),
    ),
    st.builds(m.Resent, STREAM, DOC, some(UPDATES), st.booleans()),
    st.builds(m.Diff, STREAM, DOC, BLOB | manifests(), VERSIONS),
    st.builds(m.Chunks, STREAM, exactly(16), some(st.builds(m.Chunk, INDEX, BLOB), 0, m.CHUNKS)),
    st.builds(m.Given, STREAM, DOC, VERSIONS),
    st.builds(m.Has, STREAM, DOC, st.booleans()),
    st.builds(m.Prove, STREAM, exactly(32)),
    st.builds(m.Refused, STREAM, LINE, LINE),
)


@given(BUS)
def test_bus_messages_round_trip(message: m.BusMessage) -> None:
    assert decode_bus(encode(message)) == message


@given(REQUESTS)
def test_requests_round_trip(message: m.SyncRequest) -> None:
    assert decode_request(encode(message)) == message


@given(REPLIES)
def test_replies_round_trip(message: m.SyncReply) -> None:
    assert decode_reply(encode(message)) == message


# ---- one of each, byte by byte ---------------------------------------------------------------------------------------

# docs/wire.md shows the same bytes, for implementers of other peers.
WIRE = Path(__file__).parents[2] / "docs/wire.md"
STREAM_A = "486f726967696e414101"
HEARTBEAT = heartbeat(
    ME,
    (
        m.DocumentHeartbeat("minutes", b"versions", b"content of 16 by", {}),
        m.DocumentHeartbeat("table", None, None, {OTHER: 3}),
    ),
    name="ada",
    repair=("tcp://*:4711",),
    relay=True,
    clients=(m.Client("minutes", 77),),
)
MANIFEST = m.Manifest(b"t" * 16, 3000, 2048, b"w" * 32, (b"1" * 32, b"2" * 32))
PINNED: dict[str, tuple[Any, str]] = {
    "updates": (
        m.Updates(ME, "minutes", 5, (Edit(b"\1\2", {OTHER: 3}), Edit(b"\3", {}))),
        f"850082{STREAM_A}676d696e757465730582824201028183486f726967696e42420203824103" + "80",
    ),
    "heartbeat": (
        HEARTBEAT,
        (
            f"840182{STREAM_A}a5617601646e616d65636164616572656c6179f566636c69656e748182676d696e75746573184d6672657061697281"
            "6c7463703a2f2f2a3a343731318284676d696e757465734876657273696f6e7350636f6e74656e74206f66203136206279808465746162"
            "6c65f6f68183486f726967696e42420203"
        ),
    ),
    "aware": (
        m.Aware(ME, "minutes", 9, b"\xa1fclient\x18M"),
        f"850282{STREAM_A}676d696e75746573094aa166636c69656e74184d",
    ),
    "heartbeat, refusing": (
        heartbeat(ME, refused=(m.Refusal("drawing", *OTHER, 7, "XML"),)),
        f"840182{STREAM_A}a2617601677265667573656481856764726177696e67486f726967696e4242020763584d4c80",
    ),
    "bye": (m.Bye(ME), f"820382{STREAM_A}"),
    "hello": (
        hello(ME, "secret", name="ada", docs=("minutes",)),
        f"840482{STREAM_A}66736563726574a3617601646e616d656361646169646f63756d656e747381676d696e75746573",
    ),
    "hello, of one store": (
        hello(ME, store=OTHER.origin),
        f"840482{STREAM_A}f6a26176016573746f7265486f726967696e4242",
    ),
    "nack": (
        m.Nack(ME, None, "minutes", (m.Range(*OTHER, 4, 6),)),
        f"850582{STREAM_A}f6676d696e757465738184486f726967696e4242020406",
    ),
    "want": (
        m.Want(ME, None, "minutes", b"\0", {OTHER: 3}),
        f"860682{STREAM_A}f6676d696e7574657341008183486f726967696e42420203",
    ),
    "pull": (m.Pull(ME, None, b"t" * 16, (0, 1)), f"850882{STREAM_A}f650{'74' * 16}820001"),
    "give": (
        m.Give(ME, None, "minutes", b"\1\2", {ME: 5}),
        f"860a82{STREAM_A}f6676d696e757465734201028183486f726967696e41410105",
    ),
    "give, a part": (
        m.Give(ME, None, "minutes", b"\1\2", {ME: 5}, {ME: 3}),
        f"870a82{STREAM_A}f6676d696e757465734201028183486f726967696e414101058183486f726967696e41410103",
    ),
    "have": (
        m.Have(ME, None, "minutes", {ME: 5}, True, 2.5),
        f"870c82{STREAM_A}f6676d696e757465738183486f726967696e41410105f5f94100",
    ),
    "welcome": (
        m.Welcome(OTHER, m.Invitation(4194304, bus=("ws://*:4712/s",), docs=("minutes",), name="bob")),
        "830482486f726967696e424202a56176016362757381" + "6d77733a2f2f2a3a343731322f73646e616d6563626f6269646f63756d65"
        "6e747381676d696e757465736a6d61785f7570646174651a00400000",
    ),
    "resent": (
        m.Resent(OTHER, "minutes", (m.Updates(ME, "minutes", 5, (Edit(b"\3", {}),)),), False),
        f"850582486f726967696e424202676d696e7574657381850082{STREAM_A}676d696e75746573058182410380f4",
    ),
    "diff": (
        m.Diff(OTHER, "minutes", b"\1\2", {ME: 5}),
        "850782486f726967696e424202676d696e757465734201028183486f726967696e41410105",
    ),
    "diff in chunks": (
        m.Diff(OTHER, "minutes", MANIFEST, {ME: 5}),
        (
            f"850782486f726967696e424202676d696e757465738550{'74' * 16}190bb81908005820{'77' * 32}825820{'31' * 32}5820"
            f"{'32' * 32}8183486f726967696e41410105"
        ),
    ),
    "chunks": (
        m.Chunks(OTHER, b"t" * 16, (m.Chunk(1, b"\1\2"),)),
        f"840982486f726967696e42420250{'74' * 16}818201420102",
    ),
    "given": (
        m.Given(OTHER, "minutes", {ME: 5}),
        "840b82486f726967696e424202676d696e757465738183486f726967696e41410105",
    ),
    "has": (m.Has(OTHER, "minutes", True), "840d82486f726967696e424202676d696e75746573f5"),
    "prove": (m.Prove(OTHER, b"n" * 32), f"830e82486f726967696e4242025820{'6e' * 32}"),
    "proof": (
        m.Proof(ME, b"n" * 32, b"o" * 32, b"m" * 32, m.Introduction()),
        (f"861082486f726967696e4141015820{'6e' * 32}5820{'6f' * 32}5820{'6d' * 32}a1617601"),
    ),
    "refused": (
        m.Refused(OTHER, "token", "it is wrong"),
        "840f82486f726967696e42420265746f6b656e6b69742069732077726f6e67",
    ),
}


def decoder(message: object) -> Callable[..., Any]:
    if isinstance(message, m.BusMessage):
        return decode_bus
    return decode_request if isinstance(message, m.SyncRequest) else decode_reply


def test_documentation_has_every_example() -> None:
    section = WIRE.read_text().partition("\n## Documents\n")[2].partition("\n## ")[0]
    shown = dict(line.split(" = ") for line in section.rpartition("### Examples")[2].splitlines() if " = " in line)
    assert {kind.strip(): wire for kind, wire in shown.items()} == {kind: wire for kind, (_, wire) in PINNED.items()}


@pytest.mark.parametrize("kind", PINNED)
def test_bytes_match_the_documentation(kind: str) -> None:
    message, wire = PINNED[kind]
    assert encode(message).hex() == wire
    assert decoder(message)(bytes.fromhex(wire)) == message


# ---- hostile input ---------------------------------------------------------------------------------------------------

DECODERS = (decode_bus, decode_request, decode_reply)


def refused(data: bytes, *decoders: Callable[..., Any]) -> str:
    """Check that every decoder rejects `data` with the sender's address."""
    why = ""
    for one in decoders or DECODERS:
        with pytest.raises((BadMessage, TooLarge)) as error:
            one(data, peer=PEER)
        why = str(error.value)
        assert PEER in why
    return why


def heard_or_refused(data: bytes) -> None:
    for one in DECODERS:
        try:
            message = one(data, peer=PEER)
        except (BadMessage, TooLarge):
            refused(data, one)
        else:
            assert one(encode(message)) == message  # accepted input has the types it claims


@given(st.binary(max_size=400))
def test_random_bytes_are_rejected_or_a_message(data: bytes) -> None:
    heard_or_refused(data)


@given(st.binary(max_size=400))
def test_bytes_with_an_invalid_beginning_are_rejected(data: bytes) -> None:
    if data[:1] and 0x81 <= data[0] <= 0x9F:  # a non-empty list: may be a message
        data = bytes([data[0] - 0x80]) + data[1:]
    refused(data)


@given(BUS | REQUESTS | REPLIES, st.integers(0), st.binary(min_size=1, max_size=8))
def test_truncated_or_extended_message_is_rejected(message: Any, cut: int, more: bytes) -> None:
    wire = encode(message)
    refused(wire[: cut % len(wire)])
    refused(wire + more)


@pytest.mark.slow
@settings(max_examples=400)
@given(BUS | REQUESTS | REPLIES, st.data())
def test_altered_message_is_rejected_or_decodes_differently(message: Any, data: st.DataObject) -> None:
    wire = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(wire) - 1))
        match data.draw(st.sampled_from(["set", "cut", "add", "end"])):
            case "set":
                wire[at] = data.draw(st.integers(0, 255))
            case "cut" if len(wire) > 1:
                del wire[at]
            case "add":
                wire.insert(at, data.draw(st.integers(0, 255)))
            case _ if at:
                del wire[at:]
    heard_or_refused(bytes(wire))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats(allow_nan=True) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return all paths in a value."""
    found = [path]
    if isinstance(value, list | dict):
        for key in range(len(value)) if isinstance(value, list) else list(value):
            found += places(value[key], (*path, key))
    return found


@settings(max_examples=400)
@given(st.sampled_from(list(PINNED)), st.data())
def test_message_with_a_replaced_item_is_rejected_or_decodes_differently(kind: str, data: st.DataObject) -> None:
    value = cbor2.loads(encode(PINNED[kind][0]))
    path = data.draw(st.sampled_from(places(value)[1:]))
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = data.draw(JUNK)
    heard_or_refused(cbor2.dumps(value))


MAY_END_BEFORE = {("give, a part", ())}  # arrays whose last item has a default: the dependencies of a part


@pytest.mark.parametrize("kind", PINNED)
def test_every_item_is_required_and_further_items_are_ignored(kind: str) -> None:
    message, _ = PINNED[kind]
    value = cbor2.loads(encode(message))
    arrays = [path for path in places(value) if isinstance(at(value, path), list)]
    fixed = [path for path in arrays if at(value, path) and not is_list_of_many(kind, path)]
    assert () in fixed
    for path in fixed:
        if (kind, path) not in MAY_END_BEFORE:
            changed = cbor2.loads(encode(message))
            del at(changed, path)[-1]
            refused(cbor2.dumps(changed), decoder(message))
        if (kind, path) in (("give", ()), ("proof", ())):  # an item after its last is one that it may have
            continue
        changed = cbor2.loads(encode(message))
        at(changed, path).append(0)
        if is_stream_or_version(at(value, path)):
            refused(cbor2.dumps(changed), decoder(message))
        else:
            assert decoder(message)(cbor2.dumps(changed)) == message


def is_stream_or_version(array: list[Any]) -> bool:
    """Return True for ``[origin, epoch]`` and ``[origin, epoch, seq]``, which are values and do not grow."""
    return type(array[0]) is bytes and len(array[0]) == 8 and [type(each) for each in array[1:]] in ([int], [int] * 2)


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def is_list_of_many(kind: str, path: tuple[Any, ...]) -> bool:
    """Return True for lists of variable length."""
    many: dict[str, list[tuple[Any, ...]]] = {
        "updates": [(4,), (4, 0, 1), (4, 1, 1)],
        "heartbeat": [(2, "repair"), (2, "client"), (3,), (3, 0, 3), (3, 1, 3)],
        "heartbeat, refusing": [(2, "refused"), (3,)],
        "hello": [(3, "documents")],
        "nack": [(4,)],
        "want": [(5,)],
        "pull": [(4,)],
        "give": [(5,)],
        "give, a part": [(5,), (6,)],
        "have": [(4,)],
        "welcome": [(2, "bus"), (2, "documents")],
        "resent": [(3,), (3, 0, 4), (3, 0, 4, 0, 1)],
        "diff": [(4,)],
        "diff in chunks": [(3, 4), (4,)],
        "chunks": [(3,)],
        "given": [(3,)],
    }
    return path in many.get(kind, [])


def many(count: int) -> Versions:
    return {EditStream(number.to_bytes(ORIGIN, "big"), 1): 1 for number in range(count)}


AT_THE_LIMIT: dict[str, tuple[Callable[[int], Any], int]] = {
    "edits in an update": (lambda n: m.Updates(ME, "d", 1, (Edit(b"", {}),) * n), m.EDITS),
    "streams that an edit depends on": (lambda n: m.Updates(ME, "d", 1, (Edit(b"", many(n)),)), STREAMS + 1),
    "the last number": (lambda n: m.Updates(ME, "d", n, (Edit(b"", {}),)), EPOCHS),
    "the last number of several": (lambda n: m.Updates(ME, "d", n - 1, (Edit(b"", {}),) * 2), EPOCHS),
    "an epoch": (lambda n: m.Bye(EditStream(b"originAA", n)), EPOCHS),
    "documents in a heartbeat": (
        lambda n: heartbeat(ME, docs=(m.DocumentHeartbeat("d", None, None, {}),) * n),
        m.DOCUMENTS,
    ),
    "heads": (lambda n: heartbeat(ME, docs=(m.DocumentHeartbeat("d", None, None, many(n)),)), m.HEADS),
    "addresses": (lambda n: heartbeat(ME, repair=("tcp://*:1",) * n), m.ADDRESSES),
    "an address": (lambda n: heartbeat(ME, repair=("x" * n,)), m.TEXT),
    "clients": (lambda n: heartbeat(ME, clients=(m.Client("d", 1),) * n), m.DOCUMENTS),
    "refused edits": (lambda n: heartbeat(ME, refused=(m.Refusal("d", *ME, 1, ""),) * n), m.DOCUMENTS),
    "why an edit is refused": (lambda n: heartbeat(ME, refused=(m.Refusal("d", *ME, 1, "x" * n),)), m.TEXT),
    "a client": (lambda n: heartbeat(ME, clients=(m.Client("d", n),)), EPOCHS),
    "a document's name": (lambda n: m.Has(ME, "x" * n, True), 200),
    "an awareness": (lambda n: m.Aware(ME, "d", 1, b"x" * n), m.AWARENESS_LIMIT),
    "a clock": (lambda n: m.Aware(ME, "d", n, None), EPOCHS),
    "a token": (lambda n: hello(ME, "x" * n), m.TEXT),
    "documents in a hello": (lambda n: hello(ME, docs=("d",) * n), m.DOCUMENTS),
    "ranges": (lambda n: m.Nack(ME, None, "d", (m.Range(*ME, 1, 1),) * n), m.RANGES),
    "chunks asked for": (lambda n: m.Pull(ME, None, b"t" * 16, (0,) * n), m.CHUNKS),
    "the last chunk": (lambda n: m.Pull(ME, None, b"t" * 16, (n,)), m.MOST_CHUNKS - 1),
    "a wait": (lambda n: m.Have(ME, None, "d", {}, True, n), int(m.LONGEST_WAIT)),
    "addresses of a welcome": (lambda n: m.Welcome(ME, m.Invitation(1, bus=("tcp://*:1",) * n)), m.ADDRESSES),
    "documents of a welcome": (lambda n: m.Welcome(ME, m.Invitation(1, docs=("d",) * n)), m.MANY_DOCUMENTS),
    "chunks in a manifest": (
        lambda n: m.Diff(ME, "d", m.Manifest(b"t" * 16, 1024 * n, 1024, b"w" * 32, (b"1" * 32,) * n), {}),
        m.MOST_CHUNKS,
    ),
    "the size of a chunk": (
        lambda n: m.Diff(ME, "d", m.Manifest(b"t" * 16, 1024, n, b"w" * 32, (b"1" * 32,)), {}),
        m.BUS_LIMIT,
    ),
    "chunks": (lambda n: m.Chunks(ME, b"t" * 16, (m.Chunk(0, b""),) * n), m.CHUNKS),
    "a reason": (lambda n: m.Refused(ME, "bad", "x" * n), m.TEXT),
}


@pytest.mark.parametrize("what", AT_THE_LIMIT)
def test_limits_are_exact(what: str) -> None:
    make, limit = AT_THE_LIMIT[what]
    decoder(make(limit))(encode(make(limit)))
    refused(encode(make(limit + 1)), decoder(make(limit)))


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda n: m.Updates(ME, "d", 1, (Edit(b"x" * n, {}),)), m.BUS_LIMIT),
        (lambda n: m.Give(ME, None, "d", b"x" * n, {}), m.REQUEST_LIMIT),
        (lambda n: m.Diff(ME, "d", b"x" * n, {}), m.REPLY_LIMIT),
    ],
)
def test_message_over_its_socket_limit_is_rejected(make: Callable[[int], Any], limit: int) -> None:
    around = len(encode(make(limit))) - limit
    assert decoder(make(0))(encode(make(limit - around))) == make(limit - around)
    with pytest.raises(TooLarge) as error:
        decoder(make(0))(encode(make(limit - around + 1)), peer=PEER)
    assert PEER in str(error.value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        ["heartbeat"],
        [True, [b"originAA", 1]],
        [-1],
        [2**63],
        [1.0],
        [14, [b"originAA", 1]],
        [99, [b"originAA", 1], None],
    ],
    ids=str,
)
def test_unknown_kind_is_rejected(value: Any) -> None:
    refused(cbor2.dumps(value))


@pytest.mark.parametrize("kind", PINNED)
def test_message_on_the_wrong_socket_is_rejected(kind: str) -> None:
    message, wire = PINNED[kind]
    for one in DECODERS:
        if one is not decoder(message):
            refused(bytes.fromhex(wire), one)


@pytest.mark.parametrize(("kind", "index"), [("heartbeat", 2), ("hello", 3), ("welcome", 2)])
def test_newer_version_is_reported_and_unknown_fields_are_ignored(kind: str, index: int) -> None:
    message, _ = PINNED[kind]
    value = cbor2.loads(encode(message))
    value[index]["later"] = [1, 2]
    assert decoder(message)(cbor2.dumps(value, canonical=True)) == message
    value[index]["v"] = 2
    why = refused(cbor2.dumps(value, canonical=True), decoder(message))
    assert "version 2" in why
    assert "version 1" in why
    del value[index]["v"]
    refused(cbor2.dumps(value, canonical=True), decoder(message))


def test_duplicate_or_reversed_items_are_rejected() -> None:
    twice = [[*OTHER, 1], [*OTHER, 2]]
    refused(cbor2.dumps([0, list(ME), "d", 1, [[b"", twice]]]), decode_bus)
    refused(cbor2.dumps([1, list(ME), {"v": 1}, [["d", None, None, twice]]]), decode_bus)
    refused(cbor2.dumps([6, list(ME), None, "d", None, twice]), decode_request)
    refused(cbor2.dumps([11, list(ME), "d", twice]), decode_reply)
    refused(cbor2.dumps([5, list(ME), None, "d", [[*OTHER, 7, 6]]]), decode_request)


@pytest.mark.parametrize("size", [1, 2048, 2049, 4097, 2**50])
def test_manifest_size_must_match_its_chunks(size: int) -> None:
    manifest = m.Manifest(b"t" * 16, size, 2048, b"w" * 32, (b"1" * 32,) * 2)
    if size == 2049:
        assert decode_reply(encode(m.Diff(ME, "d", manifest, {}))) == m.Diff(ME, "d", manifest, {})
    else:
        refused(encode(m.Diff(ME, "d", manifest, {})), decode_reply)


@pytest.mark.parametrize(
    "data",
    [b"\x9b" + struct.pack(">Q", 2**62), b"\x85\x00\x82\x5b" + struct.pack(">Q", 2**30), b"\x81" * 60_000],
    ids=["items", "bytes", "levels"],
)
def test_giant_claim_costs_nothing(data: bytes) -> None:
    started = time.process_time()
    refused(data)
    assert time.process_time() - started < 1.0


def test_worst_case_message_decodes_fast() -> None:
    versions = many(STREAMS)
    worst = m.Updates(ME, "d", 1, tuple(Edit(b"", versions) for _ in range(16)))
    wire = encode(worst)
    assert len(wire) > m.BUS_LIMIT * 3 // 4
    started = time.process_time()
    assert decode_bus(wire) == worst
    assert time.process_time() - started < 2.0  # 30 ms on an idle machine


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc", "a//b", "", "x\0y", "a\\b", "\n" * 150])
def test_document_name_that_would_leave_its_folder_is_rejected(name: str) -> None:
    why = refused(cbor2.dumps([13, list(ME), name, True]), decode_reply)
    assert why.isprintable()
    refused(cbor2.dumps([2, list(ME), name, 1, None]), decode_bus)
    refused(cbor2.dumps([4, list(ME), None, {"v": 1, "documents": [name]}]), decode_request)


def test_nan_wait_is_rejected() -> None:
    for wait in (float("nan"), float("inf"), -1, True, None):
        refused(cbor2.dumps([12, list(ME), None, "d", [], True, wait]), decode_request)
