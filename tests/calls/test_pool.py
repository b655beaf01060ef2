"""The pool of providers: lanes with failover and failback, ejection, policies, subsets. No clock and no socket."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nngkit.calls.health import Ejection, Health
from nngkit.calls.pool import Member, Policy, Pool, check_policy
from nngkit.discovery.lanes import Preference
from nngkit.discovery.provider import Provider, State
from nngkit.errors import ConfigError

UP, SUSPECT, DRAINING, DOWN = State.UP, State.SUSPECT, State.DRAINING, State.DOWN


def provider(number: int, epoch: int = 1, **fields: Any) -> Provider:
    return Provider("answer", f"tcp://10.0.0.{number}:1", f"id{number}", epoch, **fields)


def pool(*providers: Provider, connected: bool = True, **options: Any) -> Pool:
    made = Pool(rng=random.Random(1), **options)
    for each in providers:
        member = made.apply(each, UP)
        if member is not None and connected:
            made.connected(member, True)
    return made


def ids(pool: Pool, now: float, count: int = 60) -> set[str]:
    found = (pool.choose(now) for _ in range(count))
    return {member.provider.id for member in found if member is not None}


def member(pool: Pool, number: int) -> Member:
    return pool.members["answer", f"tcp://10.0.0.{number}:1"]


def end(pool: Pool, one: Member, outcome: Any, now: float, seconds: float = 0.001) -> bool:
    pool.begin(one)
    return pool.end(one, outcome, seconds, now)


NY, LONDON = provider(1, zone="ny"), provider(2, zone="london")


def test_calls_go_to_the_first_lane_fail_over_at_once_and_back_after_a_while() -> None:
    there = pool(NY, LONDON, preference=Preference(("ny", "london")), failback=2.0)
    assert ids(there, 0.0) == {"id1"}
    there.connected(member(there, 1), False)
    assert ids(there, 1.0) == {"id2"}
    there.connected(member(there, 1), True)
    assert ids(there, 1.0) == ids(there, 2.9) == {"id2"}
    there.connected(member(there, 1), False)  # it flaps: the time starts again
    assert ids(there, 2.95) == {"id2"}
    there.connected(member(there, 1), True)
    assert ids(there, 3.0) == ids(there, 4.9) == {"id2"}
    assert ids(there, 5.0) == {"id1"}
    assert (there.failovers, there.failbacks) == (1, 1)


def test_a_better_lane_that_was_never_left_is_used_as_soon_as_it_is_found() -> None:
    there = pool(LONDON, preference=Preference(("ny", "london")), failback=2.0)
    assert ids(there, 0.0) == {"id2"}
    found = there.apply(NY, UP)
    assert found is not None
    assert ids(there, 0.1) == {"id2"}  # not connected yet
    there.connected(found, True)
    assert ids(there, 0.1) == {"id1"}


def test_the_far_lane_fails_while_the_near_one_is_held_back() -> None:
    there = pool(NY, LONDON, preference=Preference(("ny", "london")), failback=2.0)
    assert ids(there, 0.0) == {"id1"}
    there.connected(member(there, 1), False)
    assert ids(there, 0.5) == {"id2"}
    there.connected(member(there, 1), True)
    assert ids(there, 1.0) == {"id2"}
    there.connected(member(there, 2), False)
    assert ids(there, 1.1) == {"id1"}


def test_a_suspect_that_replied_within_a_second_counts_as_up() -> None:
    there = pool(NY, LONDON, preference=Preference(("ny", "london")))
    end(there, member(there, 1), "reply", 10.0)
    there.apply(NY, SUSPECT)
    assert ids(there, 10.9) == {"id1"}
    assert ids(there, 11.2) == {"id2"}
    there.apply(LONDON, DOWN)
    assert ids(there, 11.3) == {"id1"}  # nothing else is left


def test_draining_and_gone_providers_get_no_calls() -> None:
    there = pool(provider(1), provider(2))
    there.apply(provider(1, draining=True), DRAINING)
    assert ids(there, 0.0) == {"id2"}
    there.apply(provider(2), DOWN)
    assert there.choose(0.0) is None
    there.apply(provider(1), UP)
    assert ids(there, 0.0) == {"id1"}


def test_a_provider_that_fails_is_ejected_and_comes_back_gradually() -> None:
    there = pool(provider(1), provider(2), ejection=Ejection(failures=3, shortest=1.0, ramp=10.0))
    bad = member(there, 1)
    assert [end(there, bad, "timeout", 0.0) for _ in range(3)] == [False, False, True]
    assert ids(there, 0.5) == {"id2"}
    chosen = Counter(there.choose(2.0).provider.id for _ in range(2000))  # type: ignore[union-attr]
    assert 40 < chosen["id1"] < 180  # a tenth of its half
    chosen = Counter(there.choose(12.0).provider.id for _ in range(2000))  # type: ignore[union-attr]
    assert 900 < chosen["id1"] < 1100
    there.choose(2.0)


def test_one_failure_while_returning_ejects_again_for_twice_as_long() -> None:
    there = pool(provider(1), provider(2), ejection=Ejection(failures=3, shortest=1.0, ramp=10.0))
    bad = member(there, 1)
    for _ in range(3):
        end(there, bad, "lost", 0.0)
    assert "id1" in ids(there, 6.0)
    assert end(there, bad, "lost", 6.0)
    assert ids(there, 7.9) == {"id2"}
    assert "id1" in ids(there, 13.0, 200)


def test_replies_between_failures_prevent_an_ejection() -> None:
    there = pool(provider(1), provider(2), ejection=Ejection(failures=3))
    one = member(there, 1)
    for outcome in ("lost", "lost", "reply", "timeout", "bad", "refused"):
        assert not end(there, one, outcome, 0.0)
    assert ids(there, 0.0) == {"id1", "id2"}


def test_at_most_half_of_the_providers_are_ejected() -> None:
    there = pool(*(provider(number) for number in range(1, 5)), ejection=Ejection(failures=1))
    ejected = [end(there, member(there, number), "timeout", 0.0) for number in range(1, 5)]
    assert ejected == [True, True, False, False]


def test_ejected_providers_are_called_if_no_other_is_left() -> None:
    there = pool(provider(1), provider(2), ejection=Ejection(failures=1, shortest=5.0))
    end(there, member(there, 1), "timeout", 0.0)
    there.connected(member(there, 2), False)
    assert ids(there, 0.1) == {"id1"}
    alone = pool(provider(1), ejection=Ejection(failures=1))
    assert not end(alone, member(alone, 1), "timeout", 0.0)


def test_a_restarted_provider_starts_healthy_and_news_of_the_old_process_is_ignored() -> None:
    there = pool(provider(1, epoch=5), provider(2), ejection=Ejection(failures=1, shortest=5.0))
    end(there, member(there, 1), "timeout", 0.0)
    there.apply(provider(1, epoch=6), UP)
    assert ids(there, 0.1) == {"id1", "id2"}
    there.apply(provider(1, epoch=5), DOWN)
    assert ids(there, 0.1) == {"id1", "id2"}


@pytest.mark.parametrize("left_first", [False, True])
def test_a_provider_whose_clock_went_back_is_called_again(left_first: bool) -> None:
    """With a configured id: the epoch of its new process is before that of the old one."""
    there, before, after = pool(), provider(1, epoch=9), provider(1, epoch=4)
    news = [(before, UP), (before, DOWN), (after, UP)] if left_first else [(before, UP), (after, UP), (before, DOWN)]
    for each, state in news:
        there.apply(each, state)
    there.connected(member(there, 1), True)
    assert (member(there, 1).provider.epoch, member(there, 1).leaving) == (4, False)
    assert ids(there, 0.0) == {"id1"}
    there.apply(before, DOWN)  # late
    assert not member(there, 1).leaving


def test_news_of_an_old_process_is_not_remembered_once_it_is_gone() -> None:
    there = pool(provider(1, epoch=9))
    there.apply(provider(1, epoch=4), UP)
    there.apply(provider(1, epoch=4), DOWN)
    there.apply(provider(1, epoch=9), DOWN)
    assert member(there, 1).leaving


def test_untried_providers_come_before_tried_ones() -> None:
    there = pool(NY, provider(3, zone="ny"), LONDON, preference=Preference(("ny", "london")))
    first = there.choose(0.0)
    assert first is not None
    second = there.choose(0.0, (first,))
    assert second is not None
    assert {first.provider.id, second.provider.id} == {"id1", "id3"}
    third = there.choose(0.0, (first, second))
    assert third is member(there, 2)
    assert there.choose(0.0, (first, second, third)) in (first, second)


@pytest.mark.parametrize(("policy", "low", "high"), [("weighted", 650, 850), ("random", 400, 600)])
def test_weights_count_with_the_policy_weighted(policy: Policy, low: int, high: int) -> None:
    there = pool(provider(1, weight=1), provider(2, weight=3), provider(3, weight=0), policy=policy)
    chosen = Counter(there.choose(0.0).provider.id for _ in range(1000))  # type: ignore[union-attr]
    assert low < chosen["id2"] + (chosen["id3"] // 2 if policy == "random" else 0) < high
    assert bool(chosen["id3"]) == (policy == "random")


def test_two_choices_prefer_the_provider_with_fewer_calls_by_weight() -> None:
    there = pool(provider(1), provider(2, weight=200))
    for _ in range(90):
        there.begin(there.choose(0.0))  # type: ignore[arg-type]
    assert (member(there, 1).outstanding, member(there, 2).outstanding) == (30, 60)


def test_the_policy_latency_prefers_the_faster_and_tries_a_newcomer_fairly() -> None:
    there = pool(provider(1), provider(2), policy="latency")
    end(there, member(there, 1), "reply", 0.0, 0.100)
    end(there, member(there, 2), "reply", 0.0, 0.010)
    assert ids(there, 0.0) == {"id2"}
    for _ in range(30):
        there.begin(there.choose(0.0))  # type: ignore[arg-type]
    assert member(there, 1).outstanding in (2, 3)
    end(there, member(there, 2), "reply", 1.0, 2.0)  # a peak counts at once
    assert member(there, 2).latency == 2.0
    end(there, member(there, 2), "reply", 11.0, 0.0)
    assert 0.6 < member(there, 2).latency < 0.9


def test_over_the_cap_each_client_connects_to_a_stable_subset_of_its_own() -> None:
    many = [provider(number) for number in range(1, 101)]
    first = pool(*many, connected=False, most=10, salt=b"a")
    second = pool(*many, connected=False, most=10, salt=b"b")
    chosen = set(first.wanted())
    assert len(chosen) == 10
    assert {one.provider.id for one in chosen} != {one.provider.id for one in second.wanted()}
    gone = next(iter(chosen))
    first.apply(gone.provider, DOWN)
    assert len(set(first.wanted()) & chosen) == 9
    near = pool(*many, provider(200, zone="ny"), connected=False, most=10, preference=Preference(("ny",)))
    assert "id200" in {one.provider.id for one in near.wanted()}


def test_providers_without_the_tags_are_no_members_and_explain_the_lack() -> None:
    there = pool(provider(1), provider(2), preference=Preference(tags=frozenset({"gpu"})))
    assert not there.members
    assert str(there.missing("answer")) == "service not found: answer: all 2 providers lack the tag gpu"
    there.apply(provider(1, tags=frozenset({"gpu"})), UP)
    assert list(there.members) == [("answer", "tcp://10.0.0.1:1")]
    there.apply(provider(1), UP)  # it lost the tag
    assert member(there, 1).leaving


def test_unusable_rules_are_named() -> None:
    for wrong in ({"failures": 0}, {"shortest": 5.0, "longest": 1.0}, {"most": 2.0}, {"ramp": -1.0}):
        with pytest.raises(ConfigError, match="ejection"):
            Ejection(**wrong)
    with pytest.raises(ConfigError, match="'fastest'"):
        check_policy("fastest")


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        ({"failures": 1}, {"failures": 0}),
        ({"shortest": 0.0}, {"shortest": -0.1}),
        ({"shortest": 30.0}, {"shortest": 30.1}),
        ({"longest": 999_999.9}, {"longest": 1e6}),
        ({"ramp": 0.0}, {"ramp": -0.1}),
        ({"ramp": 999_999.9}, {"ramp": 1e6}),
        ({"most": 0.0}, {"most": -0.1}),
        ({"most": 1.0}, {"most": 1.1}),
    ],
)
def test_the_bounds_of_rules_are_within_them(within: dict[str, Any], beyond: dict[str, Any]) -> None:
    Ejection(**within)
    with pytest.raises(ConfigError, match="ejection"):
        Ejection(**beyond)


@given(st.lists(st.tuples(st.sampled_from(["reply", "failed"]), st.floats(0, 20)), max_size=60))
def test_an_ejection_never_lasts_longer_than_allowed(steps: list[tuple[str, float]]) -> None:
    rules = Ejection(failures=2, shortest=1.0, longest=8.0, ramp=3.0)
    health, now = Health(rules), 0.0
    for kind, passed in steps:
        now += passed
        health.review(now)
        if kind == "reply":
            health.succeeded(now)
        elif health.failed():
            health.eject(now)
            assert now < health.until <= now + rules.longest
        assert 0.0 <= health.share(now) <= 1.0
    assert not health.review(now + rules.longest)
    assert health.share(now + rules.longest + rules.ramp) == 1.0


class PoolMachine(RuleBasedStateMachine):
    """Any order of events; the invariants of the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.pool = Pool(
            rng=random.Random(3), preference=Preference(("ny",)), ejection=Ejection(failures=2), failback=1.0
        )
        self.calls: list[Member] = []

    @rule(
        number=st.integers(1, 5),
        epoch=st.integers(1, 2),
        state=st.sampled_from([UP, SUSPECT, DRAINING, DOWN]),
        zone=st.sampled_from(["", "ny"]),
        priority=st.integers(1, 2),
    )
    def apply(self, number: int, epoch: int, state: State, zone: str, priority: int) -> None:
        self.pool.apply(provider(number, epoch, zone=zone, priority=priority), state)

    @precondition(lambda self: self.pool.members)
    @rule(data=st.data(), connected=st.booleans())
    def connect(self, data: st.DataObject, connected: bool) -> None:
        self.pool.connected(data.draw(st.sampled_from(list(self.pool.members.values()))), connected)

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(data=st.data())
    def call(self, data: st.DataObject) -> None:
        members = list(self.pool.members.values())
        tried = tuple(data.draw(st.lists(st.sampled_from(members), max_size=2))) if members else ()
        chosen = self.pool.choose(self.now, tried)
        usable = [each for each in members if each.connected and not each.leaving]
        assert (chosen is None) == (not usable)
        if chosen is not None:
            assert chosen in usable
            healthy = [each for each in usable if not each.health.until]
            assert chosen in healthy or not [each for each in healthy if each not in tried]
            self.pool.begin(chosen)
            self.calls.append(chosen)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), outcome=st.sampled_from(["reply", "refused", "timeout", "lost", "bad", "cancelled"]))
    def finish(self, data: st.DataObject, outcome: Any) -> None:
        one = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        self.pool.end(one, outcome, 0.01, self.now)

    @invariant()
    def calls_are_counted(self) -> None:
        counted = Counter(map(id, self.calls))
        for one in self.pool.members.values():
            assert one.outstanding == counted[id(one)]
            assert one.replies >= 0


TestPoolMachine = PoolMachine.TestCase
