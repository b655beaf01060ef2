"""Entries of an election's log: what a host commits, and what must be on disk before it is said."""

from __future__ import annotations

from nngkit.cluster.election.messages import (
    AppendReply,
    Stale,
    Stand,
    Survey,
    VoteRequest,
)
from nngkit.cluster.election.values import (
    Elected,
    SaveMeta,
)
from tests.cluster.one_voter import (
    EPOCH,
    HEARTBEAT,
    LEASE,
    ack,
    append,
    free,
    heartbeat,
    host,
    matches,
    part,
)

# ---- commits


def test_a_host_commits_entries_of_earlier_terms_only_with_one_of_its_own() -> None:
    # Raft, figure 8: a host of term 2 gave entry 2 to a minority, and a host of term 3 has another one. Now the former
    # is with a majority, but the log with the latter would still be elected, until an entry of term 4 is there as well.
    site = host("abcde", term=4, log=(1, 2))
    for voter in "bcde":
        site.hear(voter, ack(2, term=4))
    assert site.voter.commit == 0
    site.hear("b", ack(3, term=4))
    site.hear("c", ack(3, term=4))
    assert site.delivered == [(1, b"1"), (2, b"2")]


def test_a_host_and_a_minority_commit_nothing() -> None:
    site = host("abcde")
    site.hear("b", ack(1))
    site.hear("b", ack(1))
    assert site.voter.commit == 0
    site.hear("c", ack(1))
    assert site.voter.commit == 1


def test_a_refusal_is_no_acknowledgement() -> None:
    site = host()
    site.hear("b", ack(1, ok=False))
    assert site.voter.commit == 0


def test_an_acknowledgement_of_more_than_the_host_has_is_ignored() -> None:
    site = host()
    site.hear("b", ack(2))
    assert site.voter.commit == 0
    site.voter.propose([b"x"], site.now)
    site.write()
    assert site.voter.commit == 0


def test_a_new_host_serves_once_all_of_earlier_terms_is_delivered() -> None:
    site = host(log=(1, 2))
    assert Elected(6) not in site.events
    assert site.voter.last == 3  # its own entry, without which it could not commit the others
    site.hear("b", ack(2))
    assert Elected(6) not in site.events
    site.hear("b", ack(3))
    assert site.delivered == [(1, b"1"), (2, b"2")]
    assert site.events.count(Elected(6)) == 1
    site.voter.propose([b"x"], site.now)
    site.write()
    site.hear("b", ack(4))
    assert site.delivered[-1] == (4, b"x")
    assert site.events.count(Elected(6)) == 1


# ---- disk


def test_a_host_counts_its_own_entry_once_it_is_on_disk() -> None:
    site = host()
    site.hear("b", ack(1))
    site.slow = True
    site.voter.propose([b"x"], site.now)
    site.hear("b", ack(2))
    assert site.voter.commit == 1
    site.write()
    assert site.voter.commit == 2


def test_a_follower_acknowledges_an_entry_once_it_is_on_disk() -> None:
    site = free()
    site.hear("b", heartbeat(6))
    site.slow = True
    assert matches(site.hear("b", append(6, (0, 0), 6, b"x"))) == [(True, 0)]
    assert matches(site.hear("b", heartbeat(6, (1, 6)))) == [(True, 0)]
    site.restart()
    assert site.voter.last == 0  # so the host was right not to count it
    assert matches(site.hear("b", append(6, (0, 0), 6, b"x"))) == [(True, 0)]
    assert matches([message for _, message in site.write()]) == [(True, 1)]
    site.restart()
    assert site.voter.last == 1


def test_entries_in_place_of_stored_ones_are_acknowledged_once_they_are_on_disk() -> None:
    site = free(log=(1, 1, 1))
    site.hear("b", heartbeat(6))
    site.slow = True
    assert matches(site.hear("b", append(6, (1, 1), 6, b"y", b"z"))) == [(True, 1)]
    assert site.stored() == [(1, b"1"), (1, b"2"), (1, b"3")]
    assert matches([message for _, message in site.write()]) == [(True, 3)]
    assert site.stored() == [(1, b"1"), (6, b"y"), (6, b"z")]


def test_the_write_of_replaced_entries_acknowledges_none_of_their_successors() -> None:
    site = free()
    site.hear("b", heartbeat(6))
    site.slow = True
    site.hear("b", append(6, (0, 0), 6, b"x", b"y", b"z"))
    site.take()
    assert len(site.writing) == 1
    for _ in range(7):  # the promise to `b` ends while the disk is busy
        site.now += HEARTBEAT
        site.voter.tick(site.now)
    site.hear("c", append(7, (1, 6), 7, b"Y", b"Z"))
    acknowledged, log_of_c = 0, [(6, b"x"), (7, b"Y"), (7, b"Z")]
    while site.writing:
        for to, message in site.write(1):
            if to == "c" and isinstance(message, AppendReply):
                acknowledged = message.match
                assert site.stored()[:acknowledged] == log_of_c[:acknowledged]
    assert acknowledged == 3


def test_a_snapshot_in_place_of_stored_entries_is_acknowledged_once_it_is_on_disk() -> None:
    site = free(log=(1, 1, 1, 1, 1))
    site.hear("b", heartbeat(6))
    site.slow = True
    assert matches(site.hear("b", part(3, b"state.", index_term=2))) == [(True, 0)]
    assert matches([message for _, message in site.write()]) == [(True, 3)]


def test_a_vote_that_was_not_on_disk_before_a_crash_was_not_sent() -> None:
    site = free()
    site.slow = True
    assert not site.votes_for("b", 6)
    site.restart()
    site.slow = False
    site.wait(LEASE + HEARTBEAT)
    assert site.votes_for("c", 6)


def test_the_write_of_a_term_does_not_release_the_vote_in_it() -> None:
    site = free()
    site.slow = True
    assert not site.votes_for("b", 6)
    assert [(step.term, step.vote) for step in site.writing if isinstance(step, SaveMeta)] == [(6, None), (6, "b")]
    assert not site.write(1)
    assert len(site.write(1)) == 1


def test_a_vote_is_kept_over_a_restart() -> None:
    site = free()
    assert site.votes_for("b", 6)
    site.restart()
    site.wait(LEASE + HEARTBEAT)
    assert not site.votes_for("c", 6)
    assert site.votes_for("b", 6)


def test_a_candidate_keeps_the_vote_for_itself_over_a_restart() -> None:
    site = free()
    site.slow = True
    assert not site.hear("b", Stand(EPOCH, 5, 0))  # no request before the own vote is on disk
    assert VoteRequest(EPOCH, 6, 0, 0, 0) in [message for _, message in site.write()]
    site.restart()
    site.slow = False
    site.wait(LEASE + HEARTBEAT)
    assert not site.votes_for("c", 6)


def test_a_voter_votes_for_no_other_than_the_host_of_the_term_also_after_a_restart() -> None:
    site = free()
    site.hear("b", heartbeat(6))
    site.wait(LEASE + HEARTBEAT)
    assert not site.votes_for("c", 6)
    site.restart()
    site.wait(LEASE + HEARTBEAT)
    assert not site.votes_for("c", 6)


def test_a_term_that_was_told_is_kept_over_a_restart() -> None:
    site = free(log=(5,))
    site.hear("b", VoteRequest(EPOCH, 9, 4, 1, 0))  # refused: its log is older
    site.restart()
    assert site.voter.term == 9


def test_a_voter_whose_clock_went_back_takes_a_later_epoch_than_before() -> None:
    site = free()
    before = site.voter.epoch
    site.epoch = EPOCH - 1000
    site.start()
    assert site.voter.epoch > before


def test_the_epochs_of_others_are_kept_over_a_restart() -> None:
    site = free()
    site.hear("b", Survey(EPOCH + 5, 5, 1))
    site.restart()
    assert site.hear("b", Survey(EPOCH, 5, 1)) == [Stale(EPOCH + 1, EPOCH + 5)]
