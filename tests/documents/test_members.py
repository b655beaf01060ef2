"""Who speaks on which connection, who may speak for others, and who has gone."""

from __future__ import annotations

import pytest

from nngkit.documents.sync.members import MOST, SILENT, Member, Members
from nngkit.documents.sync.messages import MANY_DOCUMENTS, Aware, Bye, DocumentHeartbeat, Heartbeat, Updates
from nngkit.documents.versions import Edit, EditStream

ME, ADA, BOB = (EditStream(bytes([n]) * 8, n) for n in range(3))
AT = "tcp://10.0.0.9:51234"


def edit(stream: EditStream) -> Updates:
    return Updates(stream, "minutes", 1, (Edit(b"x"),))


class World:
    def __init__(self) -> None:
        self.members = Members(ME)
        self.now = 100.0

    def receive(
        self, message: Heartbeat | Updates | Aware | Bye, pipe: int = 1, address: str | None = AT
    ) -> Member | str | None:
        return self.members.heard(message, pipe, address, self.now)

    def add_peer(self, message: Heartbeat, pipe: int = 1) -> Member:
        member = self.receive(message, pipe)
        assert isinstance(member, Member)
        return member


def test_the_first_message_is_a_beat_and_what_comes_before_it_is_not_heard() -> None:
    world = World()
    for message in (edit(ADA), Aware(ADA, "minutes", 1, None), Bye(ADA)):
        assert world.hear(message) is None
    assert world.members.early == 3
    assert world.members.present() == []
    member = world.add_peer(Heartbeat(ADA))
    assert world.hear(edit(ADA)) is member


def test_a_beat_says_who_is_there_and_where_it_can_be_asked() -> None:
    world = World()
    member = world.add_peer(
        Heartbeat(
            ADA, (DocumentHeartbeat("minutes", None, None, {}),), "ada", ("tcp://*:4712",), False, (("minutes", 7),)
        )
    )
    assert (member.stream, member.name, member.repair) == (ADA, "ada", ("tcp://10.0.0.9:4712",))
    assert (set(member.docs), member.clients) == ({"minutes"}, {"minutes": 7})
    assert str(member) == f"ada ({AT})"
    world.add_peer(Heartbeat(ADA, name="countess"))
    assert (member.name, member.repair, set(member.docs)) == ("countess", (), {"minutes"})


@pytest.mark.parametrize(
    "place", ["tcp://[", "http://10.0.0.1/", "tcp://[::1", "nonsense", "", "tcp://\uff0f:1", "file:///etc/passwd"]
)
def test_a_place_that_is_no_address_is_left_out_and_hurts_nobody(place: str) -> None:
    assert World().add_peer(Heartbeat(ADA, repair=(place, "tcp://*:4712"))).repair == ("tcp://10.0.0.9:4712",)


@pytest.mark.parametrize(
    "message", [edit(BOB), Aware(BOB, "minutes", 1, b"x"), Bye(BOB), Heartbeat(BOB)], ids=lambda m: type(m).__name__
)
def test_who_said_that_it_is_one_cannot_speak_for_another(message: Updates | Aware | Bye | Heartbeat) -> None:
    world = World()
    world.add_peer(Heartbeat(ADA))
    refused = world.hear(message)
    assert isinstance(refused, str)
    assert str(ADA) in refused
    assert str(BOB) in refused
    assert [member.stream for member in world.members.present()] == [ADA]


def test_a_relay_passes_on_what_others_write_and_where_they_are_but_neither_beats_nor_byes() -> None:
    world = World()
    relay = world.add_peer(Heartbeat(ADA, relay=True))
    assert world.hear(edit(BOB)) is relay
    assert world.hear(Aware(BOB, "minutes", 1, None)) is relay
    assert isinstance(world.hear(Heartbeat(BOB)), str)
    assert isinstance(world.hear(Bye(BOB)), str)
    world.add_peer(Heartbeat(ADA))  # it does not relay any more
    assert isinstance(world.hear(edit(BOB)), str)


def test_nobody_is_us() -> None:
    world = World()
    assert world.hear(Heartbeat(ME)) is None  # ourselves, by way of our own address
    assert world.hear(edit(ME)) is None
    assert world.members.known == {}
    world.add_peer(Heartbeat(ADA), 2)
    assert world.hear(Heartbeat(ME), 2) == "it claims to be this peer"
    assert isinstance(world.hear(edit(ME), 2), str)


def test_who_is_connected_twice_has_gone_with_the_last_connection() -> None:
    world = World()
    member = world.add_peer(Heartbeat(ADA), 1)
    assert world.add_peer(Heartbeat(ADA), 2) is member
    assert world.members.left(1) is None
    assert world.hear(edit(ADA), 2) is member
    assert world.members.left(2) is member
    assert world.members.left(2) is None
    assert world.members.known == {}


def test_the_last_words_of_who_has_gone_are_heard_and_bring_nobody_back() -> None:
    world = World()
    world.add_peer(Heartbeat(ADA), 1)
    world.members.left(1)
    gone = world.hear(edit(ADA), 1)  # it was said before the end, and is read after it
    assert isinstance(gone, Member)
    assert gone.stream == ADA
    assert world.hear(Heartbeat(ADA), 1) is None
    assert isinstance(world.hear(edit(BOB), 1), str)
    assert world.members.known == {}


def test_who_is_silent_is_told_of_once_and_a_word_brings_them_back() -> None:
    world = World()
    member = world.add_peer(Heartbeat(ADA))
    world.now += SILENT
    assert world.members.silent(world.now) == []
    world.now += 0.1
    assert world.members.silent(world.now) == [member]
    assert world.members.silent(world.now) == []
    assert world.members.present() == []
    assert world.hear(edit(ADA)) is member
    assert world.members.present() == [member]


def test_a_good_bye_is_no_sign_of_life() -> None:
    world = World()
    member = world.add_peer(Heartbeat(ADA))
    world.now += SILENT + 1.0
    world.members.silent(world.now)
    assert world.hear(Bye(ADA)) is member
    assert world.members.present() == []


def test_there_are_so_many_and_no_more() -> None:
    world = World()
    for number in range(MOST):
        world.add_peer(Heartbeat(EditStream(number.to_bytes(8, "big"), 9)), number)
    assert world.hear(Heartbeat(ADA), MOST) == f"the limit of {MOST} peers is reached"
    world.add_peer(Heartbeat(EditStream(bytes(8), 9)), MOST)  # those who are there may come again
    world.members.left(5)
    world.add_peer(Heartbeat(ADA), MOST + 1)


def test_who_makes_up_documents_fills_no_memory() -> None:
    world = World()
    member = world.add_peer(Heartbeat(ADA))
    for number in range(100):
        names = [f"{number}/{n}" for n in range(64)]
        world.hear(
            Heartbeat(
                ADA,
                tuple(DocumentHeartbeat(name, None, None, {}) for name in names),
                clients=tuple((name, 1) for name in names),
            )
        )
    assert len(member.docs) <= MANY_DOCUMENTS
    assert len(member.clients) <= MANY_DOCUMENTS


def test_all_that_was_said_on_a_connection_may_be_read_after_its_end() -> None:
    world = World()
    world.members.left(1)
    assert world.hear(Heartbeat(ADA), 1) is None
    gone = world.hear(edit(ADA), 1)
    assert isinstance(gone, Member)
    assert gone.stream == ADA
    assert isinstance(world.hear(edit(BOB), 1), str)
    assert world.members.known == {}
