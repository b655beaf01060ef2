"""Layers and the picture of a graph, without Spark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nngkit.spark.analytics.graph import Edge, graph, layers

NODES = st.sampled_from("abcdefgh")
EDGES = st.lists(st.builds(Edge, NODES, NODES, st.sampled_from(["calls", "publishes"]), st.integers(1, 10**9)))


@given(EDGES)
def test_edges_go_to_the_right_but_for_those_that_close_a_cycle(edges: list[Edge]) -> None:
    found, back = layers(edges)
    place = {node: number for number, nodes in enumerate(found) for node in nodes}
    assert sorted(node for nodes in found for node in nodes) == sorted({n for e in edges for n in (e.source, e.target)})
    for edge in edges:
        if (edge.source, edge.target) not in back:
            assert place[edge.source] < place[edge.target]
    # Each of them closes a cycle: there is a way from its target to its source.
    after: dict[str, set[str]] = {}
    for edge in edges:
        after.setdefault(edge.source, set()).add(edge.target)
    for source, target in back:
        reached, waiting = {target}, [target]
        while waiting:
            more = after.get(waiting.pop(), set()) - reached
            reached |= more
            waiting += more
        assert source in reached


@given(EDGES)
def test_picture_has_each_edge_and_each_node_once(edges: list[Edge]) -> None:
    text = graph(edges)
    assert (text.count("<path"), text.count('class="node"')) == (
        len(edges),
        len({node for edge in edges for node in (edge.source, edge.target)}),
    )
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)


def test_neighbours_stand_at_the_same_height() -> None:
    edges = [Edge(f"source {n}", f"target {(7 * n) % 10}", "calls", 1) for n in range(10)]
    (sources, targets), back = layers(edges)
    assert back == set()
    places = [targets.index(f"target {(7 * int(node.split()[1])) % 10}") for node in sources]
    assert all(one < other for one, other in pairwise(places))


def test_names_are_escaped() -> None:
    assert "<b>" not in graph([Edge("<b>", "x", "calls", 1)])
