"""Awareness: numbered states, their end, and cursors that stay in place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit import envelope
from nngkit.documents.awareness import RENEW, STATE_LIMIT, TIMEOUT, AwarenessChange
from nngkit.documents.document import Document
from nngkit.documents.engine.yjs_update import uint
from nngkit.documents.records import Saved
from nngkit.documents.shared import Map, Text
from nngkit.errors import BadMessage, EditRefused, TooLarge
from tests.documents import networks


class Heard:
    """A host that records its calls."""

    def __init__(self) -> None:
        self.states: list[tuple[int, bytes | None]] = []

    def edited(self, document: Document, update: bytes) -> None: ...
    def aware(self, document: Document, state: bytes | None) -> None:
        self.states.append((document.awareness.clock, state))

    async def durable(self, document: Document) -> None: ...
    async def synced(self, document: Document, peers: int, timeout: float | None) -> None: ...
    async def joined(self, document: Document, timeout: float | None) -> None: ...
    async def save_version(self, document: Document, name: str) -> Saved:
        return Saved(name, 0.0, 0, {})

    def refusals_of(self, document: Document) -> tuple[EditRefused, ...]:
        return ()

    def saved(self, document: Document) -> tuple[Saved, ...]:
        return ()

    def at(self, document: Document, name: str) -> Document:
        return document


def state(client: int, **fields: object) -> bytes:
    return envelope.encode({"client": client} | fields)


def test_local_state_is_published_with_clock_and_client_id() -> None:
    home = Heard()
    doc = Document("d", host=home, client_id=7)
    aware = doc.awareness
    assert aware.local is None
    aware.local = None
    assert home.states == []
    aware.local = {"user": {"name": "Ada"}}
    aware.renew()
    aware.local = None
    aware.renew()
    assert home.states == [(1, state(7, user={"name": "Ada"})), (2, state(7, user={"name": "Ada"})), (3, None)]
    assert aware.states == {}


def test_state_that_is_too_large_or_not_encodable_is_rejected() -> None:
    doc = Document("d")
    doc.awareness.local = {"user": "me"}
    with pytest.raises(TooLarge):
        doc.awareness.local = {"user": "x" * STATE_LIMIT}
    with pytest.raises(TypeError):
        doc.awareness.local = {"user": object()}
    assert doc.awareness.local == {"user": "me"}


async def test_remote_states_are_added_updated_and_removed() -> None:
    doc = Document("d", client_id=7)
    aware, reader = doc.awareness, doc.awareness.changes()
    aware.local = {"user": "me"}
    assert aware.receive("a", 1, state(8, user="x"), now=0)
    assert aware.receive("b", 1, state(9), now=0)
    assert aware.states == {7: {"user": "me"}, 8: {"user": "x"}, 9: {}}
    assert aware.receive("a", 3, state(8, user="y"), now=1)
    assert not aware.receive("a", 2, state(8, user="old"), now=1)
    assert not aware.receive("a", 3, None, now=1)
    assert not aware.receive("a", 4, state(8, user="y"), now=2)  # renewed
    aware.bye("b")
    assert not aware.receive("b", 2, state(9), now=2)  # still in flight when it said bye
    assert aware.receive("a", 5, None, now=3)
    assert aware.states == {7: {"user": "me"}}
    doc.close()
    new = frozenset
    assert [change async for change in reader] == [
        AwarenessChange(added=new((7,)), local=True),
        AwarenessChange(added=new((8,))),
        AwarenessChange(added=new((9,))),
        AwarenessChange(updated=new((8,))),
        AwarenessChange(removed=new((9,))),
        AwarenessChange(removed=new((8,))),
    ]


def test_state_expires_after_30_seconds_unless_renewed() -> None:
    aware = Document("d").awareness
    aware.receive("a", 1, state(8), now=0)
    aware.receive("b", 1, state(9), now=0)
    aware.receive("b", 2, state(9), now=RENEW)
    assert aware.expire(TIMEOUT - 0.1) == frozenset()
    assert aware.expire(TIMEOUT) == {8}
    assert list(aware.states) == [9]
    assert aware.receive("a", 2, state(8), now=31)


@pytest.mark.parametrize(
    "bad",
    [
        b"junk",
        envelope.encode([1]),
        envelope.encode({"user": 1}),
        envelope.encode({"client": "x"}),
        envelope.encode({"client": -1}),
        envelope.encode({"client": 2**53}),
        state(7),
        state(8),
    ],
)
def test_invalid_state_or_foreign_client_id_is_rejected(bad: bytes) -> None:
    aware = Document("d", client_id=7).awareness
    aware.receive("a", 1, state(8, user="x"))
    with pytest.raises(BadMessage):
        aware.receive("b", 1, bad, peer="them")
    assert aware.states == {8: {"user": "x"}}
    with pytest.raises(TooLarge):
        aware.receive("b", 1, state(9, user="x" * STATE_LIMIT))


# Cursors


@settings(max_examples=120)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_cursor_stays_at_its_character_through_concurrent_edits(seed: int, before: bool, nested: bool) -> None:
    """All characters are different, so that each can be found again."""
    rng = random.Random(seed)
    one, two = Document("d"), Document("d")
    letters = iter(
        rng.sample([chr(c) for c in [*range(97, 123), *range(0x4E00, 0x4E40), *range(0x1F600, 0x1F640)]], 150)
    )

    def text(doc: Document) -> Text:
        part = doc.map("m")["t"] if nested else doc.text("t")
        assert isinstance(part, Text)
        return part

    if nested:
        one.map("m")["t"] = Text()
    one.engine.observe(lambda update, origin: None)
    text(one).insert(0, "".join(next(letters) for _ in range(20)))
    two.merge(one.engine.changes_since(), "one")
    at = rng.randrange(1, 20)
    kept = text(one)[at - 1 if before else at]
    cursor = text(one).cursor(at, before=before)
    for _ in range(10):
        doc = rng.choice((one, two))
        place = rng.randrange(len(text(doc)) + 1)
        text(doc).insert(place, next(letters) + next(letters))
        gone = rng.randrange(len(text(doc)))
        if text(doc)[gone] != kept:
            del text(doc)[gone]
        if rng.random() < 0.5:
            one.merge(two.engine.changes_since(one.engine.state()), "two")
            two.merge(one.engine.changes_since(two.engine.state()), "one")
    for doc in (one, two):
        assert text(doc).index_of(cursor) == str(text(doc)).index(kept) + before


@pytest.mark.parametrize("content", ["", "abc", "aé😀b"])
def test_cursors_at_the_end_and_the_beginning_do_not_move(content: str) -> None:
    doc = Document("d")
    text = doc.text("t")
    text += content
    end, start = text.cursor(len(text)), text.cursor(0, before=True)
    assert end == b"\x01\x01t\x00"
    assert start == b"\x01\x01t\x41"
    text += "😀"
    text.insert(0, "x")
    assert text.index_of(end) == len(text)
    assert text.index_of(start) == 0


def test_cursor_is_a_yjs_relative_position_in_utf_16_units() -> None:
    doc = Document("d", client_id=300)
    text = doc.text("t")
    text += "aé😀b"
    assert text.cursor(3) == b"\x00" + uint(300) + b"\x04" + b"\x00"
    assert text.cursor(3, before=True) == b"\x00" + uint(300) + b"\x03" + b"\x41"
    assert text.index_of(b"\x00" + uint(300) + b"\x04" + b"\x00") == 3


def test_invalid_cursor_is_not_found() -> None:
    doc, other = Document("d", client_id=300), Document("d")
    for text in (doc.text("t"), other.text("t")):
        for bad in (
            b"",
            b"\x00",
            b"\x00\x01\x02\x00",
            b"\x07\x01\x02\x00",
            b"\x00" + b"\xff" * 12 + b"\x00",
            b"\x01\x01u\x00",
        ):
            assert text.index_of(bad) is None
        text += "é"
    late = doc.text("t").cursor(0)
    assert other.text("t").index_of(late) is None  # its edit has not arrived
    other.merge(doc.engine.changes_since(), "d")
    assert other.text("t").index_of(late) is not None
    with doc.transaction(), pytest.raises(RuntimeError, match="take it before or after"):
        doc.text("t").cursor(0)


def test_states_carry_cursors() -> None:
    doc, other = Document("d", client_id=7), Document("d", client_id=8)
    doc.text("body").insert(0, "é😀x")
    other.merge(doc.engine.changes_since(), "d")
    doc.awareness.local = {"cursor": doc.awareness.cursor("body", 1, 3)}
    other.awareness.receive("d", doc.awareness.clock, doc.awareness.encoded)
    cursor = other.awareness.states[7]["cursor"]
    assert other.awareness.find(cursor) is None  # that text was not opened here
    other.text("body").insert(0, "¡")
    assert other.awareness.find(cursor) == ("body", 2, 4)
    for bad in (
        None,
        {},
        {"text": 1},
        {"text": "m", "anchor": b"", "head": b""},
        {"text": "body", "anchor": "", "head": b""},
    ):
        assert other.awareness.find(bad) is None


@pytest.mark.parametrize("seed", range(10))
def test_cursors_work_in_nested_texts(seed: int) -> None:
    histories = networks.Histories(random.Random(seed), count=2)
    histories.run(30)
    doc = Document("d")
    doc.merge(histories.replicas[0].changes_since(), "x")
    doc.array("rows").insert(0, Map({"t": Text("é1😀2")}))
    text = doc.array("rows")[0]["t"]
    cursor = text.cursor(3)
    text.insert(0, "漢")
    doc.array("rows").insert(0, 1)
    assert doc.array("rows")[1]["t"].index_of(cursor) == 4
