"""Members: which peer uses a connection, which messages it may forward, and which peers have left."""

from __future__ import annotations

import pytest

from nngkit.documents.sync.members import MOST, SILENT, Member, Members
from nngkit.documents.sync.messages import MANY_DOCUMENTS, Aware, Bye, Client, DocumentHeartbeat, Heartbeat, Updates
from nngkit.documents.versions import Edit, EditStream
from tests.documents.greetings import UNPRINTABLE, heartbeat

ME, ADA, BOB = (EditStream(bytes([n]) * 8, n) for n in range(3))
AT = "tcp://10.0.0.9:51234"


def edit(stream: EditStream) -> Updates:
    return Updates(stream, "minutes", 1, (Edit(b"x", {}),))


class World:
    def __init__(self) -> None:
        self.members = Members(ME)
        self.now = 100.0

    def hear(
        self, message: Heartbeat | Updates | Aware | Bye, pipe: int = 1, address: str | None = AT
    ) -> Member | str | None:
        return self.members.heard(message, pipe, address, self.now)

    def meet(self, message: Heartbeat, pipe: int = 1) -> Member:
        member = self.hear(message, pipe)
        assert isinstance(member, Member)
        return member


def test_messages_before_the_first_heartbeat_are_ignored() -> None:
    world = World()
    for message in (edit(ADA), Aware(ADA, "minutes", 1, None), Bye(ADA)):
        assert world.hear(message) is None
    assert world.members.early == 3
    assert world.members.present() == []
    member = world.meet(heartbeat(ADA))
    assert world.hear(edit(ADA)) is member


@pytest.mark.parametrize("name", UNPRINTABLE)
def test_name_of_a_peer_is_escaped(name: str) -> None:
    member = World().meet(heartbeat(ADA, name=name))
    assert member.name is not None
    assert member.name.isprintable()
    assert len(member.name) <= 200


def test_heartbeat_gives_identity_and_repair_addresses() -> None:
    world = World()
    member = world.meet(
        heartbeat(
            ADA,
            (DocumentHeartbeat("minutes", None, None, {}),),
            name="ada",
            repair=("tcp://*:4712",),
            clients=(Client("minutes", 7),),
        )
    )
    assert (member.stream, member.name, member.repair) == (ADA, "ada", ("tcp://10.0.0.9:4712",))
    assert (set(member.docs), member.clients) == ({"minutes"}, {"minutes": 7})
    assert str(member) == f"ada ({AT})"
    world.meet(heartbeat(ADA, name="countess"))
    assert (member.name, member.repair, set(member.docs)) == ("countess", (), {"minutes"})


@pytest.mark.parametrize(
    "place", ["tcp://[", "http://10.0.0.1/", "tcp://[::1", "nonsense", "", "tcp://\uff0f:1", "file:///etc/passwd"]
)
def test_invalid_repair_address_is_left_out(place: str) -> None:
    assert World().meet(heartbeat(ADA, repair=(place, "tcp://*:4712"))).repair == ("tcp://10.0.0.9:4712",)


@pytest.mark.parametrize(
    "message", [edit(BOB), Aware(BOB, "minutes", 1, b"x"), Bye(BOB), heartbeat(BOB)], ids=lambda m: type(m).__name__
)
def test_connection_carries_messages_of_one_peer_only(message: Updates | Aware | Bye | Heartbeat) -> None:
    world = World()
    world.meet(heartbeat(ADA))
    refused = world.hear(message)
    assert isinstance(refused, str)
    assert str(ADA) in refused
    assert str(BOB) in refused
    assert [member.stream for member in world.members.present()] == [ADA]


def test_relay_forwards_updates_and_awareness_but_no_heartbeats_or_byes() -> None:
    world = World()
    relay = world.meet(heartbeat(ADA, relay=True))
    assert world.hear(edit(BOB)) is relay
    assert world.hear(Aware(BOB, "minutes", 1, None)) is relay
    assert isinstance(world.hear(heartbeat(BOB)), str)
    assert isinstance(world.hear(Bye(BOB)), str)
    world.meet(heartbeat(ADA))  # it is no relay any more
    assert isinstance(world.hear(edit(BOB)), str)


def test_local_peer_is_no_member() -> None:
    world = World()
    assert world.hear(heartbeat(ME)) is None  # ourselves, through our own address
    assert world.hear(edit(ME)) is None
    assert world.members.known == {}
    world.meet(heartbeat(ADA), 2)
    assert world.hear(heartbeat(ME), 2) == "it claims to be this peer"
    assert isinstance(world.hear(edit(ME), 2), str)


def test_member_leaves_with_its_last_connection() -> None:
    world = World()
    member = world.meet(heartbeat(ADA), 1)
    assert world.meet(heartbeat(ADA), 2) is member
    assert world.members.left(1) is None
    assert world.hear(edit(ADA), 2) is member
    assert world.members.left(2) is member
    assert world.members.left(2) is None
    assert world.members.known == {}


@pytest.mark.parametrize("met", [True, False])
def test_messages_read_after_the_end_of_their_connection_revive_no_peer(met: bool) -> None:
    world = World()
    if met:
        world.meet(heartbeat(ADA), 1)
    world.members.left(1)
    assert met or world.hear(heartbeat(ADA), 1) is None
    gone = world.hear(edit(ADA), 1)  # sent before the end, read after it
    assert isinstance(gone, Member)
    assert gone.stream == ADA
    assert world.hear(heartbeat(ADA), 1) is None
    assert isinstance(world.hear(edit(BOB), 1), str)
    assert world.members.known == {}


def test_silent_member_is_reported_once_and_revived_by_a_message() -> None:
    world = World()
    member = world.meet(heartbeat(ADA))
    world.now += SILENT
    assert world.members.silent(world.now) == []
    world.now += 0.1
    assert world.members.silent(world.now) == [member]
    assert world.members.silent(world.now) == []
    assert world.members.present() == []
    assert world.hear(edit(ADA)) is member
    assert world.members.present() == [member]


def test_bye_does_not_revive_a_member() -> None:
    world = World()
    member = world.meet(heartbeat(ADA))
    world.now += SILENT + 1.0
    world.members.silent(world.now)
    assert world.hear(Bye(ADA)) is member
    assert world.members.present() == []


def test_number_of_members_is_capped() -> None:
    world = World()
    for number in range(MOST):
        world.meet(heartbeat(EditStream(number.to_bytes(8, "big"), 9)), number)
    assert world.hear(heartbeat(ADA), MOST) == f"the limit of {MOST} peers is reached"
    world.meet(heartbeat(EditStream(bytes(8), 9)), MOST)  # a known peer may reconnect
    world.members.left(5)
    world.meet(heartbeat(ADA), MOST + 1)


def test_invented_documents_are_capped() -> None:
    world = World()
    member = world.meet(heartbeat(ADA))
    for number in range(100):
        names = [f"{number}/{n}" for n in range(64)]
        world.hear(
            heartbeat(
                ADA,
                tuple(DocumentHeartbeat(name, None, None, {}) for name in names),
                clients=tuple(Client(name, 1) for name in names),
            )
        )
    assert len(member.docs) <= MANY_DOCUMENTS
    assert len(member.clients) <= MANY_DOCUMENTS
