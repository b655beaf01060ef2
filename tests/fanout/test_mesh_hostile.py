"""Frames of strangers and liars: bounded memory, no crash, and an effect on the streams they lie about only."""

from __future__ import annotations

import random
import re
from pathlib import Path

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nngkit.errors import BadMessage, TooLarge
from nngkit.mesh.limits import MeshLimits
from nngkit.mesh.state import MeshState
from nngkit.mesh.values import MeshGap, MeshMessage, MeshStats
from nngkit.mesh.wire import CONTROL, Answer, Ask, Digest, Line, control, data_frame, key_of
from nngkit.messages import MOST_NUMBER
from tests.fanout.mesh_network import MeshNetwork

NOW = 1000.0


def node(**limits: float) -> MeshState:
    state = MeshState("me", 1, NOW, MeshLimits(**limits))  # type: ignore[arg-type]
    state.link_up(1, NOW)
    state.take()
    return state


def frames_of(origin: str, first: int, last: int, epoch: int = 7) -> list[bytes]:
    return [data_frame(key_of(origin, epoch), number, b"%d" % number) for number in range(first, last + 1)]


@given(st.binary(max_size=80))
@settings(max_examples=100)
def test_any_bytes_are_survived(frame: bytes) -> None:
    state = node()
    state.receive(1, [frame, b"\xd1" + frame, b"\xa6" + frame], NOW)
    state.tick(NOW)
    assert state.stats.streams <= 2


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.sampled_from(["", "a", "\n"]) | st.just(b"x"),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from(["v", "k", "id"]), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
@settings(max_examples=100)
def test_any_cbor_is_survived(value: object) -> None:
    state = node()
    filled = {"v": 1, "k": "digest", "id": "x", "epoch": 1, "lines": value, "ranges": value, "origin": "o"}
    for kind in ("digest", "answer", "ask"):
        state.receive(1, [cbor2.dumps(value), cbor2.dumps(filled | {"k": kind})], NOW)
    state.tick(NOW + 1)


@given(
    st.text("abc", min_size=1, max_size=64),
    st.lists(st.integers(1, MOST_NUMBER - 9), max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_control_frames_come_back_as_they_were(origin: str, numbers: list[int], answer: bool, last: bool) -> None:
    lines = tuple(Line(origin, 5, number, number + 1, number + 8, 250) for number in numbers)
    digest = (Answer if answer else Digest)(origin, 3, lines, last)
    assert control(CONTROL.encode(digest)) == digest
    ranges = tuple((number, number + 3) for number in numbers)
    assert control(CONTROL.encode(Ask(origin, 3, ranges))) == Ask(origin, 3, ranges)


def test_the_frames_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs/wire.md").read_text().partition("\n## Mesh\n")[2]
    for name, frame in (
        ("message", data_frame(key_of("ada", 7), 1, b"hi")),
        ("digest", CONTROL.encode(Digest("bob", 9, (Line("ada", 7, 1, 3, 2, 250),), last=True))),
        ("ask", CONTROL.encode(Ask("ada", 7, ((1, 2), (5, 5))))),
    ):
        found = re.search(rf"^{name} += ([0-9a-f]+)$", page, re.MULTILINE)
        assert found is not None
        assert found[1] == frame.hex()


@pytest.mark.parametrize(
    "row",
    [
        ["o", 1, 1, 1, 1],
        ["o", 1, 5, 4, 9, 0],
        ["o", 1, 1, 9, 4, 0],
        ["o", 1, 1, 1, 2**53, 0],
        ["o", 1, 1, 1, -1, 0],
        ["o", 1, 1, 1, True, 0],
        ["", 1, 1, 1, 1, 0],
        ["o" * 65, 1, 1, 1, 1, 0],
        ["o\n", 1, 1, 1, 1, 0],
    ],
)
def test_a_line_that_contradicts_itself_is_refused(row: list[object]) -> None:
    with pytest.raises((BadMessage, TooLarge)):
        control(cbor2.dumps({"v": 1, "k": "digest", "id": "x", "epoch": 1, "lines": [row]}))


@pytest.mark.parametrize("pair", [[1], [0, 1], [2, 1], [-1, 1], [1, 2**53], [1, True], [1.0, 2], "ab"])
def test_a_range_that_contradicts_itself_is_refused(pair: object) -> None:
    with pytest.raises(BadMessage):
        control(cbor2.dumps({"v": 1, "k": "ask", "origin": "x", "epoch": 1, "ranges": [pair]}))


def test_each_malformed_frame_is_counted() -> None:
    state = node()
    zero = data_frame(key_of("a", 7), 1, b"")[:2] + bytes(8) + key_of("a", 7)
    frames = [
        b"",
        b"\0",
        bytes(11),
        data_frame(key_of("a", 7), 1, b"")[:12],
        data_frame(b"x" * 9 + b"\n", 1, b""),
        zero,
    ]
    for count, frame in enumerate(frames, 1):
        state.receive(1, [frame], NOW)
        assert state.stats == MeshStats(bad=count), frame


def test_absurd_numbers_in_messages_change_nothing() -> None:
    state = node()
    state.receive(1, frames_of("a", 1, 3), NOW)
    state.receive(1, frames_of("a", 2**60, 2**60 + 5) + frames_of("a", 10**12, 10**12), NOW)
    state.receive(1, frames_of("a", 4, 6), NOW)
    events = state.take().events
    assert [event.sequence for event in events if isinstance(event, MeshMessage)] == [1, 2, 3, 4, 5, 6]
    assert state.stats.bad == 7
    assert state.stats.held_bytes == 0


def test_absurd_digests_change_nothing() -> None:
    state = node()
    state.receive(1, frames_of("a", 1, 3), NOW)
    state.receive(1, [CONTROL.encode(Digest("x", 1, (Line("a", 7, 10**12, 10**12, 10**12, 1000),)))], NOW)
    for step in range(100):
        state.tick(NOW + step)
    assert state.position("a", 7) == 4
    assert state.stats.bad == 1


def test_a_liar_can_not_stop_a_stream_that_goes_on() -> None:
    state = node()
    state.link_up(2, NOW)
    now = NOW
    for number in range(1, 200):
        now += 0.1
        state.receive(2, frames_of("a", number, number), now)
        lie = Line("a", 7, 5_000_000, 5_000_000, 5_000_000, 100)
        state.receive(
            1, [CONTROL.encode(Digest("liar", 1, (lie,))), *frames_of("a", number + 70_000, number + 70_000)], now
        )
        state.tick(now)
    assert state.position("a", 7) == 200
    assert state.stats.gaps == 0
    assert state.stats.held_bytes == 0


def test_held_messages_have_a_limit() -> None:
    state = node(buffer_bytes=20_000)
    state.receive(1, frames_of("a", 1, 1), NOW)
    state.receive(1, frames_of("a", 3, 2000), NOW)
    stats = state.stats
    assert stats.held_bytes <= 10_000
    assert stats.ahead > 1900
    state.receive(1, frames_of("a", 2, 2), NOW)
    position = state.position("a", 7)
    assert position is not None
    assert 40 < position < 60


def test_streams_have_a_limit_and_are_not_forgotten_while_they_may_return() -> None:
    state = node(streams=10, forget=100.0)
    for number in range(50):
        state.receive(1, frames_of(f"o{number}", 1, 1), NOW)
    assert state.stats.streams == 10
    assert state.stats.refused_origins == 40
    state.receive(1, frames_of("later", 1, 1), NOW + 150)
    assert state.stats.streams == 10
    assert state.position("later", 7) is None
    state.receive(1, frames_of("later", 1, 1), NOW + 250)
    assert state.position("later", 7) == 2
    assert state.stats.streams == 10


def test_a_forgotten_stream_does_not_begin_anew() -> None:
    state = node(streams=1, forget=100.0)
    state.receive(1, frames_of("a", 1, 5), NOW)
    state.receive(1, frames_of("b", 1, 1), NOW + 250)
    assert state.position("a", 7) is None
    state.receive(1, frames_of("a", 2, 5), NOW + 251)
    state.receive(1, frames_of("c", 1, 1), NOW + 500)
    state.receive(1, [CONTROL.encode(Digest("x", 1, (Line("a", 7, 1, 6, 5, 751000),)))], NOW + 800)
    assert state.position("a", 7) == 6
    assert not [event for event in state.take().events if isinstance(event, MeshMessage) and event.sequence > 5]


def test_questions_cost_the_one_that_asks_too_often() -> None:
    state = node()
    state.send([b"x" * 1000] * 600, NOW)
    asks = [CONTROL.encode(Ask("me", 1, ((1, 2**52),) * 64))] * 300
    state.receive(1, asks, NOW)
    answered = state.stats.answered
    assert answered <= 256 * 512
    state.receive(1, asks[:10], NOW)
    assert state.stats.answered == answered


def test_claims_about_own_messages_are_counted() -> None:
    state = node()
    state.send([b"x"], NOW)
    state.receive(
        1, [CONTROL.encode(Digest("x", 1, (Line("me", 1, 1, 9, 8, 0),))), *frames_of("me", 5, 5, epoch=1)], NOW
    )
    assert state.stats.clashes == 2
    assert state.sent == 1


def test_a_liar_harms_only_the_streams_it_lies_about() -> None:
    rng = random.Random(5)
    state = node(buffer_bytes=200_000, patience=2.0)
    state.link_up(2, NOW)
    now, seen = NOW, 0
    for number in range(1, 400):
        now += 0.05
        frames = frames_of("honest", number, number)
        lies = [
            *frames_of("victim", rng.randint(1, 10**6), 0)[:1],
            data_frame(key_of("victim", 7), rng.choice([rng.randint(1, 10**5), 2**63]), bytes(500)),
            CONTROL.encode(Digest("liar", rng.randint(0, 9), (Line("victim", 7, 1, 2, rng.randint(2, 10**7), 1000),))),
            CONTROL.encode(Ask("honest", 7, ((1, rng.randint(1, 10**9)),))),
        ]
        state.receive(1, lies, now)
        state.receive(2, frames, now)
        state.tick(now)
        seen += sum(event.origin == "honest" for event in state.take().events)
    assert seen == 399
    stats = state.stats
    assert stats.kept_bytes <= 200_000
    assert stats.held_bytes <= 100_000


# One neighbour's word about a quiet origin


def digest_of(id: str, head: int, *, epoch: int = 1, floor: int | None = None) -> bytes:
    """Return a neighbour's digest: it has delivered the numbers of "a" up to `head`, and keeps some or none."""
    return CONTROL.encode(Digest(id, epoch, (Line("a", 7, floor or head + 1, head + 1, head, 0),)))


def wait(state: MeshState, now: float, seconds: float, *digests: tuple[int, bytes]) -> float:
    """Let time pass, with these digests of links twice a second; return the new time."""
    for _ in range(int(2 * seconds)):
        now += 0.5
        for link, frame in digests:
            state.receive(link, [frame], now)
        state.tick(now)
    return now


GRAPHS = {
    "a chain": [("a", "b"), ("b", "c"), ("c", "d")],
    "a ring": [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")],
    "a star": [("a", "b"), ("b", "c"), ("b", "d")],
    "all to all": [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")],
}
LIES = st.tuples(
    st.sampled_from(["b", "c", "d"]),
    st.integers(1_000, 200_000),
    st.sampled_from(["message", "digest", "digest without the messages"]),
    st.floats(0.0, 3.0),
)


@pytest.mark.slow
@pytest.mark.parametrize("graph", GRAPHS)
@given(lies=st.lists(LIES, min_size=1, max_size=6), seed=st.integers(0, 2**16))
@example(
    lies=[
        *(("d", 1002, "digest", 3.0), ("b", 1002, "message", 1.0), ("c", 1426, "message", 0.125)),
        ("d", 1373, "digest without the messages", 2.0),
    ],
    seed=43125,
)
@settings(max_examples=25, deadline=None)
def test_a_stranger_does_not_silence_a_quiet_origin(
    graph: str, lies: list[tuple[str, int, str, float]], seed: int
) -> None:
    network = MeshNetwork(seed, "abcd")
    for edge in GRAPHS[graph]:
        network.connect(*edge)
    network.run(1.0)
    network.nodes["a"].send(3)
    network.run(1.0)
    for at, number, kind, pause in lies:
        there = network.nodes[at]
        there.state.link_up(99, network.clock.now)
        frame = data_frame(key_of("a", 1000), number, b"forged")
        if kind != "message":
            floor = 1 if kind == "digest" else number + 1
            frame = CONTROL.encode(Digest("evil", 5, (Line("a", 1000, floor, number + 1, number, 10),)))
        there.receive(99, [frame])
        network.run(pause)
    network.run(15.0)
    for _ in range(20):
        network.nodes["a"].send(5)
        network.run(0.05)
    network.run(3.0)
    for name in "bcd":
        node = network.nodes[name]
        assert not node.gaps
        assert (node.next["a", 1000], node.messages) == (104, 103)
        assert node.state.stats.held_bytes == 0


def test_where_the_origin_is_a_neighbour_it_alone_confirms_its_numbers() -> None:
    state = node(patience=2.0)
    for link in (2, 3, 4):
        state.link_up(link, NOW)
    state.receive(1, [digest_of("a", 2, epoch=7), *frames_of("a", 1, 2)], NOW)
    lies = [(link, digest_of(name, 900)) for link, name in ((2, "x"), (3, "y"))] + [(4, digest_of("a", 900, epoch=7))]
    now = wait(state, NOW, 6.0, (1, digest_of("a", 2, epoch=7)), *lies)
    assert state.position("a", 7) == 3
    wait(state, now, 6.0, (1, digest_of("a", 901, epoch=7)), *lies)
    assert state.position("a", 7) == 902


def test_the_link_of_an_origin_is_its_newest_one_once_the_others_are_silent() -> None:
    state = node(patience=2.0)
    state.receive(1, [digest_of("a", 2, epoch=7), *frames_of("a", 1, 2)], NOW)
    state.link_up(2, NOW)
    now = wait(state, NOW, 6.0, (2, digest_of("a", 9, epoch=7)))
    assert state.position("a", 7) == 10
    state.link_down(2, now)
    wait(state, now, 6.0, (1, digest_of("x", 20)))
    assert state.position("a", 7) == 21


def test_messages_of_the_origin_confirm_themselves() -> None:
    state = node(patience=2.0)
    state.receive(1, [digest_of("a", 2, epoch=7), *frames_of("a", 1, 2), *frames_of("a", 9, 9)], NOW)
    wait(state, NOW, 6.0)
    assert [event for event in state.take().events if isinstance(event, MeshGap)] == [MeshGap("a", 7, 3, 8, "patience")]
    assert state.position("a", 7) == 10


@pytest.mark.parametrize(
    ("says", "position"),
    [
        ({1: 2, 2: 900}, 3),  # the link that brings the stream is asked, and does not know
        ({1: 900, 2: 2}, 901),
        ({1: 2, 2: 900, 3: 900}, 901),  # two neighbours
        ({1: 2, 2: 100_000}, 3),  # further ahead than `window`
        ({1: 100_000, 2: 2}, 100_001),
    ],
)
def test_elsewhere_the_link_that_brings_the_stream_or_two_neighbours_confirm(
    says: dict[int, int], position: int
) -> None:
    state = node(patience=2.0)
    for link in (2, 3):
        state.link_up(link, NOW)
    state.receive(1, frames_of("a", 1, 2), NOW)
    now = NOW + 1
    wait(state, now, 6.0, *((link, digest_of(f"n{link}", head)) for link, head in says.items()))
    assert state.position("a", 7) == position


def test_a_message_that_a_neighbour_relays_is_not_its_word() -> None:
    state = node(patience=2.0)
    state.link_up(2, NOW)
    state.receive(1, [*frames_of("a", 1, 2), *frames_of("a", 900, 900)], NOW)
    state.receive(2, [digest_of("x", 899)], NOW)
    wait(state, NOW, 6.0, (1, digest_of("n1", 2)))
    assert state.position("a", 7) == 3


def test_what_is_not_confirmed_is_dropped_after_the_patience_and_said_once() -> None:
    state = node(patience=2.0)
    state.link_up(2, NOW)
    state.receive(1, [digest_of("a", 2, epoch=7), *frames_of("a", 1, 2)], NOW)
    for number in (60, 50):
        state.receive(2, frames_of("a", number, number), NOW)
    assert state.stats.held_bytes > 0
    wait(state, NOW, 4.0, (1, digest_of("a", 2, epoch=7)))
    assert (state.stats.held_bytes, state.stats.behind, state.stats.unconfirmed) == (0, 0, 58)
    (line,) = state.take().warnings
    assert "'a' up to 60 are dropped: 2 is the last" in line


def test_a_digest_says_confirmed_numbers_only() -> None:
    state = node()
    state.receive(1, [digest_of("a", 2, epoch=7), *frames_of("a", 1, 2)], NOW)
    state.link_up(2, NOW)
    state.receive(2, frames_of("a", 50, 50), NOW)
    state.take()
    state.tick(NOW + 1)
    (digest,) = state.take().digests
    content = control(digest)
    assert isinstance(content, Digest)
    assert [line.head for line in content.lines] == [2]
