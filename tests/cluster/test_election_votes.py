"""Votes, logs that differ, and snapshots: messages of other terms, candidacies and snapshots do not count."""

from __future__ import annotations

import pytest

from nngkit.cluster.election.log import Snapshot
from nngkit.cluster.election.messages import (
    SnapshotReply,
    Stand,
    Survey,
    VoteReply,
    VoteRequest,
)
from tests.cluster.one_voter import (
    EPOCH,
    LEASE,
    ack,
    append,
    candidate,
    free,
    heartbeat,
    host,
    matches,
    part,
)

# ---- votes


def test_a_vote_of_an_earlier_term_does_not_count() -> None:
    site = candidate(term=7)
    site.hear("b", VoteReply(EPOCH, 6, True, ()))
    assert site.role == "candidate"


def test_a_refusal_is_no_vote() -> None:
    site = candidate()
    site.hear("b", VoteReply(EPOCH, 6, False, ()))
    assert site.role == "candidate"


def test_votes_of_one_candidacy_do_not_count_in_the_next() -> None:
    site = candidate("abcde")
    site.hear("b", VoteReply(EPOCH, 6, True, ()))
    site.wait(2 * LEASE)
    assert site.role == "follower"
    site.hear("b", Stand(EPOCH, 6, 0))
    site.hear("c", VoteReply(EPOCH, 7, True, ()))
    assert site.role == "candidate"
    site.hear("d", VoteReply(EPOCH, 7, True, ()))
    assert site.role == "host"


def test_a_request_of_an_earlier_term_gets_no_vote_and_costs_none() -> None:
    site = free(term=6)
    [reply] = site.hear("b", VoteRequest(EPOCH, 5, 99, 99, 0))
    assert reply == VoteReply(EPOCH, 6, False, ())
    assert site.votes_for("c", 6)


@pytest.mark.parametrize("last", [(4, 9), (5, 1), (0, 0)])
def test_no_vote_for_a_log_that_lacks_entries(last: tuple[int, int]) -> None:
    site = free(log=(5, 5))
    assert not site.votes_for("b", 6, last)
    assert site.votes_for("c", 6, (5, 2))


def test_a_vote_tells_which_voters_run_anew() -> None:
    site = free("abcde")
    site.hear("d", Survey(EPOCH + 7, 5, 1))
    [reply] = site.hear("b", VoteRequest(EPOCH, 6, 0, 0, 0))
    assert isinstance(reply, VoteReply)
    assert ("d", EPOCH + 7) in reply.epochs


def test_a_host_hears_of_a_later_term_in_an_answer() -> None:
    site = host()
    site.hear("b", ack(0, sent=site.now))
    site.hear("c", ack(0, term=7, ok=False))
    assert (site.role, site.voter.term) == ("follower", 7)
    assert not site.leads


def test_a_host_follows_no_other_of_its_term() -> None:
    site = host()
    assert matches(site.hear("b", append(6, (0, 0), 6, b"x"))) == [(False, 0)]
    assert (site.role, site.voter.last) == ("host", 1)


# ---- logs


@pytest.mark.parametrize(("own", "other"), [(1, 2), (3, 2)])
def test_a_tail_that_conflicts_is_replaced_in_memory_and_on_disk(own: int, other: int) -> None:
    site = free(log=(1, own, own))
    assert matches(site.hear("b", append(6, (1, 1), other, b"y", commit=2)))[-1] == (True, 2)
    assert site.voter.last == 2
    assert site.delivered == [(1, b"1"), (2, b"y")]
    assert site.stored() == [(1, b"1"), (other, b"y")]


def test_a_late_message_with_fewer_entries_cuts_nothing_that_was_acknowledged() -> None:
    site = free()
    assert matches(site.hear("b", append(6, (0, 0), 6, b"x", b"y", b"z")))[-1] == (True, 3)
    site.hear("b", append(6, (0, 0), 6, b"x"))
    site.hear("b", heartbeat(6))
    assert site.voter.last == 3
    assert site.stored() == [(6, b"x"), (6, b"y"), (6, b"z")]


def test_a_follower_acknowledges_and_delivers_only_what_it_has_compared() -> None:
    site = free(log=(1, 1, 1))
    assert matches(site.hear("b", heartbeat(6, (1, 1), commit=3))) == [(True, 1)]
    assert site.delivered == [(1, b"1")]


def test_what_was_compared_with_one_host_does_not_count_for_the_next() -> None:
    site = free(log=(1,))
    assert matches(site.hear("b", append(6, (1, 1), 6, b"x", b"y")))[-1] == (True, 3)
    assert matches(site.hear("c", heartbeat(7, (1, 1), commit=2))) == [(True, 1)]  # its entry 2 is another one
    assert site.delivered == [(1, b"1")]


def test_entries_after_one_of_another_term_are_refused() -> None:
    site = free(log=(1, 1))
    assert matches(site.hear("b", append(6, (2, 2), 6, b"x", commit=3))) == [(False, 0)]
    assert site.delivered == []
    assert site.voter.last == 2


def test_entries_of_an_earlier_term_are_refused() -> None:
    site = free()
    site.hear("b", heartbeat(6))
    assert matches(site.hear("c", append(5, (0, 0), 5, b"x", commit=1))) == [(False, 0)]
    assert (site.voter.last, site.voter.host, site.voter.term) == (0, "b", 6)
    assert site.delivered == []


# ---- snapshots


def test_a_snapshot_before_what_is_delivered_is_not_restored() -> None:
    site = free(log=(1, 1, 1))
    site.hear("b", heartbeat(6, (3, 1), commit=3))
    assert [index for index, _ in site.delivered] == [1, 2, 3]
    assert matches(site.hear("b", part(2, b"before"))) == [(True, 3)]
    assert site.restores == []
    assert (site.voter.last, site.voter.commit) == (3, 3)


def test_a_snapshot_of_an_earlier_term_is_not_restored() -> None:
    site = free()
    site.hear("b", heartbeat(6))
    assert matches(site.hear("c", part(2, b"before", term=5))) == [(False, 0)]
    assert site.restores == []
    assert site.voter.host == "b"


def test_a_snapshot_keeps_acknowledged_entries_after_it() -> None:
    site = free(log=(1, 1, 1, 1))
    assert matches(site.hear("b", heartbeat(6, (4, 1)))) == [(True, 4)]
    site.hear("b", part(2, b"state."))
    assert site.restores == [(2, b"state.")]
    assert site.voter.last == 4
    assert site.stored() == [(1, b"3"), (1, b"4")]


def test_a_snapshot_of_another_log_removes_all_entries_also_on_disk() -> None:
    site = free(log=(1, 1, 1, 1))
    site.hear("b", part(2, b"state.", index_term=2))
    assert site.voter.last == 2
    assert site.stored() == []
    assert not site.votes_for("c", 6, (1, 9))


def test_parts_of_two_snapshots_are_not_put_together() -> None:
    site = free()
    site.hear("b", part(2, b"one"))
    [reply] = site.hear("b", part(3, b"two", offset=3))
    assert isinstance(reply, SnapshotReply)
    assert reply.offset == 0
    site.hear("c", part(2, b"new", offset=3, term=7))  # a later host may write the same state in other bytes
    assert site.restores == []


def test_a_part_of_a_snapshot_that_is_repeated_or_too_early_is_not_added() -> None:
    site = free()
    for offset, expected in ((0, 2), (0, 2), (4, 2), (2, 4), (2, 4)):
        [reply] = site.hear("b", part(2, b"abcdef"[offset : offset + 2], offset=offset))
        assert isinstance(reply, SnapshotReply)
        assert reply.offset == expected
    site.hear("b", part(2, b"ef", offset=4))
    assert site.restores == [(2, b"abcdef")]


def test_entries_that_a_snapshot_contains_are_not_delivered_after_it() -> None:
    site = free(log=(1, 1))
    site.voter.receive("b", heartbeat(6, (2, 1), commit=2), site.now)
    site.voter.receive("b", part(3, b"state."), site.now)
    effects = site.voter.take()
    assert effects.restore == (3, b"state.")
    assert effects.committed == []


def test_a_snapshot_of_the_own_state_that_is_older_than_the_last_one_is_ignored() -> None:
    site = free(log=(1, 1, 1))
    site.hear("b", heartbeat(6, (3, 1), commit=3))
    for index in (3, 2):
        site.voter.compact(index, b"%d" % index)
        site.write()
    restored = site.disk.restored()
    assert restored is not None
    assert restored.snapshot == Snapshot(3, 1, b"3")
