"""Properties of pycrdt that this project relies on or works around; detects versions that differ.

nngkit/documents/engine/yjs.py lists the workarounds. If a test of a workaround fails because pycrdt improved, the
workaround can be removed. If any other test fails, that version of pycrdt must not be used.
"""

from __future__ import annotations

import random
from typing import Any

import pycrdt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit.documents.engine import yjs_update
from tests.documents import networks


def new(client_id: int | None = None) -> pycrdt.Doc[Any]:
    return pycrdt.Doc(client_id=client_id)


def view(doc: pycrdt.Doc[Any]) -> str:
    return str(doc.get("text", type=pycrdt.Text))


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_any_causal_order_converges(seed: int) -> None:
    rng = random.Random(seed)
    histories = networks.Histories(rng)
    histories.run(25)
    doc, seen, rest = new(), [0] * histories.count, list(histories.messages)
    while rest:
        message = rng.choice(list(histories.ready(seen, rest)))
        rest.remove(message)
        seen[message.author] = message.number
        doc.apply_update(message.update)
    assert view(doc) == str(histories.replicas[0].root("text", "text"))


def test_order_matters_so_updates_are_held_back() -> None:
    """Shuffled edits of one author: in pycrdt 0.14.13 about half of the orders give a permanently different text."""
    diverged = 0
    for seed in range(100):
        rng = random.Random(seed)
        author, updates = new(1), list[bytes]()
        text = author.get("text", type=pycrdt.Text)
        author.observe(lambda event, updates=updates: updates.append(event.update))
        for letter in "abcdefghijkl":
            text.insert(rng.randrange(len(text) + 1), letter)
        rng.shuffle(updates)
        other = new()
        for update in updates:
            other.apply_update(update)
        diverged += view(other) != str(text)
    assert diverged, "updates out of order do no harm any more: replica.py may hold back less"


def test_state_vectors_omit_deletions_and_updates_do_not() -> None:
    doc, other = new(), new()
    text = doc.get("text", type=pycrdt.Text)
    text += "abc"
    other.apply_update(doc.get_update())
    before = doc.get_state()
    del text[1]
    assert yjs_update.read_state(doc.get_state()) == yjs_update.read_state(before)
    other.apply_update(doc.get_update(other.get_state()))
    assert view(other) == "ac"


def test_positions_are_bytes() -> None:
    doc = new()
    text = doc.get("text", type=pycrdt.Text)
    text += "é😀"
    assert len(text) == 6
    deltas: list[Any] = []
    text.observe(lambda event: deltas.append(event.delta))
    text.insert(2, "x")
    assert deltas == [[{"retain": 2}, {"insert": "x"}]]


def test_clocks_count_utf_16_units() -> None:
    doc = new(7)
    text = doc.get("text", type=pycrdt.Text)
    text += "é😀"
    assert yjs_update.read_state(doc.get_state()) == {7: 3}


def test_sticky_index_is_a_yjs_relative_position_and_wrong_after_non_ascii() -> None:
    """Y.encodeRelativePosition writes: 0, client, clock (or 1, name; or 2, client, clock), then assoc as a varint."""
    doc = new(7)
    text = doc.get("text", type=pycrdt.Text)
    text += "abé😀c"
    assert text.sticky_index(1, pycrdt.Assoc.AFTER).encode() == b"\x00\x07\x01\x00"
    assert text.sticky_index(1, pycrdt.Assoc.BEFORE).encode() == b"\x00\x07\x00\x41"
    assert text.sticky_index(0, pycrdt.Assoc.BEFORE).encode() == b"\x01\x04text\x41"
    # "c" has clock 5: a, b, é and the two units of 😀 precede it. Its byte offset is 8.
    assert text.sticky_index(8, pycrdt.Assoc.AFTER).encode() == b"\x00\x07\x08\x00"


def test_trailing_bytes_are_ignored() -> None:
    author, doc = new(1), new()
    author.get("text", type=pycrdt.Text).insert(0, "abc")
    update = author.get_update()
    doc.apply_update(update + b"junk")
    assert view(doc) == "abc"
    assert doc.get_update() == update
    with pytest.raises(ValueError, match="4 trailing bytes"):  # ... so our parser rejects them
        yjs_update.parse(update + b"junk")


def test_unconnected_update_is_kept_invisibly() -> None:
    author, updates = new(1), list[bytes]()
    author.observe(lambda event: updates.append(event.update))
    text = author.get("text", type=pycrdt.Text)
    text += "a"
    text += "b"
    other = new()
    other.apply_update(updates[1])
    assert view(other) == ""
    assert other.get_update() == b"\x00\x00"


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**62 + 1, -(2**63), 2**63 - 2, 2**60])
def test_integers_beyond_2_to_the_53rd_keep_their_value(value: int) -> None:
    doc, other = new(), new()
    doc.get("map", type=pycrdt.Map)["k"] = value
    other.apply_update(doc.get_update())
    assert other.get("map", type=pycrdt.Map)["k"] == value


def test_largest_integer_is_sent_as_another() -> None:
    doc, other = new(), new()
    doc.get("map", type=pycrdt.Map)["k"] = 2**63 - 1
    other.apply_update(doc.get_update())
    assert other.get("map", type=pycrdt.Map)["k"] == 2**63


def test_root_read_as_another_type_is_empty() -> None:
    """The digest reads opened roots as any type; roots that are not open must not be read so."""
    doc = new()
    text = doc.get("text", type=pycrdt.Text)
    text += "é"
    text.observe(lambda event: None)
    as_map: Any = doc.get("text", type=pycrdt.Map)
    assert as_map.to_py() == {}
    text.insert(0, "x")
    assert str(text) == "xé"
