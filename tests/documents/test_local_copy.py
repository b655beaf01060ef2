"""LocalCopy: events and their results. The content is `plain.py`'s, and once the real engine's."""

from __future__ import annotations

from random import Random

import pytest

from nngkit.documents.engine.interface import load_engine
from nngkit.documents.sync.local_copy import LocalCopy, Step
from nngkit.documents.sync.messages import (
    BUS_LIMIT,
    Diff,
    DocumentHeartbeat,
    Give,
    Given,
    Nack,
    Range,
    Refused,
    Resent,
    Updates,
    Want,
)
from nngkit.documents.sync.replica import AskAll, AskEdits, Offer, Replica
from nngkit.documents.versions import Edit, EditStream, Versions, digest
from tests.documents.plain import Disk, Name, Plain
from tests.documents.schedules import Watched

ME, ADA, BOB = (EditStream(bytes([n]) * 8, n) for n in range(3))


class World:
    """A copy, and other authors of the same document."""

    def __init__(self, *, relay: bool = False, askable: bool = True) -> None:
        self.saw: dict[Name, frozenset[Name]] = {}
        self.content = Plain(self.saw)
        self.disk = Disk()
        self.refusals: list[tuple[EditStream | None, str]] = []
        self.replica = Replica("minutes", ME, rng=Random(1), askable=askable)
        self.copy = LocalCopy(
            self.replica,
            self.content,
            log=self.disk,
            relay=relay,
            refused=lambda peer, why: self.refusals.append((peer, why)),
        )
        self.others = {ADA: Plain(self.saw), BOB: Plain(self.saw)}
        self.now = 100.0
        for other in self.others:
            self.replica.joined(other, True)

    def write(self, author: EditStream, seq: int, deps: Versions | None = None) -> Updates:
        return Updates(author, "minutes", seq, (Edit(self.others[author].write(author, seq), deps or {}),))

    def edit(self) -> None:
        self.copy.edited(self.content.write(ME, self.replica.versions.get(ME, 0) + 1), self.now)

    def step(self, seconds: float = 0.0) -> Step:
        self.now += seconds
        return self.copy.step(self.now)


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ((BUS_LIMIT // 8, BUS_LIMIT // 8 - 1), [2]),
        ((BUS_LIMIT // 8, BUS_LIMIT // 8), [1, 1]),
        ((BUS_LIMIT // 8, BUS_LIMIT // 16, BUS_LIMIT // 16), [2, 1]),
        ((BUS_LIMIT - 32 * 1024, 1), [1, 1]),
        ((BUS_LIMIT - 32 * 1024 + 1, 1), [1]),
    ],
)
def test_edits_of_a_turn_are_one_message_up_to_a_quarter_of_what_the_bus_carries(
    sizes: tuple[int, ...], runs: list[int]
) -> None:
    world = World()
    for size in sizes:
        world.copy.edited(bytes(size), world.now)
    assert [len(said.edits) for said in world.step().publish if isinstance(said, Updates)] == runs


def test_dependencies_count_in_the_size_of_a_message() -> None:
    world = World()
    world.copy.heard(world.write(ADA, 1), ADA, world.now)
    world.copy.edited(bytes(BUS_LIMIT // 8), world.now)  # depends on the edit of ADA: 32 bytes
    world.copy.edited(bytes(BUS_LIMIT // 8 - 32), world.now)
    assert [len(said.edits) for said in world.step().publish if isinstance(said, Updates)] == [1, 1]
    world.copy.edited(bytes(BUS_LIMIT // 8 - 32), world.now)
    world.copy.edited(bytes(BUS_LIMIT // 8 - 1), world.now)
    assert [len(said.edits) for said in world.step().publish if isinstance(said, Updates)] == [2]


def test_local_edit_is_logged_and_published() -> None:
    world = World()
    world.edit()
    step = world.step()
    (said,) = step.publish
    assert isinstance(said, Updates)
    assert (said.stream, said.first) == (ME, 1)
    assert step.changed
    assert world.disk.load()[0] == {ME: 1}
    assert not world.step().changed


def test_edits_of_one_turn_are_one_message() -> None:
    world = World()
    for _ in range(5):
        world.edit()
    (said,) = world.step().publish
    assert isinstance(said, Updates)
    assert len(said.edits) == 5
    assert world.step().publish == []


def test_edit_too_large_for_the_bus_is_not_published() -> None:
    world = World()
    world.copy.edited(b"x" * BUS_LIMIT, world.now)
    assert world.step().publish == []
    assert world.replica.make_heartbeat(world.now).heads == {ME: 1}


def test_received_edit_is_applied_before_it_is_reported() -> None:
    # An earlier version applied it in the next turn; a request in between got the versions without the content.
    world = World()
    world.copy.heard(world.write(ADA, 1), ADA, world.now)
    assert world.content.versions() == world.replica.versions == world.disk.load()[0] == {ADA: 1}
    update, versions = world.copy.difference(Want(BOB, None, "minutes", None, {}))
    assert versions == {ADA: 1}
    requester = Plain(world.saw)
    requester.apply(update)
    assert requester.versions() == versions


def test_merged_update_releases_held_edits() -> None:
    world = World()
    first = world.write(ADA, 1)
    world.others[BOB].apply(first.edits[0].payload)
    world.copy.heard(world.write(BOB, 1, {ADA: 1}), BOB, world.now)
    assert world.content.names == frozenset()
    body = world.others[ADA].changes_since()
    world.copy.replied(AskAll(ADA, False), Diff(ADA, "minutes", body, {ADA: 1}), world.now, body=body)
    assert world.content.versions() == {ADA: 1, BOB: 1} == world.disk.load()[0]
    assert world.refusals == []


def test_only_a_relay_republishes_edits() -> None:
    for relay in (True, False):
        world = World(relay=relay)
        said = world.write(ADA, 1)
        world.copy.heard(said, ADA, world.now)
        world.copy.heard(said, BOB, world.now)  # edits that change nothing are not forwarded
        assert world.step().publish == ([said] if relay else [])


def test_invalid_edit_changes_nothing_and_is_reported_with_its_author() -> None:
    world = World()
    world.copy.heard(Updates(ADA, "minutes", 1, (Edit(b"\0nonsense", {}),)), BOB, world.now)
    assert world.content.names == frozenset()
    ((who, why),) = world.refusals
    assert who == ADA
    assert "edit 1" in why
    assert world.replica.versions == {}
    assert world.disk.entries == []


def test_edit_in_our_name_is_reported() -> None:
    world = World()
    world.copy.heard(Updates(ME, "minutes", 1, (Edit(b"x", {}),)), ADA, world.now)
    assert world.refusals == [(ADA, "it claims to be this peer")]


def test_requests_carry_our_versions() -> None:
    world = World()
    world.copy.heard(world.write(ADA, 1), ADA, world.now)
    world.copy.heard(DocumentHeartbeat("minutes", None, None, {BOB: 2}), BOB, world.now)
    world.step()
    ((ask, request),) = world.step(0.02).ask
    assert isinstance(ask, AskEdits)
    assert request == Nack(ME, None, "minutes", (Range(*BOB, 1, 2),))
    world.copy.heard(DocumentHeartbeat("minutes", None, None, {BOB: 2000}), BOB, world.now)
    world.copy.replied(ask, Resent(BOB, "minutes", (), True), world.now)
    ((_, request),) = world.step(2.0).ask
    assert request == Want(ME, None, "minutes", world.content.state(), {ADA: 1})


def test_equal_versions_with_other_content_are_requested_from_scratch() -> None:
    world = World()
    world.copy.heard(world.write(ADA, 1), ADA, world.now)
    world.step()
    world.step(1.0)
    world.copy.heard(DocumentHeartbeat("minutes", digest({ADA: 1}), b"?" * 16, {}), BOB, world.now)
    ((ask, request),) = world.step().ask
    assert ask == AskAll(BOB, True)
    assert request == Want(ME, None, "minutes", None, {})


def test_diff_that_claims_edits_we_have_not_made_is_rejected() -> None:
    world = World()
    world.copy.replied(AskAll(ADA, False), Diff(ADA, "minutes", b"\x80", {ME: 1}), world.now, body=b"\x80")
    assert world.refusals == [(ADA, "it claims more edits of this peer than exist")]
    refused = world.copy.given(Give(ADA, None, "minutes", b"\x80", {ME: 1}), world.now)
    assert isinstance(refused, Refused)
    assert refused.code == "bad"
    assert world.replica.versions == {}


def test_invalid_diff_is_rejected_with_its_versions() -> None:
    world = World()
    world.copy.replied(AskAll(ADA, False), Diff(ADA, "minutes", b"?", {ADA: 9}), world.now, body=b"nonsense")
    assert isinstance(world.copy.given(Give(ADA, None, "minutes", b"nonsense", {ADA: 9}), world.now), Refused)
    assert [who for who, _ in world.refusals] == [ADA, ADA]
    assert world.replica.versions == {}
    assert world.disk.entries == []


@pytest.mark.parametrize(
    "reply",
    [
        Given(ADA, "minutes", {}),
        Resent(ADA, "table", (), False),
        Resent(ADA, "minutes", (Updates(BOB, "table", 1, (Edit(b"x", {}),)),), False),
        Resent(ADA, "minutes", (Updates(ME, "minutes", 1, (Edit(b"x", {}),)),), False),
        "nonsense",
    ],
)
def test_mismatched_reply_counts_as_a_failure(reply: object) -> None:
    world = World()
    world.copy.replied(AskEdits(ADA, (Range(*ADA, 1, 1),)), reply, world.now)
    assert [who for who, _ in world.refusals] == [ADA]
    assert world.replica._peers[ADA].failures == 1
    assert world.replica.versions == {}


def test_given_update_is_applied_and_answered_with_versions() -> None:
    world = World()
    world.edit()
    world.write(ADA, 1)
    body = world.others[ADA].changes_since()
    given = world.copy.given(Give(ADA, None, "minutes", body, {ADA: 1}), world.now)
    assert given == Given(ME, "minutes", {ME: 1, ADA: 1})
    assert world.content.versions() == {ME: 1, ADA: 1} == world.disk.load()[0]


def test_given_update_with_missing_dependencies_is_refused() -> None:
    world = World()
    for seq in (1, 2):
        world.write(ADA, seq)
    body = world.others[ADA].changes_since()
    reply = world.copy.given(Give(ADA, None, "minutes", body, {ADA: 2}, {ADA: 1}), world.now)
    assert isinstance(reply, Refused)
    assert reply.code == "behind"
    assert world.content.versions() == world.replica.versions == {}
    assert not world.refusals, "no peer sent invalid input"


def test_peer_without_rep_pushes_edits_that_others_do_not_report() -> None:
    world = World(askable=False)
    world.copy.heard(DocumentHeartbeat("minutes", None, None, {}), ADA, world.now)
    world.edit()
    world.step()
    ((ask, request),) = world.step(5.0).ask
    assert ask == Offer(ADA)
    assert request == Give(ME, None, "minutes", world.content.changes_since(), {ME: 1})
    world.copy.replied(ask, Given(ADA, "minutes", {ME: 1}), world.now)
    assert world.step(5.0).ask == []


def test_unconnected_update_leaves_the_content_unchanged() -> None:
    author, content = load_engine().new(1), load_engine().new(2)
    updates: list[bytes] = []
    author.observe(lambda update, origin: updates.append(update))
    text = author.root("text", "text")
    text.insert(0, "hello")
    text.insert(5, " world")
    refused: list[str] = []
    replica = Replica("minutes", ME, rng=Random(1))
    copy = LocalCopy(replica, Watched(content), refused=lambda peer, why: refused.append(why))
    copy.heard(Updates(ADA, "minutes", 1, (Edit(updates[1], {}),)), ADA, 0.0)  # as if it were the first
    assert len(refused) == 1
    assert content.content() == {}
    body = author.changes_since(content.state())
    copy.replied(AskAll(ADA, False), Diff(ADA, "minutes", body, {ADA: 2}), 0.0, body=body)
    assert content.content() == {"text": "hello world"}
    assert content.digest() == author.digest()
