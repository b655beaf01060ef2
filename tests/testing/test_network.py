"""The simulated network: reproducible, invents no message, and applies its faults within their bounds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.testing import Conditions, Network, VirtualClock

NAMES = "abcd"

CONDITIONS = st.builds(
    lambda loss, duplication, refusal, shortest, more: Conditions(
        loss=loss, duplication=duplication, refusal=refusal, delay=(shortest, shortest + more)
    ),
    *(st.sampled_from([0.0, 0.3, 1.0]),) * 3,
    *(st.sampled_from([0.0, 0.1, 0.5]),) * 2,
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("broadcast"), st.sampled_from(NAMES)),
        st.tuples(st.just("request"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("crash"), st.sampled_from(NAMES)),
        st.tuples(st.just("start"), st.sampled_from(NAMES)),
        st.tuples(st.just("split"), st.sets(st.sampled_from(NAMES))),
        st.tuples(st.just("heal")),
        st.tuples(st.just("run"), st.sampled_from([0.0, 0.05, 0.3])),
    ),
    max_size=40,
)


class Run:
    """Actions on a network, with a record of everything that was sent, delivered and answered."""

    def __init__(self, seed: int, conditions: Conditions, actions: list[tuple[Any, ...]]) -> None:
        self.network = network = Network(seed, conditions)
        self.sent: list[tuple[float, str]] = []
        self.delivered: list[tuple[float, str, str, int]] = []
        self.outcomes: list[tuple[int, object]] = []
        self.requests: list[float] = []
        for name in NAMES:
            self.start(name)
        for action, *arguments in actions:
            if action == "run":
                network.run_until(network.now + arguments[0])
            elif action == "split":
                network.split(arguments[0])
            elif action == "heal":
                network.heal()
            elif action == "start":
                if arguments[0] not in network.nodes:
                    self.start(arguments[0])
            elif arguments[0] in network.nodes:
                self.act(action, *arguments)
        network.run_until(network.now + 10.0)

    def start(self, name: str) -> None:
        self.network.start(
            name,
            receive=lambda sender, number: self.receive(sender, name, number),
            answer=lambda sender, number: (name, number),
        )

    def receive(self, sender: str, receiver: str, number: int) -> None:
        assert self.network.connected(sender, receiver)
        self.delivered.append((self.network.now, sender, receiver, number))

    def act(self, action: str, name: str, *arguments: str) -> None:
        network = self.network
        if action == "crash":
            network.crash(name)
        elif action == "request":
            number = len(self.requests)
            self.requests.append(network.now)
            network.request(
                name,
                arguments[0],
                number,
                reply=lambda reply: self.outcomes.append((number, reply)),
                failure=lambda: self.outcomes.append((number, None)),
            )
        else:
            getattr(network, action)(name, *arguments, len(self.sent))
            self.sent.append((network.now, name))


@given(st.integers(), CONDITIONS, ACTIONS)
def test_a_run_is_reproducible_from_its_seed(seed: int, conditions: Conditions, actions: list[tuple[Any, ...]]) -> None:
    one, two = Run(seed, conditions, actions), Run(seed, conditions, actions)
    assert (one.delivered, one.outcomes, one.network.stats) == (two.delivered, two.outcomes, two.network.stats)


@given(st.integers(), CONDITIONS, ACTIONS)
def test_no_message_is_invented_and_delays_have_bounds(
    seed: int, conditions: Conditions, actions: list[tuple[Any, ...]]
) -> None:
    run = Run(seed, conditions, actions)
    shortest, longest = conditions.delay
    for time, sender, _, number in run.delivered:
        sent_at, author = run.sent[number]
        assert author == sender
        assert shortest - 1e-9 <= time - sent_at <= longest + 1e-9
    copies = Counter((receiver, number) for _, _, receiver, number in run.delivered)
    most = 2 if conditions.duplication else 1
    assert max(copies.values(), default=0) <= most
    stats = run.network.stats
    assert stats.in_flight == 0
    assert stats.delivered == len(run.delivered)
    assert stats.lost == 0 or conditions.loss > 0
    assert not (run.delivered and conditions.loss == 1.0)


@given(st.integers(), CONDITIONS, ACTIONS)
def test_a_request_has_one_outcome_at_most(seed: int, conditions: Conditions, actions: list[tuple[Any, ...]]) -> None:
    run = Run(seed, conditions, actions)
    counts = Counter(number for number, _ in run.outcomes)
    assert max(counts.values(), default=0) <= 1
    assert all(reply is None or reply[1] == number for number, reply in run.outcomes)  # type: ignore[index]
    assert conditions.refusal < 1.0 or all(reply is None for _, reply in run.outcomes)
    if not any(action[0] == "crash" for action in actions):
        assert len(run.outcomes) == len(run.requests)


def collect(network: Network, name: str) -> list[Any]:
    """Start a node; return the list of messages that it will receive."""
    received: list[Any] = []
    network.start(name, receive=lambda sender, message: received.append(message))
    return received


@given(st.integers(), st.sets(st.sampled_from(NAMES)))
def test_a_partition_stops_delivery_between_its_sides_only(seed: int, side: set[str]) -> None:
    network = Network(seed)
    received = {name: collect(network, name) for name in NAMES}
    partition = network.split(side)
    for name in NAMES:
        network.broadcast(name, name)
    network.run_until(1.0)
    for name in NAMES:
        assert set(received[name]) == {other for other in NAMES if other != name and (other in side) == (name in side)}
    partition.heal()
    network.broadcast("a", "healed")
    network.run_until(2.0)
    assert all(received[name][-1] == "healed" for name in NAMES if name != "a")


def test_overlapping_partitions_end_one_by_one() -> None:
    network = Network()
    for name in NAMES:
        network.start(name)
    one, two = network.split(["a"]), network.split(["a", "b"])
    one.heal()
    assert not network.connected("a", "c")
    assert network.connected("a", "b")
    one.heal()
    two.heal()
    assert network.connected("a", "c")


def test_different_delays_reorder_messages() -> None:
    network = Network(1, Conditions(delay=(0.0, 1.0)))
    received = collect(network, "b")
    network.start("a")
    for number in range(20):
        network.send("a", "b", number)
    network.run_until(1.0)
    assert sorted(received) == list(range(20)) != received


def test_messages_are_handed_over_uncopied_and_never_within_the_call() -> None:
    network = Network()
    received = collect(network, "b")
    network.start("a")
    message = object()
    network.send("a", "b", message)
    assert received == []
    network.run_until(0.0)
    assert received == [message]


def test_a_crash_drops_messages_timers_wake_ups_and_requests() -> None:
    network = Network(0, Conditions(delay=(0.1, 0.1)))
    received = collect(network, "b")
    happened: list[str] = []
    network.start("a", step=lambda: happened.append("step"))
    network.send("a", "b", "from the first life")
    network.wake("a", 0.2)
    network.call_later(0.2, lambda: happened.append("timer"), node="a")
    network.request("a", "b", "?", reply=happened.append, failure=lambda: happened.append("failure"))
    network.crash("a")
    network.start("a", step=lambda: happened.append("second life"))
    network.send("a", "b", "from the second life")
    network.wake("a", 0.3)
    network.run_until(2.0)
    assert received == ["from the second life"]
    assert happened == ["second life"]


def test_earliest_wake_up_of_a_node_is_kept() -> None:
    network = Network()
    steps: list[float] = []
    network.start("a", step=lambda: steps.append(network.now))
    for time in (0.5, 0.2, 0.9):
        network.wake("a", time)
    network.run_until(2.0)
    assert steps == [0.2]


def test_request_to_an_unknown_node_fails_after_its_time() -> None:
    network = Network(0, Conditions(delay=(0.1, 0.1), failure_after=2.0))
    network.start("a")
    failed: list[float] = []
    network.request("a", "nowhere", "?", reply=lambda reply: None, failure=lambda: failed.append(network.now))
    network.run_until(5.0)
    assert failed == [pytest.approx(2.1)]
    assert (network.stats.requests, network.stats.failed) == (1, 1)


def test_conditions_can_change_during_a_run() -> None:
    network = Network(0, Conditions(loss=1.0))
    received = collect(network, "b")
    network.start("a")
    network.send("a", "b", 1)
    network.conditions = Conditions()
    network.send("a", "b", 2)
    network.run_until(1.0)
    assert received == [2]


@pytest.mark.parametrize(
    "wrong", [{"loss": 1.1}, {"duplication": -0.1}, {"refusal": 2.0}, {"delay": (0.2, 0.1)}, {"failure_after": -1.0}]
)
def test_impossible_conditions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Conditions(**wrong)


def test_misuse_of_nodes_is_refused() -> None:
    network = Network()
    network.start("a")
    with pytest.raises(ValueError, match="'a' is running"):
        network.start("a")
    with pytest.raises(ValueError, match="'b' is not running"):
        network.send("b", "a", 1)
    with pytest.raises(TypeError, match="collection of names"):
        network.split("ab")


# ---- the clock -------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.0, 10.0)))
def test_calls_are_made_in_the_order_of_their_times_and_equal_times_in_the_order_of_calls(times: list[float]) -> None:
    clock = VirtualClock()
    made: list[tuple[float, int]] = []
    for number, time in enumerate(times):
        clock.call_at(time, lambda time=time, number=number: made.append((clock.now, number)))  # type: ignore[misc]
    assert not clock.run_until(5.0)
    assert clock.now == 5.0
    clock.run_until(10.0)
    assert made == sorted((time, number) for number, time in enumerate(times))


def test_a_run_stops_once_its_condition_is_true() -> None:
    clock = VirtualClock(100.0)
    made: list[int] = []
    clock.call_later(1.0, lambda: made.append(1))
    clock.call_later(2.0, lambda: made.append(2))
    assert clock.run_until(200.0, lambda: made)
    assert (clock.now, made) == (101.0, [1])


def test_a_cancelled_timer_is_not_called() -> None:
    clock = VirtualClock()
    made: list[int] = []
    timer = clock.call_later(1.0, lambda: made.append(1))
    assert timer.pending
    timer.cancel()
    clock.run_until(2.0)
    assert not made
    assert not timer.pending
