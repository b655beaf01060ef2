"""Greetings: admission of links, and the links between voters."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.cluster.admission import Applicant, Authenticator, TokenAuthenticator, issue_ticket, make_secret
from nngkit.cluster.frames import (
    Challenge,
    FirstFrame,
    Greeting,
    Proof,
    Refusal,
    greeting_frame,
    parse_greeting,
    parse_local,
)
from nngkit.cluster.node.greetings import (
    EARLIER,
    GREETING,
    NO_PROOF,
    SILENCE,
    Greetings,
    NodeLink,
)
from nngkit.errors import BadMessage, TooLarge

Change = Callable[[bytes], bytes]
VOTERS = {"a": "tcp://a:1", "b": "tcp://b:1"}


def make(
    id: str,
    *,
    token: str | None = "s",
    ticket: str | None = None,
    voters: dict[str, str] | None = None,
    cluster: str = "farm",
    authenticator: Authenticator | None = None,
    run: int = 1,
) -> Greetings:
    others = {name: at for name, at in (voters or {}).items() if name != id}
    return Greetings(
        Greeting(cluster, id, ord(id[0]), False),
        others,
        authenticator or TokenAuthenticator(cluster, token, lambda: 0.0),
        secret=make_secret(cluster, token, ticket, lambda: 0.0),
        entropy=Random(f"{id} {run}").randbytes,
        rng=Random(1),
        now=0.0,
        wall=lambda now: now,
    )


class Met(NamedTuple):
    """Outcome of a meeting: the link as both ends have it, what has passed, and the links that the dialer ended."""

    there: NodeLink | None
    here: NodeLink | None
    passed: list[bytes]
    refused: list[tuple[str, str]]
    drops: list[int]


def meet(dialer: Greetings, acceptor: Greetings, now: float = 0.0, change: Change = bytes) -> Met:
    """Connect two nodes by link 1; pass their frames both ways, as `change` makes them."""
    dialer.link_up(1, "tcp://there", "tcp://b:1", now)
    acceptor.link_up(1, "tcp://here", None, now)
    passed: list[bytes] = []
    refused: list[tuple[str, str]] = []
    drops: list[int] = []
    ends, turn = (dialer, acceptor), 0
    while True:
        effects = ends[turn].take()
        if turn == 0:
            refused += effects.refused
            drops += effects.drops
        turn = 1 - turn
        if turn == 0 and not effects.sends:
            break
        for _, sent in effects.sends:
            frame = change(sent)
            passed.append(frame)
            there = ends[turn]
            if there.knows(1) and there.opened(1) is None:
                try:
                    there.greet(1, parse_local(frame, limit=65536), now)
                except (BadMessage, TooLarge):
                    there.end(1, now)
    return Met(dialer.opened(1), acceptor.opened(1), passed, refused, drops)


def test_both_ends_use_a_link_that_is_admitted() -> None:
    a, c = make("a"), make("c")
    there, here, *_ = meet(a, c)
    assert there is not None
    assert here is not None
    assert (a.opened(1), c.opened(1)) == (there, here)
    assert (there.id, here.id, here.voter) == ("c", "a", False)


@pytest.mark.parametrize(
    ("dialer", "acceptor", "why"),
    [
        (make("a", token="x"), make("c"), "wrong token"),
        (make("a", token=None), make("c"), "demands a token"),
        (make("a", cluster="barn"), make("c"), "the cluster 'farm', not 'barn'"),
        (make("c"), make("c"), "the node itself"),
    ],
)
def test_a_node_that_is_not_admitted_is_told_why(dialer: Greetings, acceptor: Greetings, why: str) -> None:
    met = meet(dialer, acceptor)
    assert len(met.refused) == 1
    assert why in met.refused[0][1]
    assert not acceptor.knows(1)
    assert met.drops == [1]


def test_an_authenticator_of_the_program_decides_by_id_and_address() -> None:
    seen: list[Applicant] = []

    def authenticator(applicant: Applicant) -> bool:
        seen.append(applicant)
        return applicant.address.startswith("tcp://here")

    for token in ("s", None):
        c = make("c", token=token, authenticator=authenticator)
        assert meet(make("a", token=token), c)[0] is not None
        assert meet(make("b", token=None), make("c", token=token, authenticator=authenticator))[0] is not None
    assert [(each.id, each.token) for each in seen] == [("a", "s"), ("b", None), ("a", None), ("b", None)]


def test_voters_dial_each_other_once_and_again_after_a_loss() -> None:
    a, b = make("a", voters=VOTERS), make("b", voters=VOTERS)
    a.tick(0.0)
    b.tick(0.0)
    assert a.take().dials == ["tcp://b:1"]
    assert b.take().dials == []  # the voter with the smaller id dials
    there, *_ = meet(a, b)
    assert there is not None
    assert (a.voter_link("b"), b.voter_link("a")) == (1, 1)
    assert a.link_down(1, 1.0) is not None
    assert a.voter_link("b") is None
    a.tick(3.0)
    assert a.take().dials == ["tcp://b:1"]


def test_a_failed_dial_of_the_tree_is_not_taken_for_one_of_a_voter() -> None:
    a = make("a", voters=VOTERS)
    a.tick(0.0)
    assert a.dial_failed("tcp://b:1", 0.0)
    assert not a.dial_failed("tcp://b:1", 0.0)


def test_a_stranger_is_no_voter() -> None:
    c, b = make("c", voters={"b": "tcp://b:1", "c": "tcp://c:1", "d": "tcp://d:1"}), make("b", voters=VOTERS)
    c.tick(0.0)
    c.take()
    b.link_up(1, "tcp://here", None, 0.0)
    frame = greeting_frame(Greeting("farm", "c", 1, True))
    assert b.greet(1, parse_local(frame, limit=1000), 0.0) is None
    assert "not one of this node's voters" in b.take().warnings[0]


def test_a_link_that_does_not_greet_and_a_silent_voter_are_dropped() -> None:
    a, b = make("a", voters=VOTERS), make("b", voters=VOTERS)
    a.link_up(9, "tcp://mute", None, 0.0)
    a.tick(0.0)
    link, *_ = meet(a, b)
    assert link is not None
    now = 0.0
    for at in range(1, 6):
        now = at * SILENCE / 2
        link.heard = now
        assert a.tick(now) == []
        assert a.take().drops == ([9] if now >= GREETING > now - SILENCE / 2 else [])
    ended = a.tick(now + SILENCE)
    assert [one.id for one in ended] == ["b"]
    assert a.voter_link("b") is None


def test_a_permission_that_ends_ends_the_link() -> None:
    c = make("c", authenticator=lambda _: 100.0)
    meet(make("a"), c)
    assert c.tick(99.0) == []
    assert [one.id for one in c.tick(100.0)] == ["a"]
    assert c.take().drops == [1]


def raising(error: BaseException) -> Authenticator:
    def authenticator(applicant: Applicant) -> bool:
        raise error

    return authenticator


class Dumb(Exception):
    def __str__(self) -> str:
        raise ValueError


async def admit(applicant: Applicant) -> bool:
    return True


@pytest.mark.parametrize(
    ("authenticator", "says"),
    [
        (raising(ConnectionError("the database is away")), "it raised ConnectionError: the database is away"),
        (raising(SystemExit(3)), "it raised SystemExit: 3"),
        (raising(BaseExceptionGroup("two", [SystemExit(3), ValueError()])), "it raised BaseExceptionGroup"),
        (raising(Dumb()), "it raised Dumb"),
        (admit, "it is async"),
        (lambda _: "yes", "it returned str"),
        (lambda _: float("nan"), "it returned float"),
        (lambda _: 10**400, "it raised OverflowError"),
        (lambda _: object(), "it returned object"),
    ],
)
def test_an_authenticator_that_fails_refuses_its_applicant_alone(authenticator: Any, says: str) -> None:
    c = make("c", token=None, authenticator=authenticator)
    for turn in range(3):
        a = make("a", token=None)
        a.link_up(1, "tcp://there", "tcp://b:1", 10.0)
        c.link_up(1, "tcp://here", None, 10.0)
        assert c.greet(1, parse_local(a.take().sends[0][1], limit=65536), 10.0) is None
        refusal = c.take()
        assert a.greet(1, parse_local(refusal.sends[0][1], limit=65536), 10.0) is None
        assert a.take().refused == [("tcp://b:1", "the authenticator has failed")]  # not why: that is for the log
        assert not c.knows(1)
        assert (says in refusal.warnings[0]) == ("'a' at tcp://here" in refusal.warnings[0]) == (turn == 0)


def test_ctrl_c_in_an_authenticator_is_no_failure_of_it() -> None:
    for error in (KeyboardInterrupt(), BaseExceptionGroup("two", [KeyboardInterrupt(), ValueError()])):
        with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
            meet(make("a"), make("c", authenticator=raising(error)), now=10.0)


@pytest.mark.parametrize(
    ("verdict", "why"), [(0, "not admitted"), ("", "not admitted"), (-1.0, "has ended"), (10.0, "has ended")]
)
def test_a_time_that_is_over_is_a_refusal(verdict: Any, why: str) -> None:
    a, c = make("a"), make("c", authenticator=lambda _: verdict)
    met = meet(a, c, now=10.0)
    assert met[:2] == (None, None)
    assert why in met.refused[0][1]
    assert not c.knows(1)


@pytest.mark.parametrize(
    "row",
    [[0], [15], [15, 2, "farm", "a", 1, False, None, None], [15, 1, "farm", "", 1, False, None, None], [14, "no"]],
)
def test_a_first_frame_that_is_no_greeting_is_refused(row: list[object]) -> None:
    c = make("c")
    c.link_up(1, "tcp://here", None, 0.0)
    with pytest.raises(BadMessage, match=r"tcp://here"):
        c.greet(1, row, 0.0)


# Proofs

UNTIL = 50.0
OF_A = issue_ticket("s", "farm", until=UNTIL, id="a")
OF_B = issue_ticket("s", "farm", until=UNTIL, id="b")
OF_ALL = issue_ticket("s", "farm", until=UNTIL)
FORGED = issue_ticket("guess", "farm", until=UNTIL, id="a")


@pytest.mark.parametrize(
    ("dialer", "acceptor", "why"),
    [
        (make("a"), make("c"), None),
        (make("a", token=None), make("c", token=None), None),
        (make("a", token=None, ticket=OF_A), make("c"), None),
        (make("a", token=None, ticket=OF_ALL), make("c"), None),
        (make("c"), make("a", token=None, ticket=OF_A), None),
        (make("a", token=None, ticket=OF_ALL), make("c", token=None, ticket=OF_ALL), None),
        (make("a", token="guess"), make("c"), "wrong token"),
        (make("a", token=None), make("c"), "demands a token or a ticket"),
        (make("a", token=None), make("c", token=None, ticket=OF_ALL), "demands the token"),
        (make("a", token=None, ticket=FORGED), make("c"), "not signed"),
        (make("a", token=None, ticket="no ticket"), make("c"), "not signed"),
        (make("a", token=None, ticket=OF_B), make("c"), "for 'b'"),
        (make("a", token=None, ticket=issue_ticket("s", "farm", until=-5.0)), make("c"), "expired 5 s ago"),
        (make("a", token=None, ticket=issue_ticket("s", "barn", until=9.0)), make("c"), "for the cluster 'barn'"),
        (make("a", token=None, ticket=OF_A), make("b", token=None, ticket=OF_B), "neither of both"),
        (make("a"), make("c", token="guess", authenticator=lambda _: True), "wrong token"),
        (make("a"), make("c", token=None, authenticator=lambda _: True), "does not prove"),
        (make("a"), make("c", token=None, ticket=FORGED, authenticator=lambda _: True), "wrong token"),
        (make("c"), make("a", token=None, ticket=OF_B), "for 'b'"),
    ],
)
def test_both_ends_prove_the_token_or_a_ticket(dialer: Greetings, acceptor: Greetings, why: str | None) -> None:
    met = meet(dialer, acceptor)
    if why is None:
        assert met.there is not None
        assert met.here is not None
        assert met.refused == []
    else:
        assert met.there is None
        assert len(met.refused) == 1
        assert why in met.refused[0][1]
        assert not dialer.knows(1)


def parse(frame: bytes) -> FirstFrame:
    return parse_greeting(parse_local(frame, limit=65536), None)


def test_nothing_that_passes_is_a_secret() -> None:
    for token, ticket in (("s3cret token", None), (None, OF_ALL)):
        a, c = make("a", token=token, ticket=ticket), make("c", token=token or "s")
        met = meet(a, c)
        assert met.there is not None
        passed = b"".join(met.passed)
        assert b"s3cret token" not in passed
        assert urlsafe_b64decode(OF_ALL)[:32] not in passed
        assert OF_ALL.encode() not in passed


@pytest.mark.parametrize(
    ("ticket", "why"), [(OF_B, None), (OF_ALL, "a voter needs the token, or a ticket for 'b'"), (OF_A, "for 'a'")]
)
def test_a_voter_needs_the_token_or_a_ticket_for_its_id(ticket: str, why: str | None) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        mine = ticket if name == "b" else {OF_A: OF_B, OF_B: OF_A}.get(ticket, ticket)
        ends = {name: make(name, token=None, ticket=mine, voters=VOTERS), other: make(other, voters=VOTERS)}
        ends["a"].tick(0.0)
        assert ends["a"].take().dials == ["tcp://b:1"]
        met = meet(ends["a"], ends["b"])
        if why is None:
            assert met.there is not None
            assert met.there.voter
        else:
            assert (met.there if name == "b" else met.here) is None
            why_here = why.replace("'a'", "'other'").replace("'b'", f"'{name}'").replace("'other'", f"'{other}'")
            assert why_here in met.refused[0][1]


def test_a_permission_by_ticket_ends_at_both_ends() -> None:
    holder, other = make("a", token=None, ticket=OF_A), make("c", authenticator=lambda _: 1e9)
    assert meet(holder, other)[0] is not None
    assert [one.id for one in other.tick(UNTIL)] == ["a"]
    dialer, acceptor = make("c"), make("a", token=None, ticket=OF_A)
    assert meet(dialer, acceptor)[0] is not None
    assert [one.id for one in dialer.tick(UNTIL)] == ["a"]


@given(at=st.integers(0, 4), bit=st.integers(0, 2000))
def test_a_link_whose_frames_were_changed_is_not_open_at_both_ends(at: int, bit: int) -> None:
    a, c = make("a"), make("c")
    number, same = 0, False

    def change(frame: bytes) -> bytes:
        nonlocal number, same
        number += 1
        if number - 1 != at:
            return frame
        data = bytearray(frame)
        data[bit // 8 % len(data)] ^= 1 << bit % 8
        with suppress(BadMessage, TooLarge):  # the version of a greeting is not part of it
            same = parse(bytes(data)) == parse(frame)
        return bytes(data)

    meet(a, c, change=change)
    assert number > at
    assert a.opened(1) is None or c.opened(1) is None or same or at == 4


def test_proofs_of_another_link_are_worth_nothing() -> None:
    a, c = make("a"), make("c")
    hello, challenge, proof, answer, greeting = meet(a, c).passed
    c.link_up(2, "tcp://stranger", None, 0.0)
    for frame in (hello, proof):
        c.greet(2, parse_local(frame, limit=1000), 0.0)
    assert c.opened(2) is None
    assert "wrong token" in c.take().warnings[-1]
    fresh = make("a", run=2)
    fresh.link_up(2, "tcp://stranger", "tcp://b:1", 0.0)
    for frame in (challenge, answer, greeting):
        if fresh.knows(2):
            fresh.greet(2, parse_local(frame, limit=1000), 0.0)
    assert fresh.opened(2) is None
    assert fresh.take().refused[0][1].startswith("it does not prove")


def test_a_stranger_cannot_answer_with_the_dialers_own_proof() -> None:
    a = make("a")
    a.link_up(1, "tcp://stranger", "tcp://b:1", 0.0)
    a.greet(1, parse_local(greeting_frame(Challenge("c", 1, bytes(16), b"")), limit=1000), 0.0)
    proof = parse_greeting(parse_local(a.take().sends[-1][1], limit=1000), None)
    assert isinstance(proof, Proof)
    a.greet(1, parse_local(greeting_frame(proof), limit=1000), 0.0)
    assert a.opened(1) is None
    assert a.take().refused == [("tcp://b:1", NO_PROOF)]


def test_a_node_of_an_earlier_version_is_told_why_it_is_refused() -> None:
    c = make("c")
    c.link_up(1, "tcp://here", None, 0.0)
    c.greet(1, parse_local(greeting_frame(Greeting("farm", "a", 1, False, "s")), limit=1000), 0.0)
    told = parse_greeting(parse_local(c.take().sends[0][1], limit=1000), None)
    assert told == Refusal(EARLIER)


@pytest.mark.parametrize(
    "frames",
    [
        [Proof(bytes(16), b"", b"x")],
        [Challenge("x", 1, bytes(16), b"")],
        [Greeting("farm", "a", 1, False), Greeting("farm", "a", 1, False)],
        [Greeting("farm", "a", 1, False), Challenge("x", 1, bytes(16), b"")],
    ],
)
def test_frames_out_of_turn_are_refused(frames: list[FirstFrame]) -> None:
    c = make("c")
    c.link_up(1, "tcp://here", None, 0.0)
    for frame in frames[:-1]:
        c.greet(1, parse_local(greeting_frame(frame), limit=1000), 0.0)
    with pytest.raises(BadMessage, match="was not expected"):
        c.greet(1, parse_local(greeting_frame(frames[-1]), limit=1000), 0.0)
