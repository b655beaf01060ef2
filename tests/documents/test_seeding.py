"""Initial content: any number of peers may put it in at once, and it is there once."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.documents import Array, Document, DocumentPeer, Map, Text
from nngkit.errors import ConfigError, NngkitError
from nngkit.testing import aeventually

HERE = "tcp://127.0.0.1:0"
TEMPLATE = {
    "body": "Agenda 😀\n",
    "meta": {"title": "Minutes", "tags": ["a", {"z": 1, "b": 2}], "notes": {"by": None}},
    "rows": [{"x": 1.5}, 2**60, b"bytes", True],
}


def shared() -> dict[str, Any]:
    """Return content with nested shared types, which can be in one document only."""
    return {"rows": [Map({"name": Text("Ada"), "done": False, "more": Array([1, Map({"q": 2, "a": 1})])}), Text("é")]}


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 2) | st.floats(allow_nan=False) | words | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
contents = st.dictionaries(
    words.filter(bool), words | st.dictionaries(words, plain, max_size=4) | st.lists(plain, max_size=4), max_size=4
)


def exchanged(documents: list[Document], rng: random.Random) -> None:
    """Give every document the content of every other one, in any order."""
    for _ in range(2):
        pairs = [(one, other) for one in documents for other in documents if one is not other]
        rng.shuffle(pairs)
        for one, other in pairs:
            one.merge(other.engine.changes_since(), None)


@pytest.mark.slow
@given(contents, st.integers(2, 6), st.randoms(use_true_random=False))
def test_any_number_of_peers_that_seed_equal_content_have_it_once(
    content: dict[str, Any], count: int, rng: random.Random
) -> None:
    documents = [Document("minutes") for _ in range(count)]
    before = Document("minutes")
    before.seed(content)
    for document in documents:
        assert document.seed(content)
    for document in rng.sample(documents, rng.randrange(count)):
        document.text("edited since").append(f"by {document.client_id}")
    edited = sum(len(str(document.text("edited since"))) for document in documents)
    exchanged(documents, rng)
    for document in documents:
        assert document.digest() == documents[0].digest()
        rest = document.plain()
        assert len(rest.pop("edited since", "")) == edited
        assert rest == before.plain()


def test_seed_is_the_content_that_was_given() -> None:
    document = Document("minutes")
    assert document.seed(TEMPLATE)
    assert document.plain() == TEMPLATE
    other = Document("minutes")
    assert other.seed(shared())
    assert other.plain() == {
        "rows": [{"name": "Ada", "done": False, "more": [1, {"q": 2, "a": 1}]}, "é"],
    }
    other.array("rows")[0]["name"].insert(3, " Lovelace")
    assert other.plain()["rows"][0]["name"] == "Ada Lovelace"


def test_seed_of_nested_types_is_there_once_and_can_be_edited_at_both() -> None:
    one, other = Document("minutes"), Document("minutes")
    one.seed(shared())
    other.seed(shared())
    one.array("rows")[0]["name"].insert(0, "1")
    other.array("rows")[0]["more"][1]["a"] = 9
    exchanged([one, other], random.Random(1))
    assert one.digest() == other.digest()
    assert one.plain() == {"rows": [{"name": "1Ada", "done": False, "more": [1, {"q": 2, "a": 9}]}, "é"]}


def test_document_with_an_edit_is_not_seeded() -> None:
    document = Document("minutes")
    document.text("body").append("x")
    document.text("body").delete(0, 1)
    assert not document.seed(TEMPLATE)
    assert document.plain() == {}
    seeded = Document("minutes")
    assert seeded.seed(TEMPLATE)
    assert not seeded.seed(TEMPLATE)
    assert seeded.plain() == TEMPLATE


def test_different_contents_are_all_there() -> None:
    one, other = Document("minutes"), Document("minutes")
    one.seed({"body": "one"})
    other.seed({"body": "two"})
    exchanged([one, other], random.Random(1))
    assert str(one.text("body")) == str(other.text("body"))
    assert str(one.text("body")) in ("onetwo", "twoone")


def test_types_of_nested_parts_are_part_of_the_content() -> None:
    one, other = Document("minutes"), Document("minutes")
    one.seed({"map": {"key": "value"}})
    other.seed({"map": {"key": Text("value")}})
    exchanged([one, other], random.Random(1))
    assert one.digest() == other.digest()
    assert one.plain() == {"map": {"key": "value"}}


def test_seed_is_not_undone() -> None:
    document = Document("minutes")
    undo = document.undo(document.text("body"))
    document.seed({"body": "seed"})
    document.text("body").append("!")
    undo.undo()
    assert not undo.can_undo
    assert str(document.text("body")) == "seed"


def test_content_of_another_kind_and_read_only_documents_are_rejected() -> None:
    with pytest.raises(TypeError, match="root 'body': int"):
        Document("minutes").seed({"body": 1})
    with pytest.raises(ValueError, match="lone surrogate"):
        Document("minutes").seed({"body": "\ud83d"})
    with pytest.raises(ConfigError, match="read-only"):
        Document("minutes", read_only=True).seed({})
    used = Text("x")
    document = Document("minutes")
    document.map("map")["text"] = used
    with pytest.raises(NngkitError, match="in a document already"):
        Document("minutes").seed({"map": {"text": document.map("map")["text"]}})


@pytest.mark.slow
def test_seed_does_not_depend_on_the_hash_seed_of_the_process() -> None:
    here = Document("minutes")
    here.seed(TEMPLATE)
    program = (
        "import sys; from nngkit.documents import Document; from tests.documents.test_seeding import TEMPLATE\n"
        "document = Document('minutes'); document.seed(TEMPLATE)\n"
        "sys.stdout.buffer.write(document.engine.changes_since())"
    )
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=30).stdout
    here.merge(there, None)
    assert here.plain() == TEMPLATE


async def test_peers_that_seed_before_they_meet_converge_to_one_copy() -> None:
    async with DocumentPeer(listen=HERE) as a, DocumentPeer(listen=HERE) as b, DocumentPeer(listen=HERE) as c:
        documents = [peer.open("minutes") for peer in (a, b, c)]
        for document in documents:
            document.seed(TEMPLATE)
        documents[2].text("body").append("1. Coffee\n")
        b.dial(a.address)
        c.dial(a.address)
        c.dial(b.address)
        wanted = TEMPLATE | {"body": "Agenda 😀\n1. Coffee\n"}
        await aeventually(lambda: all(document.plain() == wanted for document in documents))
        assert (a.refusals, b.refusals, c.refusals) == ((), (), ())
