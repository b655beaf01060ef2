"""Copies of a document at four peers, over a network without manners: see tests/driving.py."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from nngkit.documents.sync.local_copy import LocalCopy
from nngkit.documents.sync.members import Members
from nngkit.documents.sync.messages import (
    VERSION,
    About,
    Aware,
    BusMessage,
    Bye,
    Chunks,
    Client,
    Diff,
    DocumentHeartbeat,
    Give,
    Heartbeat,
    Manifest,
    Nack,
    Refused,
    Updates,
    Want,
)
from nngkit.documents.sync.refused import RefusedEdit
from nngkit.documents.sync.replica import Replica, Settings
from nngkit.documents.sync.timing import Pace, RoundTrips
from nngkit.documents.sync.transfers import Assembly, Transfers
from nngkit.documents.sync.wire import decode_bus, decode_reply, decode_request, encode
from nngkit.documents.versions import Edit, EditStream
from tests.documents.plain import Disk, Lenient
from tests.driving import Drive, driven, limits, names, recorded

DOC: Final = "minutes"


class Peer:
    """A run of a peer and its copy. Peer 0 has no REP socket."""

    def __init__(self, drive: Drive, number: int, epoch: int, refused: set[bytes]) -> None:
        rng = drive.rng
        self.me = EditStream(bytes([number]) * 8, epoch)
        self.askable = number > 0
        self.content = Lenient(refused)
        self.disk = Disk()
        self.written = 0
        settings = Settings(
            quiet=0.25, order=0.0625, few=3, log_edits=rng.choice((2, 8)), log_bytes=700, held_edits=4, held_bytes=900
        )
        self.trips = RoundTrips()
        replica = Replica(
            DOC, self.me, rng=Random(epoch), settings=settings, askable=self.askable, round_trips=self.trips
        )
        self.copy = LocalCopy(
            replica, self.content, log=self.disk, relay=number == 1,
            refused=lambda peer, why: drive.note(number, "refused", peer, why),
            cut=lambda peer: drive.note(number, "cut", peer),
        )  # fmt: skip


def sync(drive: Drive) -> None:
    """Drive four copies whose messages come late, twice, to the wrong peer, or never."""
    drive.remembers = False
    rng = drive.rng
    refused: set[bytes] = set()
    epochs = 1
    peers = [Peer(drive, number, epochs, refused) for number in range(4)]
    bus: list[tuple[EditStream, bytes]] = []
    requests: list[tuple[Peer, Any, bytes]] = []
    replies: list[tuple[Peer, Any, bytes]] = []
    since: list[tuple[Peer, float]] = []
    wake = [drive.now] * 4
    for one in peers:
        for other in peers:
            if other is not one:
                one.copy.replica.joined(other.me, other.askable)
    for turn in range(1000):
        number = rng.randrange(4)
        peer = peers[number]
        copy, replica = peer.copy, peer.copy.replica
        now, chance = drive.go_on(wake[number]), rng.random()
        if chance < 0.25 and bus:
            via, body = bus[rng.randrange(max(0, len(bus) - 10), len(bus))]
            message = decode_bus(body)
            if rng.random() < 0.05 and isinstance(message, Updates):
                message = crossed(drive, message, peer)
            for part in message.docs if isinstance(message, Heartbeat) else (message,):
                if via != peer.me or rng.random() < 0.05:
                    drive.call(copy.heard, part, rng.choice((via, via, via, None)), now)
        elif chance < 0.4 and requests:
            requester, ask, body = requests.pop(rng.randrange(len(requests)))
            answering = next((each for each in peers if each.me == ask.peer), None)
            if answering is None or rng.random() < 0.1:
                drive.call(requester.copy.failed, ask, now)
            elif rng.random() < 0.05:
                drive.call(requester.copy.unknown_document, ask, now)
            else:
                replies.append((requester, ask, answer(drive, answering, body, now)))
                number = peers.index(answering)
        elif chance < 0.55 and replies:
            at = rng.randrange(len(replies))
            requester, ask, body = replies.pop(at) if rng.random() < 0.9 else replies[at]
            reply = decode_reply(body)
            if isinstance(reply, Refused):
                drive.call(requester.copy.failed, ask, now)
            else:
                update = reply.body if isinstance(reply, Diff) else None
                drive.call(requester.copy.replied, ask, reply, now, body=update)
            if requester in peers:
                number = peers.index(requester)
        elif chance < 0.65:
            for _ in range(rng.choice((1, 1, 1, 2, 6)) if turn % 250 < 100 else 0):
                peer.written += 1
                update = peer.content.write(peer.me, peer.written)
                if rng.random() < 0.02:
                    refused.add(update)
                drive.call(copy.edited, update, now)
        elif chance < 0.8:
            heartbeat = replica.make_heartbeat(now)
            drive.note(number, heartbeat)
            bus.append((peer.me, encode(Heartbeat(peer.me, About(), (heartbeat,)))))
        elif chance < 0.82:
            other = rng.choice(peers)
            drive.call(replica.left, other.me)
        elif chance < 0.86:
            other = rng.choice(peers)
            if other is not peer:
                drive.call(replica.joined, other.me, other.askable)
        elif chance < 0.88:
            since.append((peer, replica.catch_up(now)))
        elif chance < 0.9 and since:
            asked, begun = since.pop()
            drive.note(asked.copy.replica.catch_up_status(begun, now))
            asked.copy.replica.catch_up_ended(begun)
        elif chance < 0.91:
            refusal = rng.choice((None, RefusedEdit(peer.me, rng.randint(1, 3), "why")))
            drive.call(replica.refused_by, rng.choice(peers).me, refusal)
        elif chance < 0.915:
            epochs += 1
            old, peers[number] = peers[number], Peer(drive, number, epochs, refused)
            for other in peers:
                if other is not peers[number]:
                    other.copy.replica.left(old.me)
                    other.copy.replica.joined(peers[number].me, old.askable)
                    peers[number].copy.replica.joined(other.me, other.askable)
        peer = peers[number]
        if rng.random() < 0.7:
            step = peer.copy.step(now)
            drive.note(number, step.wake - now, step.changed, step.edited, step.refused)
            wake[number] = step.wake
            for message in step.publish:
                drive.note(message)
                bus.append((peer.me, encode(message)))
            for ask, request in step.ask:
                drive.note(ask, request)
                requests.append((peer, ask, encode(request)))
        state = peer.copy.replica
        drive.note(state.counts, state.held, state.missing, sorted(state.versions.items()), state.is_quiet(now))
        drive.note(sorted(state.refusals.items()), peer.trips.slowest(), peer.copy.refusal(state.versions))
        drive.note(state.catch_up_status(now - 0.25, now), len(peer.content.names), len(peer.disk.entries))
        drive.step()


def answer(drive: Drive, peer: Peer, body: bytes, now: float) -> bytes:
    """Return the reply of a peer to a request."""
    request, copy = decode_request(body), peer.copy
    drive.note(request)
    if isinstance(request, Nack):
        reply: Any = copy.resend(request)
    elif isinstance(request, Want):
        update, versions = copy.difference(request)
        reply = Diff(peer.me, DOC, update, versions)
    else:
        assert isinstance(request, Give)
        reply = copy.given(request, now)
    drive.note(reply)
    return encode(reply)


def crossed(drive: Drive, message: Updates, peer: Peer) -> Updates:
    """Return edits that no peer has written: of the receiver, after edits that do not exist, or much later ones."""
    match drive.rng.randrange(3):
        case 0:
            return drive.changed(message, stream=peer.me)  # type: ignore[no-any-return]
        case 1:
            edits = tuple(Edit(each.payload, {**each.deps, peer.me: 1 << 20}) for each in message.edits)
            return drive.changed(message, edits=edits)  # type: ignore[no-any-return]
    return drive.changed(message, first=message.first + drive.rng.choice((3, 4, 1 << 21)))  # type: ignore[no-any-return]


def members(drive: Drive) -> None:
    """Drive the members that a peer knows, of which messages come over wrong connections."""
    rng = drive.rng
    streams = [EditStream(bytes([number]) * 8, epoch) for number in range(3) for epoch in (1, 2)]
    made = Members(streams[0])
    rows = [DocumentHeartbeat(doc, None, None, {}) for doc in "def"]
    with limits(documents__sync__members={"ENDED": 2, "MOST": 3, "MANY_DOCUMENTS": 2}):
        for _ in range(1000):
            drive.now += rng.choice((0.0, 0.0, 0.25, 0.5))
            stream, pipe = rng.choice(streams), rng.randint(0, 6)
            some = tuple(rng.sample(rows, rng.randint(0, 1)))
            clients = tuple(Client(doc, 1) for doc in rng.sample("def", rng.randint(0, 2)))
            repair = rng.choice(((), ("tcp://*:5",), ("tcp://x:5", "tcp://y:6")))
            name = rng.choice((None, "name"))
            messages: tuple[BusMessage, ...] = (
                *[Heartbeat(stream, About(VERSION, name, repair, rng.random() < 0.5, clients), some)] * 4,
                Updates(stream, "d", 1, (Edit(b"u", {}),)),
                Aware(stream, "d", 1, None),
                Bye(stream),
            )
            chance = rng.random()
            if chance < 0.8:
                drive.call(made.heard, rng.choice(messages), pipe, rng.choice((None, "tcp://z:9")), drive.now)
            elif chance < 0.9:
                drive.call(made.left, pipe)
            elif chance < 0.92:
                drive.note(sorted(made.cut(stream)))
            else:
                drive.call(made.silent, drive.now)
            drive.note(made.present(), made.editing(drive.now), made.early, [made.has_cut(each) for each in streams])
            drive.step()


def paces(drive: Drive) -> None:
    """Drive the times of heartbeats and of replies, and transfers in small chunks."""
    rng, pace, trips, transfers = drive.rng, Pace(0.0625, 0.5), RoundTrips(), Transfers()
    manifests: list[Manifest] = []
    with limits(documents__sync__transfers={"CHUNK": 1024, "MOST_KEPT": 2, "MOST_BYTES": 5000, "MOST_CHUNKS": 4}):
        for _ in range(600):
            drive.now += rng.choice((0.0, 0.0, 0.25, 1.0, 14.0, 15.0))
            now, peer = drive.now, rng.choice("xyz")
            drive.call(pace.company, rng.randint(0, 20), rng.randint(0, 120))
            drive.call(rng.choice((pace.changed, pace.sent)), now, rng.choice((0.5, 1.0)))
            if rng.random() < 0.1:
                drive.call(pace.hurry, now)
            drive.call(trips.measured, peer, rng.choice((0.0, 0.25, 1.0, 9.0)))
            if rng.random() < 0.2:
                drive.call(trips.forget, rng.choice("xyz"))
            drive.note(pace.due, pace.first, pace.last, trips.slowest(), trips.usual("x"), trips.patience("x"))
            update = bytes([rng.randint(0, 3)]) * rng.choice((1024, 1025, 2048, 4096, 4097))
            body = drive.call(transfers.offer, update, name=rng.randbytes(16), now=now)
            if isinstance(body, Manifest):
                manifests.append(body)
            if manifests:
                manifest = rng.choice(manifests[-4:])
                indexes = tuple(rng.choices(range(5), k=rng.randint(1, 2)))
                drive.call(transfers.chunks, manifest.transfer, indexes, now)
                whole = drive.call(Assembly, manifest, limit=rng.choice((2048, 4096)))
                if whole is not None:
                    for place in range(len(manifest.chunks)):
                        if rng.random() < 0.95:
                            chunks = transfers.chunks(manifest.transfer, (place,), now)
                            drive.call(whole.take, Chunks(EditStream(b"s" * 8, 1), manifest.transfer, chunks))
                    drive.note(list(whole.wanted()))
                    drive.call(whole.whole)
            drive.step()


def small(drive: Drive) -> None:
    """Drive copies; every other seed has small limits of messages."""
    with limits(**SMALL if drive.seed % 2 else {}):
        sync(drive)


SMALL: Final[dict[str, dict[str, int]]] = {
    "documents__sync__local_copy": {"GIVEN": 90, "MANY_GIVEN": 2},
    "documents__sync__history": {"OTHERS": 1, "FARTHEST": 8, "LONGEST": 60},
}
DRIVES: Final = {"sync": (small, 6), "members": (members, 2), "paces": (paces, 2)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_copies_do_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
