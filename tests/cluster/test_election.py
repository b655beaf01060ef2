"""Voters over a simulated network: one host a term, nothing committed is lost, one lease, an end to each fault."""

from __future__ import annotations

import os
from random import Random

import pytest
from msgspec.structs import replace

from nngkit.cluster.election.choice import best_voter, time_until_free
from nngkit.cluster.election.messages import (
    KINDS,
    Append,
    AppendReply,
    Message,
    Recover,
    RecoverReply,
    SnapshotPart,
    SnapshotReply,
    Stale,
    Stand,
    Survey,
    SurveyReply,
    VoteReply,
    VoteRequest,
)
from nngkit.cluster.election.values import Elected, ElectionLimits, Recovered, Restored, SaveMeta
from nngkit.cluster.election.voter import NotHost, Voter
from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage, ConfigError, Full, TooLarge
from tests.cluster.election_network import ElectionNetwork, Member

HISTORIES = int(os.environ.get("NNGKIT_HISTORIES", "150"))


@pytest.mark.parametrize("seed", range(12))
def test_a_random_history_keeps_all_invariants(seed: int) -> None:
    ElectionNetwork(seed).play(events=30)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_random_histories_keep_all_invariants() -> None:
    for seed in range(10_000, 10_000 + HISTORIES):
        try:
            ElectionNetwork(seed).play()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


BROKEN = {
    5007807: "the simulator asked a stalled host, which read the acknowledgements of its first entry after the "
    "election of the next host, for what that later term had committed",
}


@pytest.mark.parametrize("seed", BROKEN)
def test_histories_that_were_broken_once(seed: int) -> None:
    ElectionNetwork(seed).play()


def calm(size: int = 3, seed: int = 1, disks: str = "none", limits: ElectionLimits | None = None) -> ElectionNetwork:
    """Return a network without faults that has a host."""
    network = ElectionNetwork(seed, size=size, disks=disks, beyond=False, lossy=False, limits=limits)
    network.delay = 0.001
    for name in network.members:
        network.start(name)
    assert network.run_until(network.now + 5.0, network.serving)
    network.run_until(network.now + 0.2)
    return network


def host_of(network: ElectionNetwork) -> Member:
    [host] = [member for member in network.members.values() if network.leads(member)]
    return host


def others(network: ElectionNetwork) -> list[Member]:
    return [member for member in network.members.values() if member is not host_of(network)]


@pytest.mark.parametrize("disks", ["none", "all"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_a_new_cluster_elects_one_host_in_a_second(size: int, disks: str) -> None:
    network = ElectionNetwork(3, size=size, disks=disks, beyond=False, lossy=False)
    network.delay, network.fsync = 0.001, 0.001
    for name in network.members:
        network.start(name)
    assert network.run_until(network.now + 1.0, network.serving)


@pytest.mark.parametrize("seed", range(20))
def test_a_host_that_dies_is_replaced_in_a_second(seed: int) -> None:
    network = calm(seed=seed)
    host = host_of(network)
    died = network.now
    network.crash(host.name)
    assert network.run_until(died + 1.0, lambda: any(map(network.leads, network.members.values())))
    new = host_of(network)
    assert network.propose(new)
    last = new.running.last
    assert network.run_until(died + 1.2, lambda: new.running.commit == last)


def test_a_host_that_comes_back_follows() -> None:
    network = calm(5)
    old = host_of(network)
    network.crash(old.name)
    network.run_until(network.now + 2.0)
    new = host_of(network)
    term = new.running.term
    network.start(old.name)
    network.run_until(network.now + 2.0)
    assert host_of(network) is new
    assert (old.running.role, old.running.host, old.running.term) == ("follower", new.name, term)
    assert network.counts["recovered"] == 1


def test_a_separated_host_loses_its_lease_before_another_gets_one() -> None:
    network = calm(3)
    old = host_of(network)
    network.blocked = {pair for other in others(network) for pair in ((old.name, other.name), (other.name, old.name))}
    network.run_until(network.now + 2.0)  # every event checks that only one holds the lease
    assert old.running.role == "follower"
    assert host_of(network) is not old
    with pytest.raises(NotHost):
        old.running.propose([b"late"], old.local(network.now))


@pytest.mark.parametrize("seed", range(8))
def test_the_lease_holds_if_the_clock_of_the_host_is_slowest_and_all_others_fast(seed: int) -> None:
    network = calm(3, seed=seed)
    old = host_of(network)
    for member in network.members.values():
        member.offset, member.since = member.local(network.now), network.now
        member.rate = 0.91 if member is old else 1.09
    network.run_until(network.now + 1.0)
    began = network.now
    network.blocked = {pair for other in others(network) for pair in ((old.name, other.name), (other.name, old.name))}
    while not any(network.leads(each) for each in network.members.values() if each is not old):
        assert network.now < began + 2.0
        network.run_until(network.now + 0.001)
    assert not old.running.holds_lease(old.local(network.now))


def test_a_minority_elects_no_host_and_spends_no_terms() -> None:
    network = calm(5)
    one, two = others(network)[:2]
    rest = [name for name in network.members if name not in (one.name, two.name)]
    term = one.running.term
    network.blocked = {pair for a in (one.name, two.name) for b in rest for pair in ((a, b), (b, a))}
    network.run_until(network.now + 5.0)
    assert {one.running.term, two.running.term} == {term}
    assert {one.running.host, two.running.host} == {None}
    network.blocked = set()
    network.run_until(network.now + 2.0)
    assert host_of(network).running.term == term


def test_a_handover_takes_no_lease() -> None:
    network = calm(3)
    old = host_of(network)
    began = network.now
    old.running.step_down(old.local(network.now))
    network.act(old)
    assert network.run_until(began + 0.1, lambda: any(network.leads(each) for each in network.members.values()))
    assert host_of(network) is not old
    network.run_until(network.now + 3.0)
    assert host_of(network) is not old


def test_the_preferred_voter_is_elected_and_an_unwilling_one_last() -> None:
    network = calm(5)
    old = host_of(network)
    for member in network.members.values():
        member.running.preference = 5 if member.name == "d" else 0
    if old.name == "d":
        old.running.step_down(old.local(network.now))
        network.act(old)
        network.run_until(network.now + 1.0)
        assert host_of(network).name != "d"
        old.running.willing = True
    network.crash(host_of(network).name)
    network.run_until(network.now + 2.0)
    assert host_of(network).name == "d"


def test_a_voter_that_lost_its_memory_gets_the_log_back_by_a_snapshot() -> None:
    limits = ElectionLimits(append_bytes=1000, window_bytes=3000, keep_bytes=1)
    network = calm(3, limits=limits)
    host, one = host_of(network), others(network)[0]
    for _ in range(50):
        network.propose(host, 5)
    network.run_until(network.now + 1.0)
    host.running.compact(host.applied, b"s" * 100_000)
    network.digests[host.applied] = b"s" * 100_000
    host.digest = b"s" * 100_000
    network.crash(one.name)
    network.start(one.name)
    network.run_until(network.now + 1.0)
    assert one.running.role == "follower"
    assert one.applied == host.applied
    assert one.digest == host.digest
    assert one.running.stats.snapshots_received == 1
    assert host.running.stats.snapshots_sent == 1
    host.running.step_down(network.now)
    network.run_until(network.now + 1.0)
    assert host.running.stats.deposed == 1
    assert host.running.stats.snapshots_sent == 1, "also when it is host no longer"


def test_the_best_survivor_goes_on_if_a_majority_lost_its_memory() -> None:
    network = calm(3)
    host = host_of(network)
    network.propose(host, 3)
    network.run_until(network.now + 0.5)
    [one, two] = others(network)
    last = one.running.commit
    network.beyond = True
    for member in (host, two):
        network.crash(member.name)
    for member in (host, two):
        network.start(member.name)
    assert network.run_until(network.now + 3.0, network.serving)
    assert host_of(network) is one
    assert two.running.commit >= last
    # the second of them may find a majority with state again
    assert host.running.stats.beyond + two.running.stats.beyond == network.counts["beyond"] >= 1


def test_voters_without_memory_wait_for_a_majority_with_state() -> None:
    network = calm(3)
    host = host_of(network)
    [one, two] = others(network)
    network.beyond = True
    network.crash(one.name)
    network.crash(host.name)
    network.start(host.name)
    network.run_until(network.now + 5.0)  # `one` is down: it may know what neither of these does
    assert host.running.role == "blank"
    assert two.running.role == "follower"
    network.start(one.name)
    assert network.run_until(network.now + 3.0, network.serving)


def test_one_voter_commits_within_propose() -> None:
    voter = Voter("a", ["a"], epoch=5_000_000, now=0.0, rng=Random(1))
    assert voter.role == "host"
    assert voter.holds_lease(0.0)
    effects = voter.take()
    assert Recovered("began") in effects.events
    assert effects.events[-1] == Elected(5001)
    assert voter.propose([b"x", b"y"], 0.0) == 2
    assert voter.take().committed == [(2, b"x"), (3, b"y")]


def test_one_durable_voter_commits_once_it_is_on_disk() -> None:
    voter = Voter("a", ["a"], epoch=5_000_000, now=0.0, rng=Random(1), durable=True)
    assert voter.host is None
    steps = voter.take().persist
    assert isinstance(steps[-1], SaveMeta)
    assert steps[-1].vote == "a"
    voter.persisted(steps[-1].token, 0.0)
    assert voter.host == "a"
    steps = voter.take().persist
    voter.persisted(steps[-1].token, 0.0)
    assert Elected(voter.term) in voter.take().events
    voter.propose([b"x"], 0.0)
    effects = voter.take()
    assert not effects.committed
    voter.persisted(effects.persist[-1].token, 0.0)
    assert voter.take().committed == [(2, b"x")]


def test_proposals_are_limited() -> None:
    limits = ElectionLimits(entry_bytes=10, log_bytes=25)
    voter = Voter("a", ["a"], epoch=1, now=0.0, rng=Random(1), limits=limits)
    with pytest.raises(TooLarge):
        voter.propose([b"x" * 11], 0.0)
    with pytest.raises(ValueError, match="empty"):
        voter.propose([b""], 0.0)
    voter.propose([b"x" * 10, b"x" * 10], 0.0)
    with pytest.raises(Full):
        voter.propose([b"x" * 10], 0.0)
    assert voter.stats.full == 1
    last = voter.commit
    voter.compact(last, b"state")
    with pytest.raises(ValueError, match="not committed"):
        voter.compact(last + 1, b"state")


def test_settings_are_checked() -> None:
    for voters, name in ((["b"], "a"), (["a", ""], "a"), ([str(number) for number in range(16)], "1")):
        with pytest.raises(ConfigError):
            Voter(name, voters, epoch=1, now=0.0, rng=Random(1))
    with pytest.raises(ConfigError):
        Voter("a", ["a"], epoch=1, now=0.0, rng=Random(1), restored=Restored())
    with pytest.raises(ConfigError):
        ElectionLimits(lease=0.1)
    with pytest.raises(ConfigError):
        ElectionLimits(heartbeat=-1.0)


def test_messages_of_unknown_senders_and_old_epochs_are_ignored() -> None:
    voter = Voter("a", ["a", "b", "c"], epoch=9, now=0.0, rng=Random(1))
    voter.peer_up("b", 0.0)
    voter.take()
    voter.receive("x", Survey(1, 1, 1), 0.0)
    assert voter.stats.refused == 1
    voter.receive("b", Survey(8, 1, 1), 0.0)
    voter.take()
    voter.receive("b", VoteRequest(7, 99, 99, 99, 0), 0.0)
    assert voter.take().sends == [("b", Stale(9, 8))]
    assert voter.stats.stale == 1
    voter.receive("b", Stale(8, 50), 0.0)
    assert voter.epoch == 51


def candidate() -> Voter:
    """Return a voter of five that stands, with links to all others."""
    voter = Voter("a", "abcde", epoch=5_000_000, now=0.0, rng=Random(1), durable=True)
    for other in "bcde":
        voter.peer_up(other, 0.0)
    voter.receive("b", Stand(5_000_000, 5000, 0), 0.0)
    voter.persisted(99, 0.0)
    assert voter.role == "candidate"
    return voter


def test_a_vote_does_not_count_once_its_voter_is_known_to_run_anew() -> None:
    voter = candidate()
    term, epoch = voter.term, 5_000_000
    voter.receive("b", VoteReply(epoch, term, True, (("b", epoch),)), 0.0)
    voter.receive("c", VoteReply(epoch, term, True, (("b", epoch + 1), ("c", epoch))), 0.0)  # `b` has forgotten it
    assert voter.role == "candidate"
    voter.receive("b", VoteReply(epoch, term, True, ()), 0.0)  # sent before it ended
    assert voter.role == "candidate"
    voter.receive("d", VoteReply(epoch, term, True, ()), 0.0)
    assert voter.host == "a"


def test_messages_wait_until_the_vote_is_on_disk() -> None:
    voter = candidate()
    epoch = 5_000_000
    voter.take()
    voter.receive("c", VoteRequest(epoch, voter.term + 1, 0, 0, 0), 0.0)
    effects = voter.take()
    assert not effects.sends
    assert isinstance(effects.persist[-1], SaveMeta)
    assert effects.persist[-1].vote == "c"
    voter.persisted(effects.persist[-1].token, 0.0)
    [(to, message)] = voter.take().sends
    assert to == "c"
    assert isinstance(message, VoteReply)
    assert message.granted


def test_a_voter_votes_once_in_a_term_and_for_no_shorter_log() -> None:
    voter = candidate()
    epoch, term = 5_000_000, voter.term + 1
    voter.receive("c", Append(epoch, term, 0, 0, term, (b"x",), 0, 1), 0.0)
    voter.persisted(99, 0.0)
    voter.take()
    voter.receive("d", VoteRequest(epoch, term, term, 9, 0), 0.01)  # promised to `c`
    voter.receive("d", VoteRequest(epoch, term + 1, term, 9, 0), 0.01)
    assert voter.term == term
    for moment in range(20):
        voter.tick(0.05 * moment + 0.06)
    voter.receive("d", VoteRequest(epoch, term + 1, term - 1, 99, 0), 1.1)  # an older log
    voter.receive("e", VoteRequest(epoch, term + 1, term, 1, 0), 1.1)
    voter.receive("d", VoteRequest(epoch, term + 1, term, 1, 0), 1.1)  # voted for `e`
    voter.persisted(99, 1.1)
    votes = [(to, message.granted) for to, message in voter.take().sends if isinstance(message, VoteReply)]
    assert votes == [("d", False), ("d", False), ("d", False), ("e", True), ("d", False)]


MESSAGES: list[Message] = [
    Append(1, 2, 3, 2, 2, (b"x", b""), 3, 7),
    AppendReply(1, 2, True, 3, 7, False),
    SnapshotPart(1, 2, 3, 2, 10, 0, b"state", 7),
    SnapshotReply(1, 2, 3, 5, 7, True),
    Survey(1, 2, 3),
    SurveyReply(1, 2, 3, 0, False, False, True, -1, 2000, 2, 3),
    Stand(1, 2, 0),
    VoteRequest(1, 2, 2, 3, 0),
    VoteReply(1, 2, True, (("a", 1), ("b", 2))),
    Recover(1, 2),
    RecoverReply(1, 2, 3, False, 4, True, 4, 5, (("a", 1),), ()),
    Stale(1, 2),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_survive_the_wire_bad_ones_are_refused_and_later_items_ignored(message: Message) -> None:
    row = decode(encode(KINDS.pack(message)), what="message")
    assert KINDS.parse(list(row)) == message
    for at in range(1, len(row)):
        for bad in ("text", -(1 << 60), 1.5, None, [[1, 2]], [["x" * 65, 1]]):
            with pytest.raises(BadMessage):
                KINDS.parse([*row[:at], bad, *row[at + 1 :]])
    assert KINDS.parse([*row, "of a later version"]) == message


def test_rows_that_are_no_message_are_refused_and_later_kinds_ignored() -> None:
    rows: list[object] = [None, [], {}, ["x"], [-1], [True]]
    for row in rows:
        with pytest.raises(BadMessage):
            KINDS.parse(row)
    assert KINDS.parse([99, "whatever"]) is None


def reply(**fields: object) -> SurveyReply:
    return replace(SurveyReply(1, 1, 1, 0, False, False, True, 0, 0, 1, 1), **fields)


def test_the_choice_ranks_electable_voters() -> None:
    three = {"a": reply(), "b": reply(), "c": reply()}
    assert best_voter(three, 2) == "c"
    assert best_voter({**three, "a": reply(load=-1)}, 2) == "a"
    assert best_voter({**three, "a": reply(preference=1), "b": reply(last_index=2)}, 2) == "a"
    assert best_voter({"a": reply(preference=1), "b": reply(last_index=2)}, 2) == "b"  # `a` would get no majority
    assert best_voter({**three, "c": reply(willing=False, preference=9)}, 2) == "b"
    assert best_voter({"a": reply(), "b": reply(remaining=5)}, 2) is None
    assert best_voter({"a": reply(), "b": reply(blank=True)}, 2) is None
    assert best_voter({"a": reply(), "b": reply(blank=True, beyond=True)}, 2) == "a"
    assert best_voter({}, 2) is None
    assert time_until_free({"a": reply(), "b": reply(remaining=500), "c": reply(remaining=900)}, 2) == 0.5
    assert time_until_free({"a": reply()}, 2) is None
