"""Document: texts, maps and arrays, changes and undo."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit.documents import changes
from nngkit.documents.changes import MISSING, ArrayChange, Change, Delete, Insert, Keep, MapChange, TextChange
from nngkit.documents.document import Document
from nngkit.documents.records import Saved
from nngkit.documents.shared import Array, Map, Text
from nngkit.errors import Closed, ConfigError, EditRefused, Full, NngkitError
from tests.documents.deltas import patched

LETTERS = st.text(st.sampled_from("ab\néß漢😀🇬👨‍👩\u0301\u200d\U0010ffff\x00"), max_size=8)
PLACES = st.floats(0, 1)


class Wire:
    """A host that passes each edit to the other documents, at once or on demand."""

    def __init__(self, *, held: bool = False) -> None:
        self.others: list[Document] = []
        self.held = held
        self.updates: list[bytes] = []

    def edited(self, document: Document, update: bytes) -> None:
        self.updates.append(update)
        if not self.held:
            for other in self.others:
                other.merge(update, document.name)

    def aware(self, document: Document, state: bytes | None) -> None:
        for other in self.others:
            other.awareness.receive(document.name, document.awareness.clock, state)

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
        old = Document(document.name, read_only=True)
        old.merge(document.engine.changes_since(), None)
        return old


def pair() -> tuple[Document, Document]:
    """Return two documents that exchange edits at once."""
    a, b = Wire(), Wire()
    one, two = Document("one", host=a), Document("two", host=b)
    a.others, b.others = [two], [one]
    return one, two


# Texts


@settings(max_examples=150)
@given(st.lists(st.tuples(st.booleans(), PLACES, PLACES, LETTERS), max_size=25))
def test_texts_of_two_peers_match_a_str_in_code_points(edits: list[tuple[bool, float, float, str]]) -> None:
    one, two = pair()
    texts = one.text("t"), two.text("t")
    told: list[Any] = []
    two.engine.observe_changes(lambda parts, origin: told.extend(parts))
    plain = followed = ""
    for first, start, stop, letters in edits:
        text = texts[0] if first else texts[1]
        low, high = sorted((round(start * len(plain)), round(stop * len(plain))))
        text[low:high] = letters
        plain = plain[:low] + letters + plain[high:]
    assert [str(text) for text in texts] == [plain, plain]
    assert [len(text) for text in texts] == [len(plain)] * 2
    for text in texts:
        assert text[:] == plain
        assert text[1:4] == plain[1:4]
        assert text[::-2] == plain[::-2]
    for part in told:
        followed = patched(followed, part.delta)
    assert followed == plain
    assert one.digest() == two.digest()


@settings(max_examples=60)
@given(
    st.lists(st.tuples(PLACES, PLACES, LETTERS), min_size=1, max_size=8), st.lists(LETTERS, max_size=3), st.booleans()
)
def test_transaction_of_many_edits_gives_one_delta(
    edits: list[tuple[float, float, str]], others: list[str], nested: bool
) -> None:
    one, two = pair()
    told: list[Any] = []
    if nested:
        one.map("m")["t"] = Text("é😀x")
        text = one.map("m")["t"]
    else:
        text = one.text("t")
        text += "é😀x"
    one.engine.observe_changes(lambda parts, origin: told.extend(parts))
    for letters in others:
        (two.map("m")["t"] if nested else two.text("t")).insert(1, letters)
    followed = before = "é😀x"
    with one.transaction():
        before = str(text)
        for start, stop, letters in edits:
            low, high = sorted((round(start * len(text)), round(stop * len(text))))
            text.splice(low, high - low, letters)
    for part in told:
        assert part.path == (("m", "t") if nested else ("t",))
        followed = patched(followed, part.delta)
    assert followed == str(text)
    assert before is not None


def test_text_is_edited_like_a_mutable_str() -> None:
    text = Document("d").text("t")
    text += "héllo"
    text.append(" 😀")
    text.insert(0, "¡")
    text.insert(-1, "👍")
    assert str(text) == "¡héllo 👍😀"
    del text[0]
    del text[-2:]
    text[0:1] = "J"
    text[-1] = "_"
    text.delete(1, 3)
    assert str(text) == "Jlo_"
    assert text[1] == "l"
    assert "lo" in text
    text.splice(1, 2, "")
    assert repr(text) == "Text('J_')"
    assert bool(text)
    del text[:]
    assert not text


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda text: text.insert(4, "x"), IndexError),
        (lambda text: text.insert(-5, "x"), IndexError),
        (lambda text: text[3], IndexError),
        (lambda text: text.splice(1, 3, ""), IndexError),
        (lambda text: text.splice(1, -1, ""), IndexError),
        (lambda text: text.insert(0, "\ud83d"), ValueError),
        (lambda text: text.insert(0, b"x"), TypeError),
        (lambda text: text.__setitem__(slice(0, 3, 2), "x"), ValueError),
    ],
)
def test_invalid_edit_changes_nothing(wrong: Callable[[Text], None], error: type[Exception]) -> None:
    wire = Wire(held=True)
    doc = Document("d", host=wire)
    text = doc.text("t")
    text += "a😀b"
    with pytest.raises(error):
        wrong(text)
    assert str(text) == "a😀b"
    assert len(wire.updates) == 1


# Maps and arrays


def test_map_behaves_like_a_dict() -> None:
    one, two = pair()
    table = one.map("m")
    table["a"] = 1
    table.update({"b": [1, {"c": None}]}, d=b"\x00")
    assert dict(two.map("m")) == {"a": 1, "b": [1, {"c": None}], "d": b"\x00"}
    assert table.pop("a") == 1
    assert "a" not in two.map("m")
    assert table.setdefault("b", 0) == [1, {"c": None}]
    assert table.get("no", "none") == "none"
    with pytest.raises(KeyError, match="no"):
        _ = table["no"]
    with pytest.raises(KeyError, match="no"):
        del table["no"]
    table.clear()
    assert len(two.map("m")) == 0
    assert one.plain() == {}


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_array_behaves_like_a_list(seed: int) -> None:
    rng = random.Random(seed)
    one, two = pair()
    rows, plain = one.array("r"), list[Any]()
    for _ in range(15):
        at, to = rng.randrange(-2, len(plain) + 2), rng.randrange(len(plain) + 2)
        match rng.randrange(6):
            case 0:
                rows.insert(at, at)
                plain.insert(at, at)
            case 1:
                rows.extend([at, to])
                plain.extend([at, to])
            case 2:
                rows[at:to] = ["x", to]
                plain[max(0, at) if at >= 0 else slice(at, to).indices(len(plain))[0] : to] = ["x", to]
            case 3:
                del rows[at:to]
                del plain[at:to]
            case 4 if plain:
                at = rng.randrange(-len(plain), len(plain))
                assert rows.pop(at) == plain.pop(at)
            case 5 if plain:
                at = rng.randrange(-len(plain), len(plain))
                rows.move(at, 0)
                plain.insert(0, plain.pop(at))
        assert list(rows) == plain
        assert rows[1:] == plain[1:]
    assert two.array("r").plain() == plain
    rows.clear()
    assert list(rows) == []


def test_nested_types_are_edited_independently() -> None:
    one, two = pair()
    rows = one.array("r")
    rows.append(Map({"name": "Ada", "notes": Text("é"), "tags": Array([1, Map()])}))
    row = two.array("r")[0]
    assert isinstance(row, Map)
    row["notes"].insert(1, "😀")
    row["notes"] += "!"
    row["tags"].append("x")
    row["tags"][1]["k"] = Text("deep")
    rows[0]["notes"].insert(0, "<")
    assert rows.plain() == [{"name": "Ada", "notes": "<é😀!", "tags": [1, {"k": "deep"}, "x"]}]
    assert one.plain() == two.plain()
    assert str(one.array("r")[0]["notes"]) == "<é😀!"
    assert rows.pop() == {"name": "Ada", "notes": "<é😀!", "tags": [1, {"k": "deep"}, "x"]}
    assert one.digest() == two.digest()


def test_shared_type_cannot_be_in_two_places() -> None:
    doc = Document("d")
    note = Text("x")
    with pytest.raises(NngkitError, match="this Text is in no document"):
        len(note)
    doc.map("m")["note"] = note
    with pytest.raises(NngkitError, match="in a document already"):
        doc.map("m")["again"] = doc.map("m")["note"]
    with pytest.raises(TypeError, match="cannot be moved"):
        doc.array("r").extend([1, Text()]) or doc.array("r").move(1, 0)  # type: ignore[func-returns-value]
    with pytest.raises(TypeError, match="reversed"):
        doc.array("r").reverse()


NUMBERS = [0, 1, -1, 2**31, 2**53, -(2**53), 2**53 + 1, -(2**53) - 1, 2**60, 2**63 - 2, -(2**63), 0.5, 1e300, 1e18, 3.0]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_keep_their_value_and_integral_ones_are_int(number: float) -> None:
    one, two = pair()
    one.map("m")["n"] = number
    for doc in (one, two):
        value = doc.map("m")["n"]
        assert value == number
        if float(number).is_integer() and abs(number) <= 2**53:
            assert type(value) is int
    assert one.digest() == two.digest()


@pytest.mark.parametrize(
    ("value", "error", "why"),
    [
        (2**63 - 1, ValueError, "outside of -2\\*\\*63"),
        ([0, {"a": 2**70}], ValueError, r"value\[1\]\['a'\]: integer outside of"),
        ({"a": {1: 2}}, TypeError, r"value\['a'\]: a key must be str, not int"),
        (["\ud800"], ValueError, r"value\[0\]: lone surrogate"),
        ([object()], TypeError, "object is not supported"),
        ({1, 2}, TypeError, "set is not supported"),
        ([Text()], TypeError, "Text within a plain list"),
        ([[[[]]]] * 1, None, ""),
    ],
)
def test_values_are_json_and_bytes(value: object, error: type[Exception] | None, why: str) -> None:
    doc = Document("d")
    if error is None:
        doc.map("m")["k"] = value
        assert doc.map("m")["k"] == value
        return
    with pytest.raises(error, match=why):
        doc.map("m")["k"] = value
    with pytest.raises(error, match=why):
        doc.array("r").append(value)
    assert doc.plain() == {}


def test_values_nest_as_deep_as_messages() -> None:
    doc = Document("d")
    value: Any = 1
    for _ in range(32):
        value = [value]
    doc.map("m")["k"] = value
    other = Document("e")
    other.merge(doc.engine.changes_since(), "d")
    assert other.map("m")["k"] == value
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        doc.map("m")["k"] = [value]


def test_roots_have_a_name_and_one_type() -> None:
    doc = Document("d")
    assert doc.text("a") is doc.text("a")
    with pytest.raises(TypeError, match="opened as text, not array"):
        doc.array("a")
    with pytest.raises(ValueError, match="is empty"):
        doc.text("")
    with pytest.raises(ConfigError):
        Document("../up")


# Transactions


def test_nested_transactions_make_one_update() -> None:
    wire = Wire(held=True)
    doc = Document("d", host=wire)
    with doc.transaction("outer"):
        doc.text("t").insert(0, "é")
        with doc.transaction("inner"):
            doc.text("t").insert(1, "x")
            doc.map("m")["k"] = len(doc.text("t"))
        assert wire.updates == []
    assert len(wire.updates) == 1
    assert doc.plain() == {"t": "éx", "m": {"k": 2}}
    doc.text("other")
    assert len(wire.updates) == 1


def test_edits_before_an_exception_stay_and_are_sent() -> None:
    one, two = pair()
    with pytest.raises(ZeroDivisionError), one.transaction():  # noqa: PT012
        one.text("t").insert(0, "kept")
        _ = 1 / 0
    assert str(two.text("t")) == "kept"
    one.text("t").insert(4, "!")
    assert str(two.text("t")) == "kept!"


def test_remote_update_during_a_transaction_is_checked_at_once_and_applied_at_its_end() -> None:
    other = Document("other")
    other.text("t").insert(0, "theirs")
    doc = Document("d")
    with doc.transaction():
        doc.text("t").insert(0, "ours")
        doc.merge(other.engine.changes_since(), "other")
        assert str(doc.text("t")) == "ours"
        with pytest.raises(ValueError, match="not an update"):
            doc.merge(b"junk", "other")
    assert str(doc.text("t")) in ("ourstheirs", "theirsours")


async def test_document_without_a_peer_has_no_store_and_no_peers() -> None:
    doc = Document("d")
    for waits in (doc.durable, doc.synced, doc.joined):
        with pytest.raises(ConfigError, match="belongs to no peer"):
            await waits()
    with pytest.raises(ConfigError, match="belongs to no peer"):
        doc.saved_versions()


def test_saved_version_is_read_only() -> None:
    one, _ = pair()
    one.text("t").insert(0, "x")
    old = one.at("v1")
    assert str(old.text("t")) == "x"
    with pytest.raises(ConfigError, match="read-only"):
        old.text("t").insert(0, "y")
    with pytest.raises(ConfigError, match="read-only"):
        old.map("m")["k"] = 1


# Changes


def drain(reader: Any) -> list[Change]:
    return list(reader._queue)


async def test_changes_report_local_and_remote_transactions() -> None:
    one, two = pair()
    one.text("t").insert(0, "é😀x")
    one.array("r").append(Map({"n": Text("漢")}))
    two.text("t"), two.array("r"), two.map("m")
    reader = two.changes()
    with one.transaction("theirs"):
        one.text("t").insert(2, "!")
        del one.text("t")[0]
        one.array("r")[0]["n"].insert(1, "字")
        one.map("m")["k"] = 1
    one.map("m")["k"] = Map({"a": 3.0})
    del one.map("m")["k"]
    with two.transaction("ours"):
        two.array("r").extend([1, Array([2])])
    one.text("elsewhere").insert(0, "x")
    two.close()
    got = [change async for change in reader]
    assert [(change.origin, change.peer) for change in got] == [
        (None, "one"), (None, "one"), (None, "one"), ("ours", None), (None, "one"),
    ]  # fmt: skip
    assert sorted(got[0].parts, key=lambda part: str(part.path)) == [
        MapChange(("m",), {"k": (MISSING, 1)}),
        TextChange(("r", 0, "n"), (Keep(1), Insert("字"))),
        TextChange(("t",), (Delete(1), Keep(1), Insert("!"))),
    ]
    assert got[1].parts == (MapChange(("m",), {"k": (1, {"a": 3})}),)
    assert got[2].parts == (MapChange(("m",), {"k": (None, MISSING)}),)
    assert got[3].parts == (ArrayChange(("r",), (Keep(1), Insert((1, [2])))),)
    assert got[4].parts == ()


async def test_each_reader_gets_changes_from_its_creation_on() -> None:
    doc = Document("d")
    text = doc.text("t")
    first = doc.changes()
    text += "a"
    second = doc.changes()
    text += "b"
    async with first, second:
        assert (await anext(first)).parts == (TextChange(("t",), (Insert("a"),)),)
        assert (await anext(first)).parts == (TextChange(("t",), (Keep(1), Insert("b"))),)
        assert (await anext(second)).parts == (TextChange(("t",), (Keep(1), Insert("b"))),)
    text += "c"
    with pytest.raises(StopAsyncIteration):
        await anext(first)


async def test_cancelled_reader_loses_no_change() -> None:
    doc = Document("d")
    reader = doc.changes()
    with trio.move_on_after(0.01) as scope:
        await anext(reader)
    assert scope.cancelled_caught
    doc.text("t").insert(0, "a")
    with trio.CancelScope() as scope:
        scope.cancel()
        await anext(reader)
    assert scope.cancelled_caught
    assert (await anext(reader)).parts == (TextChange(("t",), (Insert("a"),)),)


async def test_waiting_reader_is_woken() -> None:
    doc = Document("d")
    got: list[Change] = []

    async def read() -> None:
        got.extend([change async for change in doc.changes()])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        doc.text("t").insert(0, "a")
        await trio.testing.wait_all_tasks_blocked()
        doc.close()
    assert len(got) == 1
    with pytest.raises(Closed):
        doc.text("t").insert(0, "b")
    assert str(doc.text("t")) == "a"


async def test_slow_reader_gets_full_and_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "UNREAD", 3)
    doc = Document("d")
    text = doc.text("t")
    slow, quick = doc.changes(), doc.changes()
    for letter in "abcde":
        text += letter
        await anext(quick)
    for _ in range(3):
        await anext(slow)
    with pytest.raises(Full, match="start again"):
        await anext(slow)
    text += "f"
    assert (await anext(quick)).parts == (TextChange(("t",), (Keep(5), Insert("f"))),)


def test_changes_are_not_collected_without_readers() -> None:
    doc = Document("d")
    reader = doc.changes()
    assert doc.engine.followed  # type: ignore[attr-defined]
    del reader
    doc.text("t").insert(0, "a")
    doc.text("t").insert(0, "a")
    assert not doc.engine.followed  # type: ignore[attr-defined]


# Undo


def test_undo_reverts_local_edits_only() -> None:
    one, two = pair()
    text, now = one.text("t"), [100.0]
    undo = one.undo(text, clock=lambda: now[0])
    assert not undo.can_undo
    assert not undo.undo()
    text += "é😀"
    now[0] = 100.3
    text += "x"  # within half a second: one step
    now[0] = 101.0
    text += "y"
    two.text("t").insert(1, "THEIRS")
    assert str(text) == "éTHEIRS😀xy"
    assert undo.undo()
    assert str(two.text("t")) == "éTHEIRS😀x"
    assert undo.undo()
    assert str(text) == str(two.text("t")) == "THEIRS"
    assert not undo.can_undo
    assert undo.can_redo
    assert undo.redo()
    assert str(two.text("t")) == "éTHEIRS😀x"
    assert len(text) == len("éTHEIRS😀x")
    text.insert(0, "z")
    assert not undo.can_redo
    undo.clear()
    assert not undo.can_undo


@pytest.mark.parametrize("window", [0.0, 0.5, 60.0])
def test_stop_capturing_ends_an_undo_step(window: float) -> None:
    doc = Document("notes")
    text = doc.text("body")
    undo = doc.undo(text, window=window, clock=lambda: 10.0)
    text.append("one")
    undo.stop_capturing()
    text.append(" two")
    text.append(" three")
    assert undo.undo()
    assert str(text) == ("one" if window else "one two")
    undo.clear()
    text.append(".")
    undo.stop_capturing()
    undo.stop_capturing()
    text.append("!")
    assert undo.undo()
    assert str(text).endswith(".")


def test_undo_is_a_change_of_its_own_and_not_allowed_inside_a_transaction() -> None:
    doc = Document("d")
    table = doc.map("m")
    undo = doc.undo(table)
    table["k"] = 1
    reader = doc.changes()
    undo.undo()
    (change,) = drain(reader)
    assert change.origin is undo
    assert change.peer is None
    assert change.parts == (MapChange(("m",), {"k": (1, MISSING)}),)
    with doc.transaction(), pytest.raises(RuntimeError):
        undo.redo()
    with pytest.raises(ConfigError, match="the scope is empty"):
        doc.undo()


HALVES = ("a\ud83d", "\ude00b", "\ude00\ud83d", "😀\ud83d")
DOORS: dict[str, Callable[[Document, str], object]] = {
    "insert": lambda doc, text: doc.text("t").insert(0, text),
    "append": lambda doc, text: doc.text("t").append(text),
    "splice": lambda doc, text: doc.text("t").splice(0, 1, text),
    "a slice of a text": lambda doc, text: doc.text("t").__setitem__(slice(0, 1), text),
    "a nested text": lambda doc, text: doc.array("a").append(Text(text)),
    "a value": lambda doc, text: doc.map("m").__setitem__("k", text),
    "a key": lambda doc, text: doc.map("m").__setitem__(text, 1),
    "a key of many": lambda doc, text: doc.map("m").update({text: 1}),
    "a nested map": lambda doc, text: doc.array("a").append(Map({"k": text})),
    "a nested key": lambda doc, text: doc.array("a").append(Map({text: "v"})),
    "an item": lambda doc, text: doc.array("a").append(text),
    "a slice of an array": lambda doc, text: doc.array("a").__setitem__(slice(0, 0), [text]),
    "a plain dict": lambda doc, text: doc.array("a").append({"k": [{text: 1}]}),
    "a root": lambda doc, text: doc.text(text),
    "awareness": lambda doc, text: setattr(doc.awareness, "local", {"user": text}),
    "a key of awareness": lambda doc, text: setattr(doc.awareness, "local", {text: 1}),
}


@pytest.mark.parametrize("half", HALVES, ids=ascii)
@pytest.mark.parametrize("door", DOORS)
def test_lone_surrogate_is_rejected_everywhere(door: str, half: str) -> None:
    doc = Document("d")
    doc.text("t").insert(0, "x")
    said: list[bytes] = []
    doc.engine.observe(lambda update, origin: said.append(update))
    before = doc.digest()
    with pytest.raises(ValueError, match="surrogate"):
        DOORS[door](doc, half)
    assert (doc.digest(), doc.plain(), said) == (before, {"t": "x"}, [])
    assert doc.awareness.local is None


def test_lone_surrogate_is_not_a_key() -> None:
    keys = Document("d").map("m")
    keys["k"] = 1
    assert "\ud83d" not in keys
    assert keys.get("\ud83d") is None
    with pytest.raises(KeyError):
        keys["\ud83d"]
    with pytest.raises(KeyError):
        del keys["\ud83d"]
    with pytest.raises(KeyError):
        keys.pop("\ud83d")
