"""The decisions of a mesh node, over a simulated network: each message exactly once wherever a path lasts."""

from __future__ import annotations

import pytest

from nngkit.mesh.limits import MeshLimits
from nngkit.mesh.state import MeshState
from nngkit.mesh.values import MeshGap, MeshMessage
from nngkit.mesh.wire import CONTROL, Ask, Digest, Line, control, data_frame, key_of
from tests.fanout.mesh_network import MeshNetwork
from tests.seeds import seeds

NAMES = [f"n{number:02}" for number in range(20)]


def behind(network: MeshNetwork) -> list[tuple[str, str, int | None, int]]:
    """Return the nodes that miss messages of an origin to which they have a path."""
    found = []
    for name, node in network.nodes.items():
        for other in network.component(name) - {name}:
            origin = network.nodes[other]
            position, sent = node.state.position(other, origin.epoch), origin.state.sent
            if sent and position != sent + 1:
                found.append((name, other, position, sent))
    return found


def settle(network: MeshNetwork, seconds: float) -> None:
    """Run until no node misses anything."""
    end = network.clock.now + seconds
    while (missing := behind(network)) and network.clock.now < end:
        network.run(0.1)
    assert not missing


@pytest.mark.parametrize("seed", seeds(3, 20))
def test_each_message_comes_exactly_once_while_a_third_of_the_links_is_cut(seed: int) -> None:
    network = MeshNetwork(seed, NAMES)
    edges = network.edges()
    for edge in edges:
        network.connect(*edge)
    network.run(0.1)
    doomed = network.rng.sample(edges, len(edges) * 3 // 10)
    for step in range(60):
        for name in network.rng.sample(NAMES, 5):
            network.nodes[name].send(network.rng.randint(1, 5))
        if step % 3 == 0 and doomed:
            network.cut(*doomed.pop())  # with what is on its way
        network.run(0.01)
    settle(network, 5.0)
    for node in network.nodes.values():
        assert not node.gaps
        for other in network.component(node.name) - {node.name}:
            assert node.first.get((other, 1000), 1) == 1


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True], ids=["no restarts", "restarts"])
@pytest.mark.parametrize("seed", range(20))
def test_cuts_losses_and_reordering_lose_nothing_silently(seed: int, restarts: bool) -> None:
    network = MeshNetwork(seed, NAMES, loss=0.1, duplication=0.05, reordering=0.2)
    rng = network.rng
    edges = network.edges()
    for edge in edges:
        network.connect(*edge)
    network.run(1.0)
    for step in range(100):
        for name in rng.sample(NAMES, 4):
            network.nodes[name].send(rng.randint(1, 4))
        if rng.random() < 0.3:
            network.cut(*rng.choice(edges))
        else:
            network.connect(*rng.choice(edges))
        if restarts and step % 30 == 29:
            name = rng.choice(NAMES)
            # the epoch may go back: the clock of the machine did
            network.restart(name, network.nodes[name].epoch + rng.choice([-1, 1000]))
            for edge in edges:
                if name in edge:
                    network.connect(*edge)
        network.run(0.02)
    for edge in edges:
        network.connect(*edge)
    network.run(1.0)
    network.loss = network.duplication = network.reordering = 0.0
    settle(network, 10.0)
    if not restarts:  # a restarted node has only what was sent since, so a neighbour may have to give up
        assert not any(node.gaps for node in network.nodes.values())


def pair(limits: MeshLimits | None = None) -> MeshNetwork:
    network = MeshNetwork(1, ["a", "b"], limits=limits)
    network.connect("a", "b")
    network.run(0.1)
    return network


def test_a_lost_last_message_is_noticed_by_the_next_digest() -> None:
    network = pair()
    a, b = network.nodes["a"], network.nodes["b"]
    a.send()
    network.run(0.1)
    network.loss = 1.0
    a.send(3)
    network.run(0.02)
    network.loss = 0.0
    network.run(0.7)
    assert b.messages == 4
    assert b.state.stats.repaired == 3


def test_messages_sent_without_a_neighbour_come_when_one_connects() -> None:
    network = MeshNetwork(1, ["a", "b"])
    network.run(1.0)
    network.nodes["a"].send(2000)
    network.run(1.0)
    network.connect("a", "b")
    network.run(1.0)
    assert network.nodes["b"].messages == 2000
    assert not network.nodes["b"].gaps


def test_what_no_neighbour_keeps_is_reported_exactly() -> None:
    network = pair(MeshLimits(buffer_bytes=50_000))
    a, b = network.nodes["a"], network.nodes["b"]
    a.send(10)
    network.run(0.1)
    network.cut("a", "b")
    for _ in range(100):
        a.send(10)
        network.run(0.01)
    network.connect("a", "b")
    network.run(5.0)
    a.send(10)
    network.run(1.0)
    stream = "a", 1000
    assert b.next[stream] == 1021
    assert len(b.gaps[stream]) == 1
    assert b.gaps[stream][0][0] == 11
    assert b.messages + b.lost(stream) == 1020
    assert b.messages > 200


def test_a_message_that_no_neighbour_sends_is_given_up_after_the_patience() -> None:
    state = MeshState("me", 1, 0.0, MeshLimits(patience=3.0))
    state.link_up(1, 0.0)
    key = key_of("a", 7)
    frames = {number: data_frame(key, number, b"x") for number in (1, 2, 4, 5)}
    state.receive(1, list(frames.values()), 0.0)
    digest = CONTROL.encode(Digest("x", 1, (Line("a", 7, 1, 3, 5, 0),)))  # the neighbour misses it too
    now = 0.0
    for _ in range(29):
        now += 0.1
        state.receive(1, [digest], now)
        state.tick(now)
    assert state.position("a", 7) == 3
    for _ in range(12):
        now += 0.1
        state.tick(now)
    events = state.take().events
    assert [event for event in events if isinstance(event, MeshGap)] == [MeshGap("a", 7, 3, 3, "patience")]
    assert [event.sequence for event in events if isinstance(event, MeshMessage)] == [1, 2, 4, 5]
    state.receive(1, [data_frame(key, 3, b"x")], now)
    assert not state.take().events
    assert state.stats.late == 1


def test_patience_does_not_pass_without_a_neighbour() -> None:
    state = MeshState("me", 1, 0.0, MeshLimits(patience=1.0))
    state.link_up(1, 0.0)
    key = key_of("a", 7)
    state.receive(1, [data_frame(key, 1, b"x"), data_frame(key, 3, b"x")], 0.0)
    state.link_down(1, 0.0)
    for second in range(100):
        state.tick(float(second))
    assert state.position("a", 7) == 2
    state.link_up(2, 100.0)
    state.receive(2, [data_frame(key, 2, b"x")], 100.1)
    assert state.position("a", 7) == 4
    assert state.stats.gaps == 0


def test_a_new_neighbour_is_asked_at_once_for_what_is_missing() -> None:
    state = MeshState("me", 1, 0.0)
    state.link_up(1, 0.0)
    state.receive(1, [data_frame(key_of("a", 7), number, b"x") for number in (1, 3)], 0.0)
    state.link_down(1, 0.0)
    state.tick(0.0)  # without a neighbour
    state.take()
    state.link_up(2, 0.1)
    lines = (Line("a", 7, 1, 4, 3, 1000), Line("b", 8, 1, 6, 5, 50))  # one that was behind before, and a new one
    state.receive(2, [CONTROL.encode(Digest("x", 1, lines, last=True))], 0.1)
    assert state.wake_at == 0.1
    state.tick(0.1)
    asks = [control(frame) for link, frame in state.take().sends if link == 2]
    assert [ask.ranges for ask in asks if isinstance(ask, Ask)] == [((2, 2),), ((1, 5),)]
    state.receive(2, [CONTROL.encode(Digest("x", 1, (Line("b", 8, 1, 7, 6, 60),)))], 0.2)
    state.tick(0.2)  # the same link again: what its later digests tell of may be on the way
    assert not [frame for _, frame in state.take().sends]


def test_a_new_node_begins_at_now() -> None:
    network = MeshNetwork(3, ["a", "b", "c"])
    network.connect("a", "b")
    network.run(0.1)
    a = network.nodes["a"]
    a.send(100)
    network.run(5.0)
    network.restart("c", 2)
    network.connect("b", "c")
    network.run(0.1)
    c = network.nodes["c"]
    a.send(3)
    network.run(0.1)
    assert c.messages == 3
    assert c.first["a", 1000] == 101


def test_a_new_node_with_history_begins_at_what_is_kept() -> None:
    a = MeshState("a", 1, 0.0)
    a.send([b"%d" % number for number in range(1200)], 0.0)
    new = MeshState("b", 1, 50.0, history=True)
    for state in (a, new):
        state.link_up(1, 60.0)
    now = 60.0
    events: list[MeshMessage | MeshGap] = []
    for _ in range(30):
        now += 0.02
        for here, there in ((a, new), (new, a)):
            here.tick(now)
            effects = here.take()
            events += effects.events
            there.receive(1, [frame for _, frame in effects.sends] + effects.digests, now)
    assert [event.sequence for event in events if isinstance(event, MeshMessage)] == list(range(1, 1201))


def test_the_runs_of_a_node_are_streams_of_their_own() -> None:
    network = pair()
    network.nodes["a"].send(5)
    network.run(0.1)
    for epoch in (1009, 1004):  # forth and back
        network.restart("a", epoch)
        network.connect("a", "b")
        network.nodes["a"].send(5)
        network.run(1.0)
    b = network.nodes["b"]
    assert b.next == {("a", 1000): 6, ("a", 1009): 6, ("a", 1004): 6}
    assert b.messages == 15
    assert b.state.stats.epochs_back == 1
    assert len(b.warnings) == 1
    assert b.warnings[0].startswith("'a' runs with an epoch before an earlier one")


def test_a_node_connected_to_itself_hears_nothing() -> None:
    state = MeshState("me", 1, 0.0)
    for link in (1, 2):
        state.link_up(link, 0.0)
    frames = state.send([b"x"], 0.0)
    greetings = [frame for _, frame in state.take().sends]
    state.receive(1, [*greetings, *frames], 0.0)
    effects = state.take()
    assert not effects.events
    assert not effects.relays


def test_memory_stays_flat() -> None:
    """The short form of benchmarks/mesh.py, which passes 10 million messages."""
    limits = MeshLimits(buffer_bytes=100_000)
    states = [MeshState(name, 1, 0.0, limits) for name in "abc"]
    for state in states:
        state.link_up(1, 0.0)
        state.take()
    a, b, c = states
    now, total = 0.0, 0
    for _ in range(400):
        now += 0.01
        b.receive(1, a.send([b"x" * 50] * 100, now), now)
        effects = b.take()
        c.receive(2, [frame for frame, _ in effects.relays], now)
        total += len(c.take().events)
        for state in states:
            state.tick(now)
            state.take()
            assert state.stats.kept_bytes <= 100_000
            assert len(state._order) <= 100_000 // 250
    assert total == 40_000


def test_origins_that_come_and_go_leave_nothing() -> None:
    state = MeshState("me", 1, 0.0, MeshLimits(streams=4, forget=1.0))
    state.link_up(1, 0.0)
    for number in range(100):
        now = 10.0 * number
        state.receive(1, [data_frame(key_of(f"n{number}", 1), 1, b"x")], now)
        state.tick(now)
        assert len(state.take().events) == 1
        assert len(state._order) <= 2 * state.stats.streams
