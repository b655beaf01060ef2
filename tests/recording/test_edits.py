"""Records of edits round-trip, and rebuild documents even if some are missing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit.documents import Document
from nngkit.documents.engine.interface import Engine, load_engine
from nngkit.documents.records import Record as EditRecord
from nngkit.documents.versions import Edit, EditStream, Versions
from nngkit.journal.record import Record
from nngkit.recording.edits import BadRecord, DocumentRecord, Headers, edit_headers, merge_headers, parse, restored

ADA, BOB = EditStream(b"ada.....", 1), EditStream(b"bob.....", 2)
YJS: Engine = load_engine()


def record(doc: str, value: bytes, headers: Headers | None, offset: int = 0) -> Record:
    return Record(doc.encode(), value, "documents", 0, offset, 0, tuple(headers or ()), "documents", None)


def written(text: str, seed: int, doc: str = "d") -> tuple[list[Record], Document]:
    """Return the records of an alternating conversation in which each author sees every edit, and the document."""
    rng = random.Random(seed)
    copies = {stream: Document(doc) for stream in (ADA, BOB)}
    said: list[bytes] = []
    for document in copies.values():
        document.engine.observe(lambda update, origin: said.append(update))
    have: Versions = {}
    found: list[Record] = []
    for letter in text:
        author, reader = (ADA, BOB) if rng.random() < 0.5 else (BOB, ADA)
        said.clear()
        body = copies[author].text("body")
        body.insert(rng.randint(0, len(body)), letter)
        update = said[0]
        copies[reader].merge(update, None)
        seq = have.get(author, 0) + 1
        deps = {reader: have[reader]} if reader in have else {}
        have[author] = seq
        found.append(record(doc, update, edit_headers(doc, author, seq, Edit(update, deps), "x"), len(found)))
    return found, copies[ADA]


def test_edit_round_trips() -> None:
    headers = edit_headers("minutes", ADA, 7, Edit(b"update", {BOB: 3}), "Ada")
    assert parse(record("minutes", b"update", headers)) == DocumentRecord("minutes", ADA, 7, {BOB: 3}, {}, b"update")
    assert dict(headers)["from"] == b"Ada"
    assert headers[0][0] == "id", "read(distinct=True) looks at the first header"


def test_merge_round_trips() -> None:
    headers = merge_headers("minutes", b"update", {BOB: 3}, {ADA: 7, BOB: 4})
    assert parse(record("minutes", b"update", headers)) == DocumentRecord(
        "minutes", None, 0, {BOB: 3}, {ADA: 7, BOB: 4}, b"update"
    )


def test_ids_are_unique_to_an_edit() -> None:
    edit = Edit(b"update", {})
    ids = {
        dict(headers)["id"]
        for headers in (
            edit_headers("a", ADA, 1, edit, "Ada"),
            edit_headers("b", ADA, 1, edit, "Ada"),
            edit_headers("a", ADA, 2, edit, "Ada"),
            edit_headers("a", BOB, 1, edit, "Ada"),
            merge_headers("a", b"update", {}, {ADA: 1}),
            merge_headers("a", b"update", {ADA: 1}, {ADA: 1}),
            merge_headers("b", b"update", {}, {ADA: 1}),
            merge_headers("a", b"u", {}, {ADA: 1}),
        )
    }
    assert len(ids) == 8
    assert edit_headers("a", ADA, 1, edit, "Ada")[0] == edit_headers("a", ADA, 1, Edit(b"", {BOB: 1}), "")[0]


GOOD = dict(edit_headers("d", ADA, 1, Edit(b"u", {}), "Ada"))


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        ("d", {}),
        ("d", {"origin": b"ada....."}),
        ("d", GOOD | {"origin": b"ada"}),
        ("d", GOOD | {"epoch": b"\xff" * 8}),
        ("d", GOOD | {"seq": bytes(8)}),
        ("d", GOOD | {"seq": b"\x01" * 40}),
        ("d", GOOD | {"deps": b"\xff"}),
        ("d", GOOD | {"versions": b"\x01"}),
        ("..", GOOD),
        ("", GOOD),
    ],
)
def test_foreign_record_is_counted_and_ignored(key: str, headers: dict[str, bytes]) -> None:
    bad = record(key, b"u", list(headers.items()))
    with pytest.raises(BadRecord, match="offset 0"):
        parse(bad)
    assert restored([bad], YJS) == ({}, 1)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(0, 39), st.integers(0, 39))
def test_restored_document_holds_exactly_the_applicable_edits(seed: int, gone: int, twice: int) -> None:
    rows, document = written("".join(chr(97 + number % 26) for number in range(40)), seed)
    whole, _ = restored([*rows[: twice + 1], *rows], YJS)
    assert whole["d"].versions == {
        ADA: sum(parse(row).stream == ADA for row in rows),
        BOB: sum(parse(row).stream == BOB for row in rows),
    }
    again = Document("d")
    again.merge(whole["d"].loaded(YJS).snapshot or b"", None)
    assert again.digest() == document.digest()

    part, _ = restored(rows[:gone] + rows[gone + 1 :], YJS)
    if part:
        loaded = part["d"].loaded(YJS)
        assert sum(loaded.versions.values()) + part["d"].left == 39
        assert part["d"].versions == loaded.versions


def test_merge_supplies_missing_edits_and_later_edits_apply() -> None:
    rows, document = written("abcdefgh", 3)
    have: Versions = {}
    first = Document("d")
    for row in rows[:6]:
        kept = parse(row)
        assert kept.stream is not None
        have[kept.stream] = kept.seq
        first.merge(kept.update, None)
    update = first.engine.changes_since(None)
    merge = record("d", update, merge_headers("d", update, {}, have))
    found, _ = restored([merge, *rows[6:]], YJS)
    assert found["d"].left == 0
    loaded = found["d"].loaded(YJS)
    again = Document("d")
    again.merge(loaded.snapshot or b"", None)
    assert again.digest() == document.digest()
    assert [each.seq for each in loaded.recent if isinstance(each, EditRecord)], "kept to serve other peers"
    # A merge with missing dependencies waits for a peer.
    off, _ = restored([record("d", update, merge_headers("d", update, {EditStream(b"carol...", 1): 1}, have))], YJS)
    assert (off["d"].left, off["d"].versions) == (1, {})


def test_many_updates_are_held_merged() -> None:
    document = Document("d")
    said: list[bytes] = []
    document.engine.observe(lambda update, origin: said.append(update))
    rows = []
    for number in range(300):
        document.map("cells")["a"] = f"{number}" * 3000
        update = said[-1]
        rows.append(record("d", update, edit_headers("d", ADA, number + 1, Edit(update, {}), "x"), number))
    found, _ = restored(rows, YJS)
    held = len(found["d"].snapshot or b"") + sum(len(edit.update) for edit in found["d"].edits)
    assert held < 2 << 20 < sum(len(row.value) for row in rows)
    again = Document("d")
    again.merge(found["d"].loaded(YJS).snapshot or b"", None)
    assert again.digest() == document.digest()
