"""Documents in a cluster: random histories of many nodes, and what each of them relies on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from nngkit import envelope
from nngkit.cluster.content.copy import origin_of
from nngkit.cluster.content.holders import Holders
from nngkit.cluster.content.messages import (
    BODY_LIMIT,
    START,
    Behind,
    Changes,
    Chunk,
    ChunkRequest,
    Closing,
    Document,
    Entry,
    Fragment,
    FragmentPart,
    FragmentRequest,
    Fragments,
    FullDocumentRequest,
    FullObject,
    FullObjectRequest,
    Gather,
    Heartbeat,
    Message,
    MissingFragments,
    NotOpen,
    ObjectPosition,
    Offer,
    Opened,
    OrderedFragments,
    Partner,
    Position,
    Positions,
    Presence,
    Run,
    decode,
    encode,
    pack,
    parse,
)
from nngkit.cluster.content.part import ClusterDocuments
from nngkit.cluster.log_clock import NEVER
from nngkit.cluster.shell.document import ClusterDocument
from nngkit.documents.document import Document as NngkitDocument
from nngkit.documents.sync import wire
from nngkit.documents.sync.messages import Updates
from nngkit.documents.versions import Edit, EditStream
from nngkit.errors import BadMessage, ConfigError, NngkitError
from tests.cluster.documents_network import Cluster, history

HISTORIES = int(os.environ.get("NNGKIT_HISTORIES", "4"))
STREAM = EditStream(origin_of("a"), 7)
AT = Position(2, 10, 3)
RUN = Run("x", Position(2, 10, 0), Position(1, 5, 9), (Entry("a", 7, 1, b"one"),))
WIRE: Final = json.loads((Path(__file__).parent / "content_wire_of_0_1.json").read_text())["messages"]
MESSAGES: list[Message] = [
    Fragment("d", b"content"),
    FragmentPart("d", STREAM, 3, 1, 2, {STREAM: 2}, b"data"),
    Presence("d", b"content"),
    Opened("d", "parent", "", True),
    Partner("d", "b", 3),
    Closing("d"),
    Heartbeat("d", b"content", True),
    FullDocumentRequest(1, "d", b"content"),
    FragmentRequest(1, "d", b"content"),
    Document(1, "d", b"content"),
    Fragments(1, "d", b"content"),
    NotOpen(1, "d"),
    ChunkRequest(bytes(16), 4),
    Chunk(bytes(16), 4, b"data"),
    Changes("x", AT, 7, 3, 4, (b"one", b"two")),
    Behind("x", 7, 3),
    OrderedFragments(RUN.name, RUN.first, RUN.base, RUN.entries),
    FullObjectRequest(1, "x", START),
    MissingFragments(1, "x", AT, (RUN,)),
    FullObject(1, "x", AT, b"content"),
    Gather("x", 2, 10, START),
    Offer("x", AT),
    Positions((ObjectPosition("x", AT), ObjectPosition("y", START))),
]
BROKEN_ONCE = [  # seeds as they were numbered then; the choices of a history depend on the number of messages
    16,  # edits that depend on those of a crashed node, which reached no living one, were held forever
    99,  # a node that had opened the document again was still known by its earlier stream
    115,  # as 16: the copy was never quiet, so its partner could not compare
    20074,  # a late reply to an earlier opening, with what was missing then, was taken by the next, empty one
]


class RealCluster(Cluster):
    """A cluster whose documents are those of nngkit.documents."""

    def open_document(self, documents: ClusterDocuments, name: str, me: EditStream) -> ClusterDocument:
        return ClusterDocument(documents, name, me, lambda: self.now)


def real(size: int, **faults: float) -> tuple[RealCluster, list[NngkitDocument]]:
    cluster = RealCluster(1, **faults)
    names = [f"n{number}" for number in range(size)]
    for name in names:
        cluster.start(name)
        if not cluster.host:
            cluster.elect(name)
    cluster.run(1.0)
    documents = [cluster.nodes[name].documents.open("minutes", cluster.now) for name in names]
    act(cluster)
    return cluster, documents


def act(cluster: Cluster, seconds: float = 0.0) -> None:
    for node in cluster.nodes.values():
        node.act()
    cluster.run(seconds)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_copies_are_equal_after_a_random_history(seed: int) -> None:
    history(100_000 + seed)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_copies_are_equal_though_the_clocks_of_restarted_nodes_went_back(seed: int) -> None:
    history(200_000 + seed, clocks_back=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", BROKEN_ONCE)
def test_histories_that_were_broken_once(seed: int) -> None:
    history(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1, 1001, 20))
def test_copies_are_equal_after_many_random_histories(start: int) -> None:
    for seed in range(start * 1000, start * 1000 + 20):
        history(seed)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_each_message_is_decoded_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


def test_bytes_of_version_0_1_are_read_and_written() -> None:
    messages = [decode(bytes.fromhex(data)) for _, data in WIRE]
    assert messages == MESSAGES
    assert [[type(message).__name__, encode(message).hex()] for message in messages if message is not None] == WIRE


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_items_of_a_later_version_are_ignored(message: Message) -> None:
    def later(value: Any) -> Any:
        """Return a row with one more item, and so each row in it."""
        if type(value) is not list or not value or type(value[0]) is bytes:  # a stream or a version, or a column
            return value
        items = [later(item) for item in value]
        return items if type(value[0]) is list else [*items, "later"]

    assert parse(later(pack(message))) == message


def test_mutilated_messages_are_refused_or_decoded() -> None:
    rng = Random(1)
    documents = ClusterDocuments("n", 1, now=0.0, rng=Random(1))
    documents.lead(1, 0.0)
    for _ in range(2000):
        body = bytearray(encode(rng.choice(MESSAGES)))
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        with suppress(NngkitError):
            decode(bytes(body))
        documents.unicast("peer", bytes(body), 0.0)
        documents.received("peer", 1, bytes(body), 0.0)
    assert documents.count["refused"] > 1000
    assert len(documents.take(0.0).events) <= 100


def test_a_node_without_a_host_knows_of_none_and_counts_what_it_cannot_send() -> None:
    documents = ClusterDocuments("n", 1, now=0.0, rng=Random(1))
    assert (documents.term, documents.host, documents.leading, documents.wake_at) == (0, None, False, NEVER)
    documents.open("d", 0.0)
    documents.close("d")
    effects = documents.take(0.0)
    assert (effects.sends, documents.count["lost"], documents.count["sends"]) == ([], 1, 0)


def test_an_unknown_kind_is_counted_and_not_refused() -> None:
    documents = ClusterDocuments("n", 1, now=0.0, rng=Random(1))
    documents.unicast("peer", envelope.encode([999, "of a newer version"]), 0.0)
    assert documents.count["unknown"] == 1
    assert not documents.take(0.0).events


def test_a_message_in_the_name_of_another_node_is_refused() -> None:
    cluster, _ = real(2)
    cluster.run(1.0)
    node = cluster.nodes["n1"].documents
    part = FragmentPart("minutes", EditStream(origin_of("n0"), 5), 1, 0, 1, {}, b"")
    node.received("n2", 1, encode(part), cluster.now)
    (event,) = node.take(cluster.now).events
    assert (event.node, event.what) == ("n2", "document minutes")


@pytest.mark.parametrize("body", [[4], "text", [0, "../x", b""], [22, "x", [1, 1, 0], None, []], [True, "x"]])
def test_invalid_messages(body: object) -> None:
    with pytest.raises(BadMessage):
        decode(envelope.encode(body))


def test_partners_lead_to_one_node() -> None:
    holders = Holders("host")
    assert holders.opened("d", "c", 0.0, parent="b", avoid="") == ("c", 1)
    assert holders.opened("d", "b", 0.0, parent="host", avoid="") == ("c", 2)
    assert holders.opened("d", "e", 0.0, parent="b", avoid="") == ("b", 3)
    assert holders.opened("d", "e", 0.0, parent="b", avoid="b") == ("c", 3)
    assert holders.opened("d", "host", 0.0, parent="", avoid="") == ("host", 4)
    assert holders.opened("d", "c", 0.0, parent="b", avoid="b") == ("host", 4)
    assert Holders("h").opened("d", "c", 0.0, parent="", avoid="") == ("c", 1)
    holders.closed("d", "host")
    # the first has no partner, so there is no ring
    assert holders.opened("d", "c", 0.0, parent="b", avoid="") == ("c", 3)
    holders.node_removed("c")
    assert holders.of("d") == ("b", "e")


def test_holders_beyond_the_cap_are_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.cluster.content.holders.MOST_ENTRIES", 2)
    holders = Holders("host", 0.0)
    for name, node in (("d", "a"), ("d", "b")):
        assert holders.opened(name, node, 1.0, parent="", avoid="") is not None
    for number, (name, node) in enumerate((("d", "c"), ("e", "a"))):
        assert holders.opened(name, node, 1.0, parent="", avoid="") is None
        assert (holders.refused, holders.of(name)) == (number + 1, ("a", "b") if name == "d" else ())


def test_a_new_host_names_no_partner_before_all_have_told_it_of_their_documents() -> None:
    holders = Holders("host", 1.5, known=["own"])
    assert holders.opened("own", "host", 0.0, parent="", avoid="") == ("host", 1)
    assert holders.opened("own", "b", 0.1, parent="host", avoid="") == ("host", 2)
    assert holders.wake_at == float("inf")
    assert holders.opened("d", "new", 0.1, parent="b", avoid="") is None
    assert holders.opened("d", "gone", 0.2, parent="b", avoid="") is None
    assert holders.opened("d", "b", 0.3, parent="host", avoid="", filled=True) is None
    assert holders.opened("d", "closing", 0.3, parent="host", avoid="") is None
    holders.node_removed("gone")
    holders.closed("d", "closing")
    assert (holders.wake_at, holders.decide(1.4)) == (1.5, [])
    assert holders.decide(1.5) == [("d", "new", "b", 2), ("d", "b", "b", 2)]
    assert (holders.wake_at, holders.decide(1.6)) == (float("inf"), [])
    assert holders.opened("e", "b", 1.6, parent="host", avoid="") == ("b", 1)


def test_documents_of_nngkit_are_edited_at_all_nodes() -> None:
    cluster, documents = real(5, gaps=0.1, loss=0.1)
    for number, document in enumerate(documents):
        document.text("body").insert(0, f"{number} says é😀. ")
        document.map("meta")[str(number)] = number
    act(cluster, 60.0)
    assert len({document.digest() for document in documents}) == 1
    assert all(f"{number} says é😀. " in str(documents[0].text("body")) for number in range(5))
    assert dict(documents[4].map("meta")) == {str(number): number for number in range(5)}


def test_a_node_that_opens_a_document_gets_the_full_one() -> None:
    cluster, documents = real(3)
    documents[2].text("body").insert(0, "hello")
    act(cluster, 1.0)
    late = cluster.start("late")
    cluster.run(0.5)
    opened = late.documents.open("minutes", cluster.now)
    since = cluster.now
    act(cluster, 1.0)
    assert str(opened.text("body")) == "hello"
    assert late.documents.joined_since("minutes", since)


@pytest.mark.slow
def test_a_large_edit_is_broadcast_in_parts_and_a_large_document_comes_in_chunks() -> None:
    cluster, documents = real(3)
    cluster.run(1.0)
    documents[1].text("body").insert(0, "x" * (16 << 20))
    act(cluster, 3.0)
    assert [len(document.text("body")) for document in documents] == [16 << 20] * 3
    assert not any(node.documents.count["sends"] > 100 for node in cluster.nodes.values())  # no chunk was requested
    late = cluster.start("late")
    cluster.run(0.5)
    cluster.loss = 0.05
    opened = late.documents.open("minutes", cluster.now)
    act(cluster, 20.0)
    assert len(opened.text("body")) == 16 << 20
    assert max(len(body) for node in cluster.nodes.values() for body in node.broadcasts) < BODY_LIMIT


def test_an_edit_whose_dependencies_died_with_their_node_is_dropped() -> None:
    cluster, documents = real(2)
    cluster.run(1.0)
    node = cluster.nodes["n1"]
    late = Updates(EditStream(origin_of("dead"), 5), "minutes", 2, (Edit(b"needs the first", {}),))
    node.documents.received("dead", 5, encode(Fragment("minutes", wire.encode(late))), cluster.now)
    act(cluster)
    replica = node.documents.copy("minutes").replica
    assert (replica.held, replica.missing) == (1, 1)
    act(cluster, 60.0)
    assert (replica.held, replica.missing) == (0, 0)
    documents[0].text("body").insert(0, "hello")
    act(cluster, 1.0)
    assert str(documents[1].text("body")) == "hello"


def test_awareness_states_reach_other_nodes_and_leave_with_theirs() -> None:
    cluster, documents = real(3)
    documents[2].awareness.local = {"user": "Ada"}
    act(cluster, 1.0)
    assert [list(one.awareness.states.values()) for one in documents] == [[{"user": "Ada"}]] * 3
    cluster.crash("n2")
    cluster.run(3.0)
    assert [one.awareness.states for one in documents[:2]] == [{}, {}]


def test_host_keeps_a_document_that_it_accepts() -> None:
    cluster = Cluster(3)
    cluster.start("host", accept=True)
    cluster.elect("host")
    node = cluster.start("n1")
    cluster.run(0.5)
    node.documents.open("a", cluster.now).edit(cluster.now)
    act(cluster, 1.0)
    node.documents.close("a")
    act(cluster, 1.0)
    assert len(node.documents.open("a", cluster.now).content.names) == 0
    act(cluster, 1.0)
    assert len(node.documents.documents["a"].content.names) == 1


async def test_what_needs_a_disk_raises_config_error() -> None:
    _, (document,) = real(1)
    for wait in (document.durable(), document.synced(), document.save_version("v1")):
        with pytest.raises(ConfigError, match="in memory"):
            await wait
    with pytest.raises(ConfigError, match="in memory"):
        document.saved_versions()


def test_no_engine_is_loaded_before_a_document_is_opened() -> None:
    program = (
        "import sys; from random import Random; from nngkit.cluster.content.part import ClusterDocuments as D\n"
        "d = D('n', 1, now=0.0, rng=Random(1)); assert 'pycrdt' not in sys.modules\n"
        "sys.modules['pycrdt'] = None\n"
        "from nngkit.errors import ConfigError\n"
        "try: d.open('minutes')\n"
        "except ConfigError as error: print(error); assert d.documents == {}\n"
        "else: raise SystemExit('it was opened')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "documents" in done.stdout
