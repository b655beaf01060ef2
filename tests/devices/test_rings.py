"""Rings of devices by their addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.devices.rings import Place, find_ring

A, B, C = (f"tcp://127.0.0.1:{port}" for port in (1, 2, 3))


@pytest.mark.parametrize("both_ways", [False, True])
def test_a_row_is_no_ring(both_ways: bool) -> None:
    row = [
        Place(front_listens=(A,), back_listens=(B,), both_ways=both_ways),
        Place(front_dials=(B,), back_listens=(C,), both_ways=both_ways),
        Place(front_dials=(C,), both_ways=both_ways),
    ]
    assert find_ring(row) is None


@pytest.mark.parametrize("both_ways", [False, True])
def test_a_ring_is_found_with_its_devices_in_order(both_ways: bool) -> None:
    ring = [
        Place(front_listens=(A,), back_listens=(B,), both_ways=both_ways),
        Place(front_dials=("tcp://10.0.0.1:9",), back_listens=("tcp://10.0.0.1:8",), both_ways=both_ways),
        Place(front_dials=(B,), back_dials=(A,), both_ways=both_ways),
    ]
    assert find_ring(ring) == [0, 2]


@pytest.mark.parametrize(
    ("listens", "dials"),
    [
        ("tcp://0.0.0.0:1", "tcp://localhost:1"),
        ("tcp://127.0.0.1:1", "tcp4://localhost:1"),
        ("tcp6://[::]:1", "tcp://[::1]:1"),
        ("ipc:///tmp/a", "unix:///tmp/a"),
        ("inproc://a", "inproc://a"),
        ("ws://0.0.0.0:1/a", "ws://127.0.0.1:1/a"),
    ],
)
def test_a_device_that_dials_itself_is_a_ring(listens: str, dials: str) -> None:
    assert find_ring([Place(front_listens=(listens,), back_dials=(dials,))]) == [0]


@pytest.mark.parametrize(
    ("listens", "dials"),
    [
        ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2"),
        ("tcp://0.0.0.0:1", "tcp://far.example:1"),
        ("tcp://127.0.0.1:1", "ws://127.0.0.1:1"),
        ("ws://127.0.0.1:1/a", "ws://127.0.0.1:1/b"),
        ("ipc:///tmp/a", "inproc:///tmp/a"),
    ],
)
def test_other_addresses_are_not_its_own(listens: str, dials: str) -> None:
    assert find_ring([Place(front_listens=(listens,), back_dials=(dials,))]) is None


def test_two_reflectors_are_a_ring_only_if_they_pass_messages_on_to_third_parties() -> None:
    hub = Place(front_listens=(A,), back_listens=(A,), both_ways=True, reflects="others")
    other = Place(front_dials=(A,), back_dials=(A,), both_ways=True, reflects="others")
    third = Place(front_dials=(A,), front_listens=(B,), back_dials=(A,), both_ways=True, reflects="others")
    last = Place(front_dials=(A, B), back_dials=(A, B), both_ways=True, reflects="others")
    assert find_ring([hub]) is None
    assert find_ring([hub, third, last]) is not None
    assert find_ring([other]) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
def test_one_way_devices_form_a_ring_exactly_if_their_graph_has_a_cycle(edges: list[tuple[int, int]]) -> None:
    """Each device pulls from node `a` and pushes to node `b`; a node is an address where the others meet."""
    places = [
        Place(
            front_listens=(f"inproc://{index}",),
            back_dials=tuple(f"inproc://{other}" for other, (start, _) in enumerate(edges) if start == end),
        )
        for index, (_, end) in enumerate(edges)
    ]
    following = {i: [j for j, (start, _) in enumerate(edges) if start == end] for i, (_, end) in enumerate(edges)}
    reached = {i: set(following[i]) for i in following}
    for _ in edges:
        for ends in reached.values():
            ends |= {k for j in list(ends) for k in following[j]}
    assert (find_ring(places) is not None) == any(i in reached[i] for i in reached)
