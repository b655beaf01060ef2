"""Ranks, lanes, and the choice within a lane."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.discovery.lanes import ANY, Preference, Suspects, explain, find_lane, lanes, make_preference
from nngkit.discovery.provider import Provider, State
from nngkit.errors import ConfigError, ServiceNotFound


@dataclass(frozen=True)
class Row:
    """Candidate of a test."""

    provider: Provider
    state: State = State.UP
    stale: bool = False


def row(
    number: int,
    *,
    zone: str = "",
    priority: int = 8,
    weight: int = 100,
    tags: frozenset[str] = frozenset(),
    version: str = "",
    state: State = State.UP,
    stale: bool = False,
) -> Row:
    made = Provider(
        "answer",
        f"tcp://10.0.0.{number}:1",
        f"id{number}",
        1,
        zone=zone,
        priority=priority,
        weight=weight,
        tags=tags,
        version=version,
    )
    return Row(made, state, stale)


def ids(rows: list[Row], preference: Preference = ANY) -> list[list[str]]:
    return [[provider.id for provider in lane.providers] for lane in lanes(rows, preference)]


def test_lanes_follow_zones_then_staleness_then_priority() -> None:
    rows = [
        row(1, zone="london", priority=1),
        row(2, zone="ny", priority=9),
        row(3, zone="ny", priority=8),
        row(4, zone="ny", priority=1, stale=True),
        row(5, zone="oslo", priority=1),
        row(6, zone="ny", priority=8),
        row(7, zone="oslo", state=State.DOWN),
        row(8, zone="ny", state=State.DRAINING),
    ]
    assert ids(rows, Preference(("ny", "london"))) == [["id3", "id6"], ["id2"], ["id4"], ["id1"], ["id5"]]
    assert ids(rows) == [["id1", "id5"], ["id3", "id6"], ["id2"], ["id4"]]


@pytest.mark.parametrize(("suspects", "first"), [("last", "id2"), ("near", "id1")])
def test_a_near_suspect_comes_after_a_far_provider_unless_wanted_first(suspects: Suspects, first: str) -> None:
    rows = [row(1, zone="ny", state=State.SUSPECT), row(2, zone="london")]
    assert ids(rows, Preference(("ny",), suspects=suspects))[0] == [first]


def test_tags_and_versions_filter() -> None:
    rows = [
        row(1, version="2.1", tags=frozenset({"gpu", "big"})),
        row(2, version="2"),
        row(3, version="20", tags=frozenset({"gpu"})),
    ]
    assert ids(rows, Preference(version="2")) == [["id1", "id2"]]
    assert ids(rows, Preference(tags=frozenset({"gpu"}))) == [["id1", "id3"]]
    assert ids(rows, Preference(tags=frozenset({"gpu", "big"}), version="2.1")) == [["id1"]]
    wanted = Preference(tags=frozenset({"tpu"}), version="3")
    assert ids(rows, wanted) == []
    told = explain("answer", rows, wanted)
    assert str(told) == "service not found: answer: all 3 providers lack the tag tpu or version 3"
    assert str(explain("answer", rows[:1], wanted)).endswith(": its only provider lacks the tag tpu or version 3")
    assert str(explain("answer", rows, ANY)) == str(ServiceNotFound("answer")) == "service not found: answer"


def test_a_preferred_zone_without_providers_has_no_effect() -> None:
    rows = [row(1, zone="london"), row(2)]
    assert ids(rows, Preference(("atlantis", ""))) == ids(rows)


def test_an_address_appears_once_in_its_best_lane_with_the_newest_epoch() -> None:
    old = row(1)
    new = Row(replace(old.provider, epoch=2))
    assert [lane.providers for lane in lanes([new, old, row(2)])] == [(new.provider, row(2).provider)]
    suspect = replace(old, state=State.SUSPECT)
    assert [lane.providers for lane in lanes([suspect, new])] == [(new.provider,)]


def test_choices_are_in_proportion_to_weight() -> None:
    rng = random.Random(1)
    rows = [row(1, weight=0), row(2, weight=10), row(3, weight=30), row(4, weight=0)]
    lane = find_lane(rows)
    assert lane is not None
    chosen = Counter(lane.choose(rng).id for _ in range(4000))
    assert set(chosen) == {"id2", "id3"}
    assert 2850 < chosen["id3"] < 3150
    idle = find_lane([row(1, weight=0), row(2, weight=0)])
    assert idle is not None
    assert set(Counter(idle.choose(rng).id for _ in range(100))) == {"id1", "id2"}


@pytest.mark.parametrize(
    ("prefer", "tags", "version", "suspects", "what"),
    [
        (["z" * 65], (), "", "last", "prefer"),
        ([1], (), "", "last", "prefer"),
        ([["ny"]], (), "", "last", "prefer"),
        ([str(n) for n in range(17)], (), "", "last", "prefer"),
        ((), ["a\nb"], "", "last", "tags"),
        ((), ["\ud800"], "", "last", "tags"),
        ((), [["a"]], "", "last", "tags"),
        (5, (), "", "last", "prefer"),
        ((), (), "v" * 65, "last", "version"),
        ((), (), "", "first", "suspects"),
    ],
)
def test_an_unusable_preference_is_named(
    prefer: list[str], tags: list[str], version: str, suspects: str, what: str
) -> None:
    with pytest.raises(ConfigError) as told:
        make_preference(prefer, tags, version, suspects)  # type: ignore[arg-type]
    assert told.value.what == what


rows_of_tests = st.lists(
    st.builds(
        row,
        st.integers(1, 20),
        zone=st.sampled_from(["", "ny", "london", "oslo"]),
        priority=st.integers(1, 16),
        weight=st.sampled_from([0, 1, 100, 65535]),
        tags=st.frozensets(st.sampled_from(["gpu", "big"])),
        version=st.sampled_from(["", "2", "2.1", "20"]),
        state=st.sampled_from(State),
        stale=st.booleans(),
    ),
    max_size=20,
)
preferences = st.builds(
    Preference,
    st.lists(st.sampled_from(["", "ny", "london", "atlantis"])).map(tuple),
    st.frozensets(st.sampled_from(["gpu", "big"])),
    st.sampled_from(["", "2"]),
    st.sampled_from(["last", "near"]),
)


@given(rows_of_tests, preferences, st.floats(0, 1, exclude_max=True) | st.just(1 - 2**-53))
def test_every_callable_address_is_in_exactly_one_lane_and_the_first_is_found(
    rows: list[Row], preference: Preference, number: float
) -> None:
    found = lanes(rows, preference)
    addresses = [provider.address for lane in found for provider in lane.providers]
    accepted = [each for each in rows if each.state in (State.UP, State.SUSPECT) and preference.accepts(each.provider)]
    assert sorted(addresses) == sorted({each.provider.address for each in accepted})
    assert [lane.rank for lane in found] == sorted({lane.rank for lane in found})
    first = find_lane(rows, preference)
    assert (first is None) == (not found)
    if first is not None:
        assert (first.rank, first.providers) == (found[0].rank, found[0].providers)

        class Fixed:
            def random(self) -> float:
                return number

        chosen = first.choose(Fixed())
        assert chosen in first.providers
        assert chosen.weight or not any(provider.weight for provider in first.providers)
