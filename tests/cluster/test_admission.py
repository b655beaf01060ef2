"""Admission by token and ticket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.cluster.admission import Applicant, TokenAuthenticator, issue_ticket, read_ticket
from nngkit.errors import AccessDenied

NOW = 1_000_000.0


def decide(demanded: str | None, *, token: str | None = None, ticket: str | None = None) -> float | bool:
    return TokenAuthenticator("farm", demanded, lambda: NOW)(Applicant("b", "tcp://b:1", token, ticket))


def test_without_a_token_all_are_admitted() -> None:
    assert decide(None) is True


def test_the_token_is_demanded() -> None:
    assert decide("secret", token="secret") is True
    with pytest.raises(AccessDenied, match="wrong token"):
        decide("secret", token="other")
    with pytest.raises(AccessDenied, match="demands a token or a ticket"):
        decide("secret")


def test_a_ticket_admits_until_its_end() -> None:
    assert decide("secret", ticket=issue_ticket("secret", "farm", until=NOW + 5)) == NOW + 5
    assert decide("secret", ticket=issue_ticket("secret", "farm", until=NOW + 5, id="b")) == NOW + 5


@pytest.mark.parametrize(
    ("ticket", "why"),
    [
        (issue_ticket("other", "farm", until=NOW + 5), "not signed"),
        (issue_ticket("secret", "barn", until=NOW + 5), "for the cluster 'barn'"),
        (issue_ticket("secret", "farm", until=NOW + 5, id="c"), "for 'c'"),
        (issue_ticket("secret", "farm", until=NOW - 5), "expired 5 s ago"),
        ("", "not signed"),
        ("a", "not one"),
        ("é", "not one"),
    ],
)
def test_a_ticket_that_does_not_fit_is_refused(ticket: str, why: str) -> None:
    with pytest.raises(AccessDenied, match=why):
        decide("secret", ticket=ticket)


names = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=16)


@given(names, names | st.just(""), st.floats(0, 1e12), st.integers(0, 10_000), st.integers(1, 255))
def test_a_ticket_that_was_changed_is_refused(cluster: str, id: str, until: float, at: int, by: int) -> None:
    text = issue_ticket("secret", cluster, until=until, id=id)
    ticket = read_ticket("secret", text)
    assert (ticket.cluster, ticket.id, ticket.until) == (cluster, id, until)
    data = bytearray(text.encode())
    data[at % len(data)] ^= by
    if (changed := data.decode(errors="replace")) != text:
        try:
            again = read_ticket("secret", changed)
        except AccessDenied:
            return
        assert again == ticket  # only bits that base64 ignores


def test_a_ticket_in_a_command_line_does_not_look_like_an_option() -> None:
    for until in range(1_000_000_000, 1_000_001_000):
        ticket = issue_ticket("s3cret", "c", until=until)
        assert not ticket.startswith("-")
        assert read_ticket("s3cret", ticket).until == until
