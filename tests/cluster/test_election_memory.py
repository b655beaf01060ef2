"""Voters that lost their memory: what they may not say, and how they get it back."""

from __future__ import annotations

from msgspec.structs import replace

from nngkit.cluster.election.messages import (
    AppendReply,
    RecoverReply,
    SnapshotReply,
    Stale,
    Stand,
    Survey,
    SurveyReply,
)
from nngkit.cluster.election.values import (
    Recovered,
)
from tests.cluster.one_voter import (
    EPOCH,
    HEARTBEAT,
    LEASE,
    Site,
    ack,
    append,
    heartbeat,
    host,
    part,
    stamp,
)


def blank(voters: str = "abc") -> Site:
    return Site(voters, durable=False)


def knows(
    nonce: int,
    *,
    number: int = 1,
    epoch: int = EPOCH,
    term: int = 6,
    hosting: bool = False,
    last: int = 0,
    blank: bool = False,
    epochs: tuple[tuple[str, int], ...] = (),
) -> RecoverReply:
    return RecoverReply(epoch, nonce, number, blank, term, hosting, 6 if last else 0, last, epochs, ())


def test_a_blank_voter_acknowledges_promises_and_votes_nothing() -> None:
    site = blank()
    for message in (append(6, (0, 0), 6, b"x"), heartbeat(6, (1, 6))):
        [reply] = site.hear("b", message)
        assert isinstance(reply, AppendReply)
        assert reply.blank
        assert not reply.stamp
    [reply] = site.hear("b", part(2, b"one"))
    assert isinstance(reply, SnapshotReply)
    assert reply.blank
    assert not reply.stamp
    site.wait(2 * LEASE)
    assert not site.votes_for("c", 7)
    site.hear("c", Stand(EPOCH, 7, 0))
    assert site.role == "blank"
    [reply] = site.hear("c", Survey(EPOCH, 7, 1))
    assert isinstance(reply, SurveyReply)
    assert reply.blank
    assert not reply.beyond


def test_a_blank_voter_counts_neither_for_a_commit_nor_for_the_lease() -> None:
    site = host()
    site.hear("b", ack(1, sent=site.now, blank=True))
    assert site.voter.commit == 0
    assert not site.leads
    site.hear("b", SnapshotReply(EPOCH, 6, 1, 0, stamp(site.now), True))
    assert not site.leads
    site.hear("b", ack(1, sent=site.now))
    assert site.voter.commit == 1
    assert site.leads


def test_what_a_voter_acknowledged_before_it_lost_its_memory_does_not_count() -> None:
    site = host("abcde")
    site.hear("b", ack(1))
    site.hear("b", Survey(EPOCH + 1, 6, 1))
    site.hear("c", ack(1))
    assert site.voter.commit == 0
    assert Stale(EPOCH, EPOCH + 1) in site.hear("b", ack(1))  # on its way since before
    assert site.voter.commit == 0
    site.hear("d", ack(1))
    assert site.voter.commit == 1


def test_a_blank_voter_needs_the_log_of_the_host_of_the_last_term_a_majority_knows() -> None:
    site = blank("abcde")
    site.hear("b", append(6, (0, 0), 6, b"x", b"y"))
    site.hear("b", knows(EPOCH, hosting=True, last=2))
    site.hear("c", knows(EPOCH))
    assert site.role == "blank"  # a majority may be in a later term, without `b` and `c`
    site.hear("d", knows(EPOCH, term=7))
    assert site.role == "blank"
    site.hear("e", knows(EPOCH, term=7, hosting=True, last=3))
    site.hear("e", append(7, (2, 6), 6))
    assert site.role == "blank"
    site.hear("e", append(7, (2, 6), 7, b"z"))
    assert site.role == "follower"
    assert Recovered("recovered") in site.events


def test_a_voter_that_recovered_keeps_the_promise_of_its_earlier_run_and_the_vote_for_the_host() -> None:
    site = blank()
    site.hear("b", heartbeat(6))
    site.wait(LEASE - 0.01)  # all of its time as a blank voter counts for nothing
    site.hear("b", knows(EPOCH, hosting=True))
    site.hear("c", knows(EPOCH))
    assert site.role == "follower"
    site.wait(LEASE - 0.02)
    assert not site.votes_for("c", 7)
    site.wait(0.04)
    assert not site.votes_for("c", 6)
    assert site.votes_for("c", 7)


def test_answers_to_an_earlier_run_do_not_count() -> None:
    site = blank()
    site.hear("b", append(6, (0, 0), 6, b"x"))
    site.hear("b", knows(EPOCH - 1, hosting=True, last=1))
    site.hear("c", knows(EPOCH - 1))
    assert site.role == "blank"
    site.hear("b", knows(EPOCH, hosting=True, last=1))
    later = EPOCH + 11
    site.hear("c", knows(EPOCH, epochs=(("a", later - 1),)))  # its clock was ahead when it ran before
    assert site.voter.epoch == later
    site.hear("c", knows(EPOCH))
    site.hear("c", knows(later))
    assert site.role == "blank"  # `b` answered when it did not know this epoch yet
    site.hear("b", knows(later, hosting=True, last=1))
    assert site.role == "follower"


def test_a_blank_voter_learns_of_others_that_run_anew() -> None:
    site = blank()
    site.hear("b", knows(EPOCH, epochs=(("c", EPOCH + 3),)))
    assert site.hear("c", Survey(EPOCH, 6, 1)) == [Stale(EPOCH, EPOCH + 3)]


def answer(site: Site, number: int, one: RecoverReply, other: RecoverReply) -> None:
    """Let `b` and `c` answer in a round of a blank voter."""
    site.hear("b", replace(one, number=number))
    site.hear("c", replace(other, number=number))


def test_a_cluster_begins_once_all_voters_were_blank_at_one_moment() -> None:
    site = blank()
    lost = knows(EPOCH, blank=True, term=0)
    first = site.round
    answer(site, first, lost, lost)
    assert site.role == "blank"  # each was blank, but not as yet all at one moment
    answer(site, first, lost, lost)  # repeated on the way
    assert site.role == "blank"
    anew = replace(lost, epoch=EPOCH + 7000)
    answer(site, first + 1, anew, lost)
    assert site.role == "blank"  # between the rounds, the earlier run of `b` may have known everything
    answer(site, first + 2, anew, lost)
    assert Recovered("began") in site.events
    assert site.voter.term == (EPOCH + 7000) // 1000  # after all terms of a cluster whose memory is lost


def test_a_voter_that_was_blank_when_the_cluster_began_but_runs_anew_does_not_begin_it_again() -> None:
    site = blank()
    site.hear("b", replace(knows(EPOCH), began=(("a", EPOCH - 1), ("b", EPOCH), ("c", EPOCH))))
    assert site.role == "blank"
    site.hear("b", replace(knows(EPOCH), began=(("a", EPOCH), ("b", EPOCH), ("c", EPOCH))))
    assert Recovered("began") in site.events


def test_a_last_resort_votes_for_the_best_survivor_only_and_not_before_a_majority_is_lost() -> None:
    site = blank()
    site.wait(LEASE + HEARTBEAT)
    first = site.round
    lost, state = knows(EPOCH, blank=True, term=0), knows(EPOCH, last=3)
    answer(site, first, lost, state)
    assert not site.votes_for("c", 7, (6, 3))
    answer(site, first + 1, lost, state)
    assert not site.votes_for("b", 7, (6, 9))  # it knows nothing
    assert not site.votes_for("c", 7, (6, 2))
    assert site.votes_for("c", 8, (6, 3))
