"""Requirements on every engine, and input it must reject; add a second engine to `ENGINES`."""

import gc
import json
import math
import random
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit.documents.engine import yjs_update
from nngkit.documents.engine.interface import Engine, EngineDocument, Prelim, content_digest, load_engine
from nngkit.errors import Broken, ConfigError
from tests.documents import networks

ENGINES = ["yjs"]
VECTORS = json.loads((Path(__file__).parent / "digests.json").read_text())


@pytest.fixture(params=ENGINES)
def made(request: pytest.FixtureRequest) -> Engine:
    return load_engine(request.param)


def test_unknown_engine_raises_config_error() -> None:
    with pytest.raises(ConfigError, match="unknown; available: yjs"):
        load_engine("no")


@pytest.mark.parametrize("seed", range(40))
def test_replicas_with_the_same_updates_are_equal(made: Engine, seed: int) -> None:
    histories = networks.Histories(random.Random(seed), made=made)
    histories.run(40)
    digests = {replica.digest() for replica in histories.replicas}
    assert len(digests) == 1
    late = made.new()
    for message in histories.messages:
        late.apply(message.update)
    assert late.digest() in digests  # with no root opened
    assert late.content() == histories.replicas[0].content()
    again = made.new()
    again.apply(histories.replicas[1].changes_since())
    again.apply(histories.replicas[0].changes_since(again.state()))
    assert again.digest() in digests


@pytest.mark.parametrize("seed", range(10))
def test_merged_update_is_equivalent(made: Engine, seed: int) -> None:
    histories = networks.Histories(random.Random(seed), made=made)
    histories.run(20)
    once = made.new()
    once.apply(made.merge([message.update for message in histories.messages]))
    assert once.digest() == histories.replicas[0].digest()


def test_transaction_reports_one_update_and_its_origin(made: Engine) -> None:
    doc, told = made.new(), []
    doc.observe(lambda update, origin: told.append(origin))
    text = doc.root("text", "text")
    with doc.transaction("outer"), doc.transaction("inner"):
        text.insert(0, "a")
        text.insert(1, "b")
    with doc.transaction("nothing"):
        pass
    assert told == ["outer"]


def test_known_update_reports_nothing(made: Engine) -> None:
    doc, other, told = made.new(), made.new(), []
    doc.root("text", "text").insert(0, "a")
    other.apply(doc.changes_since())
    other.observe(lambda update, origin: told.append(origin))
    other.apply(doc.changes_since())
    assert told == []


def test_apply_inside_a_transaction_raises(made: Engine) -> None:
    doc, other = made.new(), made.new()
    doc.root("text", "text").insert(0, "a")
    with other.transaction(), pytest.raises(RuntimeError):
        other.apply(doc.changes_since())
    other.apply(doc.changes_since())
    assert str(other.root("text", "text")) == "a"


def test_root_has_one_type(made: Engine) -> None:
    doc = made.new()
    doc.root("a", "text")
    with pytest.raises(TypeError, match="root 'a' was opened as text, not map"):
        doc.root("a", "map")


# Digests


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["why"] for vector in VECTORS])
def test_document_of_a_test_vector_has_its_digest(made: Engine, vector: dict[str, Any]) -> None:
    doc, other = made.new(), made.new()
    for name, value in vector["content"].items():
        node = doc.root(name, "text" if isinstance(value, str) else "array" if isinstance(value, list) else "map")
        fill(node, value)
    assert doc.digest().hex() == vector["digest"]
    other.apply(doc.changes_since())
    assert other.digest().hex() == vector["digest"]


def fill(node: Any, value: Any) -> None:
    if isinstance(value, str):
        node.insert(0, value)
    elif isinstance(value, list):
        node.insert(0, [special(item) for item in value])
    else:
        for key, item in value.items():
            node.set(key, special(item))


def special(value: Any) -> Any:
    """Decode what JSON lacks: {"$bytes": hex}, {"$number": "NaN"}, {"$int": digits}, {"$text": nested} ..."""
    if isinstance(value, list):
        return [special(item) for item in value]
    if not isinstance(value, dict):
        return value
    match next(iter(value.items()), None):
        case ("$bytes", digits):
            return bytes.fromhex(digits)
        case ("$number", word):
            return float(word)
        case ("$int", digits):
            return int(digits)
        case ("$text", text):
            return Prelim("text", text)
        case ("$array", items):
            return Prelim("array", [special(item) for item in items])
        case ("$map", items):
            return Prelim("map", {key: special(item) for key, item in items.items()})
    return {key: special(item) for key, item in value.items()}


def test_different_content_has_different_digests() -> None:
    contents: list[dict[str, Any]] = [
        {},
        {"a": "x"},
        {"b": "x"},
        {"a": ["x"]},
        {"a": {"x": None}},
        {"a": [1]},
        {"a": [True]},
        {"a": ["1"]},
        {"a": [b"1"]},
        {"a": [[], 1]},
        {"a": [[1]]},
        {"a": [2**53 + 1]},
        {"a": [2.0**53]},
        {"a": [math.nan]},
        {"a": [math.inf]},
    ]
    assert len({content_digest(content) for content in contents}) == len(contents)
    assert content_digest({"a": [-0.0, 3]}) == content_digest({"a": [0, 3.0]})


def test_digest_is_current(made: Engine) -> None:
    doc = made.new()
    text = doc.root("text", "text")
    empty = doc.digest()
    text.insert(0, "a")
    assert doc.digest() != empty
    text.delete(0, 1)
    assert doc.digest() == empty


# Hostile input


def two(made: Engine, seed: int = 0) -> tuple[networks.Histories, EngineDocument]:
    """Return a history, and a replica with its first half and no open root."""
    histories = networks.Histories(random.Random(seed), made=made)
    histories.run(16)
    half = made.new()
    for message in histories.messages[: len(histories.messages) // 2]:
        half.apply(message.update)
    return histories, half


def as_it_was(made: Engine, histories: networks.Histories, doc: EngineDocument) -> None:
    """Check that the document continues as if nothing had happened."""
    for message in histories.messages[len(histories.messages) // 2 :]:
        doc.apply(message.update)
    assert doc.digest() == histories.replicas[0].digest()
    again = made.new()
    again.apply(doc.changes_since())
    assert again.digest() == doc.digest()


@pytest.mark.slow
@settings(max_examples=300)
@given(st.integers(0, 20), st.integers(0, 2**32), st.booleans())
def test_corrupted_update_is_valid_or_rejected_without_a_trace(seed: int, spoil: int, opened: bool) -> None:
    made = load_engine()
    histories, doc = two(made, seed)
    rng = random.Random(spoil)
    if opened:
        networks.edit(doc, random.Random(0))  # its own edit, and its roots are open
    update = bytearray(
        rng.choice(histories.messages).update if rng.random() < 0.7 else histories.replicas[0].changes_since()
    )
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(update))
        match rng.randrange(5):
            case 0 | 1:
                update[at] = rng.choice([0, 1, 2, 4, 7, 8, 10, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case 2:
                del update[at + 1 :]
            case 3:
                update.insert(at, rng.randrange(256))
            case _:
                update += bytes([rng.randrange(256)])
    digest, state = doc.digest(), yjs_update.read_state(doc.state())
    try:
        doc.apply(bytes(update))
    except ValueError:
        assert doc.digest() == digest
        assert yjs_update.read_state(doc.state()) == state
        if not opened:
            as_it_was(made, histories, doc)
    else:
        assert len(doc.digest()) == 16


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_truncated_update_and_trailing_bytes_are_rejected(made: Engine, cut: int) -> None:
    histories, doc = two(made)
    update = histories.replicas[0].changes_since()
    for bad in (update[:-cut], update + b"\x00" * cut, b""):
        with pytest.raises(ValueError, match="not an update"):
            doc.apply(bad)
    as_it_was(made, histories, doc)


@pytest.mark.parametrize("seed", range(20))
def test_update_before_its_dependencies_is_rejected(made: Engine, seed: int) -> None:
    histories, doc = two(made, seed)
    refused = 0
    for message in reversed(histories.messages[len(histories.messages) // 2 :]):
        fresh = made.new()
        try:
            fresh.apply(message.update)
        except ValueError as error:
            assert "does not connect: missing client" in str(error)  # noqa: PT017
            refused += 1
            assert fresh.content() == {}
    assert refused
    as_it_was(made, histories, doc)


def item(client: int, clock: int, content: bytes, *, origin: tuple[int, int] | None = None) -> bytes:
    """Encode one struct in a group of its own; its kind is the first byte of `content`, 4, 7 or 8."""
    head = yjs_update.uint(1) + yjs_update.uint(client) + yjs_update.uint(clock)
    if origin is None:
        return head + content[:1] + b"\x01\x01t" + content[1:]
    return head + bytes([content[0] | 0x80]) + yjs_update.uint(origin[0]) + yjs_update.uint(origin[1]) + content[1:]


X = b"\x04\x01x"
NESTED = b"\x08\x01" + b"\x75\x01" * 1_000_000 + b"\x7e"
HOSTILE = {
    "two that build on each other": (
        b"\x02" + item(51, 0, X, origin=(50, 0)) + item(50, 0, X, origin=(51, 0)) + b"\x00",
        "items build on each other",
    ),
    "one that builds on itself": (b"\x01" + item(50, 0, X, origin=(50, 0)) + b"\x00", "references itself"),
    "half a character after another": (b"\x01" + item(50, 0, X, origin=(1, 1)) + b"\x00", "half a character"),
    "half a character deleted": (b"\x00\x01\x01\x01\x01\x01", "half a character"),
    "a million lists in lists": (b"\x01" + item(50, 0, NESTED) + b"\x00", "nested more than 32"),
    "a claim of 4,000 million clients": (b"\xff\xff\xff\xff\x0f", "over the limit"),
    "a claim of 2,000 million structs": (b"\x01\xff\xff\xff\xff\x07\x01\x00", "truncated"),
    "a text of a gigabyte": (b"\x01" + item(50, 0, b"\x04\x80\x80\x80\x80\x04") + b"\x00", "truncated"),
    "a client over 53 bits": (b"\x01\x01" + b"\xff" * 9 + b"\x00", "over 53 bits"),
    "not UTF-8": (b"\x01" + item(50, 0, b"\x04\x02\xff\xfe") + b"\x00", "not UTF-8"),
    "half a surrogate pair": (b"\x01" + item(50, 0, b"\x04\x03\xed\xa0\x80") + b"\x00", "not UTF-8"),
    "XML": (b"\x01" + item(50, 0, b"\x07\x03\x01p") + b"\x00", "XML"),
    "a subdocument": (b"\x01" + item(50, 0, b"\x09\x01p\x76\x00") + b"\x00", "subdocument"),
    "nothing at all": (b"\x01" + item(50, 0, b"\x08\x00") + b"\x00", "an empty item"),
    "a deletion of what is not here": (b"\x00\x01\x32\x01\x00\x01", "does not connect"),
    "the same client twice": (b"\x02" + item(50, 0, X) + item(50, 1, X) + b"\x00", "duplicate client"),
}


@pytest.mark.parametrize("how", HOSTILE)
@pytest.mark.parametrize("opened", [True, False])
def test_hostile_update_is_rejected_and_the_document_stays_usable(how: str, opened: bool) -> None:
    made = load_engine("yjs")
    author, doc = made.new(1), made.new(2)
    text = author.root("t", "text")
    text.insert(0, "a😀b")
    doc.apply(author.changes_since())
    mine = doc.root("t", "text") if opened else None
    if mine is not None:
        mine.insert(4 - 1, "!")
    told: list[object] = []
    doc.observe(lambda update, origin: told.append(origin))
    digest = doc.digest()
    update, why = HOSTILE[how]
    with pytest.raises(ValueError, match=why):
        doc.apply(update, "them")
    assert doc.digest() == digest
    assert told == []
    author.apply(doc.changes_since())
    text.insert(1, "é")
    doc.apply(author.changes_since(doc.state()), "us")
    assert doc.digest() == author.digest()
    assert told == ["us"]
    if mine is not None:
        assert str(mine) == "aé😀b!"
        mine.insert(5, "漢")
        assert doc.content() == {"t": "aé😀b!漢"}


def test_after_a_rebuild_roots_stay_valid_and_nested_types_do_not() -> None:
    doc = load_engine("yjs").new(1)
    table = doc.root("table", "map")
    table.set("note", Prelim("text", "é"))
    note = table.get("note")
    undo = doc.undo([table], 0.5, "undo", lambda: 0.0)
    table.set("a", 1)
    with pytest.raises(ValueError, match="build on each other"):
        doc.apply(HOSTILE["two that build on each other"][0])
    with pytest.raises(Broken, match="get this part of it again"):
        note.insert(0, "x")
    table.get("note").insert(0, "x")
    assert doc.content() == {"table": {"note": "xé", "a": 1}}
    assert not undo.can_undo or not undo.undo() or doc.content() == {"table": {"note": "é", "a": 1}}


def test_text_with_array_items_is_read_only() -> None:
    made = load_engine("yjs")
    doc, other = made.new(), made.new()
    text = doc.root("x", "text")
    text.insert(0, "é")
    other.root("x", "array").insert(0, [1, 2])
    doc.apply(other.changes_since())
    assert str(text) == "é"
    assert len(text) == 1
    with pytest.raises(Broken, match="items that are not text"):
        text.insert(1, "x")
    other.apply(doc.changes_since())
    assert other.digest() == doc.digest()


def test_deeply_nested_types_are_read_to_a_limit() -> None:
    """Each level is a struct of its own, so that no parser's depth limit applies."""
    structs = b"".join(b"\x07\x00\x32" + yjs_update.uint(clock - 1) + b"\x00" for clock in range(1, 10_000))
    update = b"\x01" + yjs_update.uint(10_000) + b"\x32\x00" + b"\x07\x01\x01t\x00" + structs + b"\x00"
    doc = load_engine("yjs").new()
    doc.apply(update)
    depth, value = 0, doc.content()["t"]
    while isinstance(value, list):
        depth, value = depth + 1, value[0]
    assert depth == 100
    assert value is None
    doc.root("t", "array").delete(0, 1)
    assert doc.content() == {}


@pytest.mark.parametrize("ends", [True, False])
def test_unreferenced_document_is_garbage_collected(ends: bool) -> None:
    def use() -> list[weakref.ref[Any]]:
        document: Any = load_engine().new()
        text: Any = document.root("body", "text")
        end = document.observe_changes(lambda parts, origin: None)
        document.observe(lambda update, origin: None)
        text.insert(0, "é" * 100)
        if ends:
            end()
        text.cursor(3, False)
        undo = document.undo([text], 0.5, None, lambda: 0.0)
        text.insert(0, "x")
        undo.undo()
        return [weakref.ref(document), weakref.ref(document.doc)]  # the engine's own is what takes the memory

    used = [use() for _ in range(3)]
    gc.collect()
    assert [one() for each in used for one in each] == [None] * 6
