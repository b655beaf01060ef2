"""A copy of a document: what comes of what it is told. Its content is `plain.py`'s, and once the real engine's."""

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
    """A copy, and others who write into the same document."""

    def __init__(self, *, relay: bool = False, token: str | None = None, askable: bool = True) -> None:
        self.saw: dict[Name, frozenset[Name]] = {}
        self.content = Plain(self.saw)
        self.disk = Disk()
        self.refusals: list[tuple[EditStream | None, str]] = []
        self.replica = Replica("minutes", ME, rng=Random(1), askable=askable)
        self.copy = LocalCopy(
            self.replica,
            self.content,
            log=self.disk,
            token=token,
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


def test_an_edit_is_kept_and_told() -> None:
    world = World()
    world.edit()
    step = world.step()
    (said,) = step.publish
    assert isinstance(said, Updates)
    assert (said.stream, said.first) == (ME, 1)
    assert step.changed
    assert world.disk.load()[0] == {ME: 1}
    assert not world.step().changed


def test_what_is_typed_in_one_turn_is_one_message() -> None:
    world = World()
    for _ in range(5):
        world.edit()
    (said,) = world.step().publish
    assert isinstance(said, Updates)
    assert len(said.edits) == 5
    assert world.step().publish == []


def test_what_is_too_large_for_the_bus_is_not_said_there() -> None:
    world = World()
    world.copy.edited(b"x" * BUS_LIMIT, world.now)
    assert world.step().publish == []
    assert world.replica.make_heartbeat(world.now).heads == {ME: 1}


def test_what_is_heard_is_here_at_once_and_so_is_what_others_are_told_of_it() -> None:
    # an earlier version applied it in the next turn: a question that came between got the versions without the content
    world = World()
    world.copy.heard(world.write(ADA, 1), ADA, world.now)
    assert world.content.versions() == world.replica.versions == world.disk.load()[0] == {ADA: 1}
    update, versions = world.copy.difference(Want(BOB, None, "minutes", None, {}))
    assert versions == {ADA: 1}
    asker = Plain(world.saw)
    asker.apply(update)
    assert asker.versions() == versions


def test_what_was_held_back_is_here_as_soon_as_what_it_waited_for_came_as_a_whole() -> None:
    world = World()
    first = world.write(ADA, 1)
    world.others[BOB].apply(first.edits[0].payload)
    world.copy.heard(world.write(BOB, 1, {ADA: 1}), BOB, world.now)
    assert world.content.names == frozenset()
    body = world.others[ADA].changes_since()
    world.copy.replied(AskAll(ADA, False), Diff(ADA, "minutes", body, {ADA: 1}), world.now, body=body)
    assert world.content.versions() == {ADA: 1, BOB: 1} == world.disk.load()[0]
    assert world.refusals == []


def test_a_relay_says_what_it_heard_and_nobody_else_does() -> None:
    for relay in (True, False):
        world = World(relay=relay)
        said = world.write(ADA, 1)
        world.copy.heard(said, ADA, world.now)
        world.copy.heard(said, BOB, world.now)  # what changed nothing is not passed on
        assert world.step().publish == ([said] if relay else [])


def test_what_is_no_update_leaves_all_as_it_was_and_is_told_with_its_author() -> None:
    world = World()
    world.copy.heard(Updates(ADA, "minutes", 1, (Edit(b"\0nonsense"),)), BOB, world.now)
    assert world.content.names == frozenset()
    ((who, why),) = world.refusals
    assert who == ADA
    assert "edit 1" in why
    assert world.replica.versions == {ADA: 1}  # its number is taken, by nothing
    assert world.disk.entries[-1][1] == b""


def test_who_speaks_for_us_is_told_of() -> None:
    world = World()
    world.copy.heard(Updates(ME, "minutes", 1, (Edit(b"x"),)), ADA, world.now)
    assert world.refusals == [(ADA, "it claims to be this peer")]


def test_questions_say_the_token_and_what_is_here() -> None:
    world = World(token="secret")
    world.copy.heard(world.write(ADA, 1), ADA, world.now)
    world.copy.heard(DocumentHeartbeat("minutes", None, None, {BOB: 2}), BOB, world.now)
    world.step()
    ((ask, request),) = world.step(0.02).ask
    assert isinstance(ask, AskEdits)
    assert request == Nack(ME, "secret", "minutes", (Range(BOB, 1, 2),))
    world.copy.heard(DocumentHeartbeat("minutes", None, None, {BOB: 2000}), BOB, world.now)
    world.copy.replied(ask, Resent(BOB, "minutes", (), True), world.now)
    ((_, request),) = world.step(2.0).ask
    assert request == Want(ME, "secret", "minutes", world.content.state(), {ADA: 1})


def test_who_has_the_same_versions_and_another_content_is_asked_as_if_there_were_nothing_here() -> None:
    world = World()
    world.copy.heard(world.write(ADA, 1), ADA, world.now)
    world.step()
    world.step(1.0)
    world.copy.heard(DocumentHeartbeat("minutes", digest({ADA: 1}), b"?" * 16, {}), BOB, world.now)
    ((ask, request),) = world.step().ask
    assert ask == AskAll(BOB, True)
    assert request == Want(ME, None, "minutes", None, {})


def test_a_whole_that_claims_more_of_us_than_we_have_written_is_refused() -> None:
    world = World()
    world.copy.replied(AskAll(ADA, False), Diff(ADA, "minutes", b"\x80", {ME: 1}), world.now, body=b"\x80")
    assert world.refusals == [(ADA, "it claims more edits of ours than we have made")]
    refused = world.copy.given(Give(ADA, None, "minutes", b"\x80", {ME: 1}), world.now)
    assert isinstance(refused, Refused)
    assert refused.code == "bad"
    assert world.replica.versions == {}


def test_a_whole_that_is_no_update_is_refused_and_its_versions_with_it() -> None:
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
        Resent(ADA, "minutes", (Updates(BOB, "table", 1, (Edit(b"x"),)),), False),
        Resent(ADA, "minutes", (Updates(ME, "minutes", 1, (Edit(b"x"),)),), False),
        "nonsense",
    ],
)
def test_an_answer_that_is_none_counts_as_a_failure_of_who_gave_it(reply: object) -> None:
    world = World()
    world.copy.replied(AskEdits(ADA, (Range(ADA, 1, 1),)), reply, world.now)
    assert [who for who, _ in world.refusals] == [ADA]
    assert world.replica._peers[ADA].failures == 1
    assert world.replica.versions == {}


def test_what_was_given_is_taken_and_what_is_here_is_said() -> None:
    world = World()
    world.edit()
    world.write(ADA, 1)
    body = world.others[ADA].changes_since()
    given = world.copy.given(Give(ADA, None, "minutes", body, {ADA: 1}), world.now)
    assert given == Given(ME, "minutes", {ME: 1, ADA: 1})
    assert world.content.versions() == {ME: 1, ADA: 1} == world.disk.load()[0]


def test_what_was_given_to_who_was_here_before_is_not_taken() -> None:
    world = World()
    for seq in (1, 2):
        world.write(ADA, seq)
    body = world.others[ADA].changes_since()
    reply = world.copy.given(Give(ADA, None, "minutes", body, {ADA: 2}, {ADA: 1}), world.now)
    assert isinstance(reply, Refused)
    assert reply.code == "behind"
    assert world.content.versions() == world.replica.versions == {}
    assert not world.refusals, "nobody did wrong"


def test_who_cannot_be_asked_gives_what_does_not_show_elsewhere() -> None:
    world = World(askable=False)
    world.copy.heard(DocumentHeartbeat("minutes", None, None, {}), ADA, world.now)
    world.edit()
    world.step()
    ((ask, request),) = world.step(5.0).ask
    assert ask == Offer(ADA)
    assert request == Give(ME, None, "minutes", world.content.changes_since(), {ME: 1})
    world.copy.replied(ask, Given(ADA, "minutes", {ME: 1}), world.now)
    assert world.step(5.0).ask == []


def test_with_the_real_engine_an_update_that_does_not_connect_leaves_the_content_as_it_was() -> None:
    author, content = load_engine().new(1), load_engine().new(2)
    updates: list[bytes] = []
    author.observe(lambda update, origin: updates.append(update))
    text = author.root("text", "text")
    text.insert(0, "hello")
    text.insert(5, " world")
    refused: list[str] = []
    replica = Replica("minutes", ME, rng=Random(1))
    copy = LocalCopy(replica, Watched(content), refused=lambda peer, why: refused.append(why))
    copy.heard(Updates(ADA, "minutes", 1, (Edit(updates[1]),)), ADA, 0.0)  # as if it were the first
    assert len(refused) == 1
    assert content.content() == {}
    body = author.changes_since(content.state())
    copy.replied(AskAll(ADA, False), Diff(ADA, "minutes", body, {ADA: 2}), 0.0, body=body)
    assert content.content() == {"text": "hello world"}
    assert content.digest() == author.digest()
