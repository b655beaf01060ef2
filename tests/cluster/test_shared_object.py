"""Shared objects: the order of changes, catching up, new hosts, and objects that raise."""

from __future__ import annotations

from random import Random

import pytest

from nngkit.cluster.content import writer
from nngkit.cluster.content.messages import FRAGMENT_LIMIT, Changes, OrderedFragments, Position, encode
from nngkit.cluster.content.part import ClusterDocuments
from nngkit.errors import ConfigError, Full, TooLarge
from tests.cluster.documents_network import Cluster, Log, Node


def made(size: int = 3, **faults: float) -> tuple[Cluster, list[Node]]:
    cluster = Cluster(5, **faults)
    for number in range(size):
        cluster.start(f"n{number}")
        if not cluster.host:
            cluster.elect("n0")
    nodes = list(cluster.nodes.values())
    for node in nodes:
        node.share("x")
    cluster.run(2.0)
    return cluster, nodes


def change(cluster: Cluster, node: Node, data: bytes) -> int:
    number = node.documents.change("x", data, cluster.now)
    node.act()
    return number


def seen(nodes: list[Node]) -> list[list[bytes]]:
    return [node.objects["x"].changes for node in nodes]


@pytest.fixture(autouse=True)
def any_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes of these tests are not numbered."""
    monkeypatch.setattr(Cluster, "check", lambda self, node: None)


def test_all_nodes_apply_all_changes_in_one_order() -> None:
    cluster, nodes = made(4, loss=0.1, gaps=0.1)
    for number in range(60):
        change(cluster, nodes[number % 4], b"%d" % number)
    cluster.run(60.0)
    assert sorted(seen(nodes)[0], key=int) == [b"%d" % number for number in range(60)]
    assert len({tuple(changes) for changes in seen(nodes)}) == 1
    assert all(node.documents.confirmed("x") == 15 for node in nodes)


def test_a_change_is_confirmed_once_it_is_in_the_content_here() -> None:
    cluster, nodes = made()
    number = change(cluster, nodes[2], b"one")
    assert nodes[2].documents.confirmed("x") == number - 1
    assert not nodes[2].objects["x"].changes
    cluster.run(1.0)
    assert nodes[2].documents.confirmed("x") == number
    assert seen(nodes) == [[b"one"]] * 3


def test_a_late_node_takes_the_full_state_and_one_that_was_behind_only_what_is_missing() -> None:
    cluster, nodes = made()
    change(cluster, nodes[0], b"one")
    cluster.run(1.0)
    late = cluster.start("late")
    cluster.run(0.5)
    late.share("x")
    cluster.run(1.0)
    assert late.objects["x"].changes == [b"one"]
    assert late.documents.objects["x"].order.loads == 1
    cluster.gaps = 1.0
    change(cluster, nodes[0], b"two")
    cluster.run(5.0)
    assert late.objects["x"].changes == [b"one", b"two"]
    assert late.documents.objects["x"].order.loads == 1


def test_a_new_host_takes_the_state_of_a_copy_that_is_ahead_of_its_own() -> None:
    cluster, nodes = made()
    cluster.nodes["n2"].heard[nodes[0]] = 1 << 60  # n2 gets no broadcast of the host any more
    change(cluster, nodes[0], b"one")
    cluster.run(0.1)
    assert seen(nodes) == [[b"one"], [b"one"], []]
    cluster.elect("n2")
    cluster.run(3.0)
    assert seen(nodes) == [[b"one"]] * 3


def test_a_confirmed_change_that_the_new_host_has_not_is_sent_again() -> None:
    cluster, nodes = made()
    cluster.cut = frozenset(["n2"])
    change(cluster, nodes[1], b"one")
    cluster.run(0.2)
    assert nodes[1].documents.confirmed("x") == 1
    cluster.elect("n2")
    cluster.run(3.0)
    change(cluster, nodes[2], b"two")
    cluster.run(1.0)
    cluster.cut = frozenset()
    for name in ("n0", "n1"):
        cluster.attach(name)
    cluster.run(10.0)
    assert seen(nodes) == [[b"two", b"one"]] * 3
    assert nodes[1].documents.objects["x"].writer.repeated == 1


def test_changes_wait_for_a_host_that_shares_the_object() -> None:
    cluster = Cluster(5)
    host = cluster.start("n0")
    cluster.elect("n0")
    node = cluster.start("n1")
    node.share("x")
    cluster.run(1.0)
    change(cluster, node, b"one")
    cluster.run(5.0)
    assert node.documents.behind("x")
    host.share("x")
    cluster.run(15.0)
    assert seen([host, node]) == [[b"one"], [b"one"]]
    assert not node.documents.behind("x")


def test_an_object_that_raises_is_reported_and_the_order_goes_on() -> None:
    class Picky(Log):
        def update(self, fragment: bytes) -> None:
            if fragment == b"bad":
                raise ValueError("no")
            super().update(fragment)

    cluster = Cluster(5)
    node = cluster.start("n0")
    cluster.elect("n0")
    node.objects["x"] = Picky()
    node.documents.share("x", node.objects["x"], cluster.now)
    for data in (b"one", b"bad", b"two"):
        change(cluster, node, data)
    cluster.run(2.0)
    assert seen([node]) == [[b"one", b"two"]]
    assert [(one.what, one.why) for one in node.refused] == [("object x", "x: update raised ValueError: no")]
    assert node.documents.objects["x"].order.failures == 1


def test_a_large_state_comes_in_chunks() -> None:
    cluster, nodes = made(2)
    for _ in range(80):
        change(cluster, nodes[1], bytes(FRAGMENT_LIMIT))
        cluster.run(0.1)
    late = cluster.start("late")
    late.share("x")
    cluster.run(10.0)
    assert late.objects["x"].changes == [bytes(FRAGMENT_LIMIT)] * 80
    assert late.documents.objects["x"].order.loads == 1


def test_request_full_loads_the_state_again() -> None:
    cluster, nodes = made(2)
    change(cluster, nodes[1], b"one")
    cluster.run(1.0)
    nodes[1].objects["x"].changes.append(b"damage")
    nodes[1].documents.request_full("x", cluster.now)
    nodes[1].act()
    cluster.run(2.0)
    assert seen(nodes) == [[b"one"]] * 2


def test_only_the_host_of_the_term_gives_the_order() -> None:
    cluster, nodes = made()
    forged = OrderedFragments("x", Position(1, 1, 1), None, ())
    nodes[2].documents.received("n1", nodes[1].epoch, encode(forged), cluster.now)
    nodes[2].act()
    assert [one.why for one in nodes[2].refused] == ["n0 is the host of term 1"]


def test_changes_of_an_earlier_reign_are_ignored() -> None:
    cluster, nodes = made()
    old = Changes("x", Position(0, 1, 0), 9, 0, 1, (b"old",))
    nodes[0].documents.unicast("n1", encode(old), cluster.now)
    nodes[0].act()
    cluster.run(1.0)
    assert seen(nodes) == [[]] * 3


def test_limits() -> None:
    documents = ClusterDocuments("n", 1, now=0.0, rng=Random(1))
    documents.share("x", Log(), 0.0)
    with pytest.raises(TooLarge):
        documents.change("x", bytes(FRAGMENT_LIMIT + 1), 0.0)
    with pytest.raises(ConfigError):
        documents.share("x", Log(), 0.0)
    for _ in range(63):
        documents.change("x", bytes(FRAGMENT_LIMIT), 0.0)
    with pytest.raises(Full):
        documents.change("x", bytes(FRAGMENT_LIMIT), 0.0)
    with pytest.raises(KeyError):
        documents.change("y", b"", 0.0)
    assert documents.objects["x"].writer.written == 63  # 16 MiB with 64 bytes for each


def test_a_host_goes_on_although_it_does_not_keep_some_changes_that_were_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "KEPT_CHANGES", 2)
    cluster, nodes = made(1)
    shared = nodes[0].documents.objects["x"]
    for number in range(5):
        change(cluster, nodes[0], b"%d" % number)
    cluster.run(1.0)
    shared.writer.confirm(0)  # its content was replaced by one without them
    assert (shared.writer.lost, shared.writer.repeated) == (3, 2)
    cluster.elect("n0")
    cluster.run(1.0)
    assert seen(nodes) == [[b"0", b"1", b"2", b"3", b"4", b"3", b"4"]]
    assert shared.confirmed == 5
