"""Greetings: admission of links, and the links between voters."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from nngkit.cluster.admission import Applicant, Authenticator, TokenAuthenticator
from nngkit.cluster.frames import Greeting, greeting_frame, parse_local
from nngkit.cluster.node.greetings import GREETING, SILENCE, Greetings, GreetingsEffects, NodeLink
from nngkit.errors import BadMessage

VOTERS = {"a": "tcp://a:1", "b": "tcp://b:1"}


def make(id: str, *, token: str | None = "s", voters: dict[str, str] | None = None, cluster: str = "farm") -> Greetings:
    others = {name: at for name, at in (voters or {}).items() if name != id}
    return Greetings(
        Greeting(cluster, id, ord(id[0]), False, token),
        others,
        TokenAuthenticator(cluster, token, lambda: 0.0),
        rng=Random(1),
        now=0.0,
        wall=lambda now: now,
    )


def meet(
    dialer: Greetings, acceptor: Greetings, dialed: str = "tcp://b:1", now: float = 0.0
) -> tuple[NodeLink | None, NodeLink | None]:
    """Connect two nodes; return the link, number 1, as each has it."""
    dialer.link_up(1, "tcp://there", dialed, now)
    acceptor.link_up(1, "tcp://here", None, now)
    heard = answered = None
    for _, frame in dialer.take().sends:
        heard = acceptor.greet(1, parse_local(frame, limit=65536), now)
    effects = acceptor.take()
    for _, frame in effects.sends:
        answered = dialer.greet(1, parse_local(frame, limit=65536), now)
    return answered and answered[0], heard and heard[0]


def test_both_ends_use_a_link_that_is_admitted() -> None:
    a, c = make("a"), make("c")
    there, here = meet(a, c)
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
    meet(dialer, acceptor)
    effects: GreetingsEffects = dialer.take()
    assert len(effects.refused) == 1
    assert why in effects.refused[0][1]
    assert not acceptor.knows(1)
    assert effects.drops == [1]


def test_an_authenticator_of_the_program_decides_by_id_and_address() -> None:
    seen: list[Applicant] = []

    def authenticator(applicant: Applicant) -> bool:
        seen.append(applicant)
        return applicant.address.startswith("tcp://here")

    c = Greetings(Greeting("farm", "c", 1, False), {}, authenticator, rng=Random(1), now=0.0, wall=lambda now: now)
    assert meet(make("a"), c)[0] is not None
    assert (seen[0].id, seen[0].token) == ("a", "s")


def test_voters_dial_each_other_once_and_again_after_a_loss() -> None:
    a, b = make("a", voters=VOTERS), make("b", voters=VOTERS)
    a.tick(0.0)
    b.tick(0.0)
    assert a.take().dials == ["tcp://b:1"]
    assert b.take().dials == []  # the voter with the smaller id dials
    there, _ = meet(a, b)
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
    frame = greeting_frame(Greeting("farm", "c", 1, True, "s"))
    assert b.greet(1, parse_local(frame, limit=1000), 0.0) is None
    assert "not one of this node's voters" in b.take().warnings[0]


def test_a_link_that_does_not_greet_and_a_silent_voter_are_dropped() -> None:
    a, b = make("a", voters=VOTERS), make("b", voters=VOTERS)
    a.link_up(9, "tcp://mute", None, 0.0)
    a.tick(0.0)
    link, _ = meet(a, b)
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
    c = Greetings(Greeting("farm", "c", 1, False), {}, lambda _: 100.0, rng=Random(1), now=0.0, wall=lambda now: now)
    meet(make("a"), c)
    assert c.tick(99.0) == []
    assert [one.id for one in c.tick(100.0)] == ["a"]
    assert c.take().drops == [1]


def make_deciding(authenticator: Authenticator) -> Greetings:
    return Greetings(Greeting("farm", "c", 1, False), {}, authenticator, rng=Random(1), now=9.0, wall=lambda now: now)


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
    c = make_deciding(authenticator)
    for turn in range(3):
        a = make("a")
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
            meet(make("a"), make_deciding(raising(error)), now=10.0)


@pytest.mark.parametrize(
    ("verdict", "why"), [(0, "not admitted"), ("", "not admitted"), (-1.0, "has ended"), (10.0, "has ended")]
)
def test_a_time_that_is_over_is_a_refusal(verdict: Any, why: str) -> None:
    a, c = make("a"), make_deciding(lambda _: verdict)
    assert meet(a, c, now=10.0) == (None, None)
    assert why in a.take().refused[0][1]
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
