"""Leases and promises of voters: no two hosts act at a time, with the clocks that differ most."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nngkit.cluster.election.messages import (
    AppendReply,
    SnapshotReply,
    Stand,
    Survey,
    SurveyReply,
)
from nngkit.cluster.election.voter import NotHost
from tests.cluster.one_voter import (
    EPOCH,
    HEARTBEAT,
    LEASE,
    Site,
    ack,
    free,
    heartbeat,
    host,
    stamp,
)

# ---- lease


def test_no_vote_is_granted_while_the_lease_lasts_with_the_clocks_that_differ_most() -> None:
    one, other = host(), Site(id="b")
    other.wait(LEASE + HEARTBEAT)  # the promise of its start is over
    began_one, began_other = one.now, other.now
    [reply] = other.hear("a", heartbeat(6))
    assert isinstance(reply, AppendReply)
    one.hear("b", replace(reply, stamp=stamp(one.now)))
    assert one.leads
    for millisecond in range(1000):
        one.now = began_one + 0.9 * millisecond / 1000  # the slowest clock that is allowed for
        other.now = began_other + 1.1 * millisecond / 1000  # the fastest
        if other.votes_for("c", 7):
            break
    assert other.now >= began_other + LEASE - 0.001
    assert not one.leads


def test_a_lease_counts_from_when_its_heartbeat_was_sent() -> None:
    site = host()
    sent = site.now
    site.now = sent + 0.3
    site.hear("b", ack(0, sent=sent))
    assert site.leads
    site.now = sent + 0.8 * LEASE + 0.001
    assert not site.leads
    site.hear("b", ack(0, sent=sent))
    assert not site.leads


def test_a_lease_needs_answers_of_a_majority() -> None:
    site = host("abcde")
    sent = site.now
    site.hear("b", ack(0, sent=sent))
    assert not site.leads
    site.now = sent + 0.2
    site.hear("c", ack(0, sent=site.now))
    assert site.leads
    site.now = sent + 0.8 * LEASE + 0.001  # the earlier answer counts: `b` may vote again
    assert not site.leads


def test_a_lease_ends_with_the_restart_of_a_voter_it_depends_on() -> None:
    site = host()
    site.hear("b", ack(0, sent=site.now))
    assert site.leads
    site.hear("b", Survey(EPOCH + 1, 6, 1))
    assert not site.leads


def test_a_host_that_stalled_does_not_have_its_lease_still() -> None:
    site = host()
    site.hear("b", ack(0, sent=site.now))
    site.now += 10.0
    assert not site.leads
    site.hear("c", heartbeat(5))
    assert not site.leads


def test_a_clock_that_steps_back_ends_lease_and_office() -> None:
    site = host()
    site.hear("b", ack(0, sent=site.now))
    assert site.leads
    assert not site.voter.holds_lease(site.now - 0.1)
    site.now -= 0.1
    site.voter.tick(site.now)
    assert not site.leads
    with pytest.raises(NotHost):
        site.voter.propose([b"x"], site.now)


def test_a_host_that_hears_of_a_later_term_steps_down() -> None:
    site = host()
    assert not site.voter.outranked(6, site.now), "it is the own one"
    assert not site.voter.outranked((1 << 53) - 1, site.now), "there is none after it"
    assert site.role == "host"
    assert site.voter.outranked(9, site.now)
    assert (site.role, site.voter.term) == ("follower", 9)
    assert not site.votes_for("b", 8)
    assert not site.voter.outranked(12, site.now), "only a host's office can end"
    assert site.voter.term == 9


def test_the_only_voter_is_host_of_a_term_after_any_that_a_node_knows() -> None:
    site = Site("a", term=5)
    assert (site.role, site.voter.term) == ("host", 6)
    assert site.voter.outranked(9, site.now)
    site.write()
    assert (site.role, site.voter.term) == ("host", 10)
    site.restart()
    assert (site.role, site.voter.term) == ("host", 11), "it was stored"


def test_an_answer_to_a_heartbeat_of_the_future_gives_no_lease() -> None:
    site = host()
    site.hear("b", ack(0, sent=site.now + 10.0))
    assert not site.leads


def test_a_handover_ends_the_lease_before_another_may_stand() -> None:
    site = host()
    site.hear("b", ack(1, sent=site.now))
    assert site.leads
    site.voter.step_down(site.now)
    assert ("b", Stand(EPOCH, 6, 6)) in site.write()
    assert not site.leads
    with pytest.raises(NotHost):
        site.voter.propose([b"x"], site.now)


def test_a_handover_waits_for_a_voter_with_the_whole_log() -> None:
    site = host()
    site.hear("b", ack(1, sent=site.now))
    site.voter.propose([b"x"], site.now)
    site.voter.step_down(site.now)
    site.write()
    assert site.leads
    assert Stand(EPOCH, 6, 6) in site.hear("b", ack(2, sent=site.now))


def test_answers_of_an_earlier_term_give_no_lease_and_commit_nothing() -> None:
    site = host(term=7, log=(6,))
    site.hear("b", ack(2, term=6, sent=site.now))
    assert not site.leads
    assert site.voter.commit == 0
    site.hear("b", SnapshotReply(EPOCH, 6, 1, 0, stamp(site.now), False))
    assert not site.leads


# ---- promises


def test_a_voter_that_promised_votes_for_no_other_until_a_lease_is_over() -> None:
    site = free()
    site.hear("b", heartbeat(6))
    site.wait(LEASE - 0.01)
    assert not site.votes_for("c", 7)
    assert site.voter.term == 6  # nor does a refused candidate depose the host by its term
    site.hear("c", Stand(EPOCH, 6, 0))
    assert site.role == "follower"
    site.wait(0.02)
    assert site.votes_for("c", 7)


def test_a_voter_that_stalled_keeps_its_promise() -> None:
    site = free()
    site.hear("b", heartbeat(6))
    site.now += 100.0  # how much of it the host has seen is not known
    assert not site.votes_for("c", 7)
    site.wait(LEASE)
    assert site.votes_for("c", 7)


def test_a_voter_that_comes_back_waits_for_the_lease_that_it_may_have_promised() -> None:
    site = free()
    site.hear("b", heartbeat(6))
    site.restart()
    site.wait(LEASE - 0.01)
    assert not site.votes_for("c", 7)
    site.wait(0.02)
    assert site.votes_for("c", 7)


def test_a_host_with_a_lease_votes_for_no_other() -> None:
    site = host()
    site.hear("b", ack(0, sent=site.now))
    assert not site.votes_for("c", 7)
    assert site.leads
    site.now += 0.8 * LEASE + 0.001
    assert site.votes_for("c", 7)
    assert site.role == "follower"


def test_a_handover_frees_from_the_promise_to_that_term_only() -> None:
    site = free()
    site.hear("b", heartbeat(6))
    site.hear("c", heartbeat(7))
    assert not site.votes_for("b", 8, over=6)
    site.hear("b", Stand(EPOCH, 6, 6))
    assert site.role == "follower"
    assert site.votes_for("b", 8, over=7)


def test_what_voters_answered_to_an_earlier_survey_is_not_taken_for_their_present_state() -> None:
    site = Site()
    number = 0
    while number < 2:
        site.now += HEARTBEAT
        site.voter.tick(site.now)
        for _, message in site.write():
            if isinstance(message, Survey):
                number = message.number
    state = SurveyReply(EPOCH, 5, number, 0, False, False, False, 0, 0, 0, 0)  # unwilling, so that this voter stands
    for voter in "bc":
        site.hear(voter, replace(state, number=number - 1))
    assert site.role == "follower"
    for voter in "bc":
        site.hear(voter, state)
    assert site.role == "candidate"
