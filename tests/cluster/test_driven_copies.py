"""Parts of a cluster's content, each alone, given messages that fit no state of theirs: see tests/driving.py."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from nngkit import envelope
from nngkit.cluster.content import messages
from nngkit.cluster.content.copy import ClusterCopy, origin_of
from nngkit.cluster.content.holders import Holders
from nngkit.cluster.content.messages import START, Entry, Position, Run
from nngkit.cluster.content.order import SharedOrder
from nngkit.cluster.content.replica import SharedReplica
from nngkit.cluster.content.transfers import Downloads, Means
from nngkit.cluster.content.writer import SharedWriter
from nngkit.documents.sync import wire
from nngkit.documents.sync.messages import Heartbeat, Updates
from nngkit.documents.sync.transfers import Transfers
from nngkit.documents.versions import Edit, EditStream
from tests.cluster.documents_network import Log
from tests.documents.plain import Lenient
from tests.driving import Drive, driven, limits, names, recorded

NODES: Final = ("a", "b", "c")
SMALL: Final[dict[str, dict[str, int]]] = {
    "cluster__content__copy": {"PEERS": 2, "LARGE": 18, "BUS_LIMIT": 8, "ASSEMBLED": 16, "STUCK": 1, "REST": 2},
    "cluster__content__order": {
        "WRITERS": 2, "HELD_BYTES": 300, "HELD_CHANGES": 3, "LOG_BYTES": 316, "LOG_CHANGES": 4, "RUN_BYTES": 250,
        "FRAGMENT_LIMIT": 250, "MOST_ENTRIES": 2,
    },
    "cluster__content__writer": {
        "RUN_BYTES": 250, "MOST_ENTRIES": 3, "KEPT_CHANGES": 3, "KEPT_BYTES": 400, "QUEUE_CHANGES": 5,
        "QUEUE_BYTES": 600, "FRAGMENT_LIMIT": 60,
    },
    "cluster__content__holders": {"MOST_NAMES": 2, "MOST_ENTRIES": 5},
    "cluster__content__transfers": {"WINDOW": 2, "MOST": 2},
    "documents__sync__transfers": {"CHUNK": 1024},
}  # fmt: skip


def writer(drive: Drive) -> None:
    """Drive the changes of a writer."""
    rng, made = drive.rng, SharedWriter("x")
    for _ in range(500):
        chance = rng.random()
        if chance < 0.45:
            drive.call(made.change, b"c" * rng.choice((0, 1, 20, 59, 60, 61)))
        elif chance < 0.6:
            drive.call(made.batch)
        elif chance < 0.65:
            drive.call(made.again)
        elif chance < 0.75:
            drive.call(made.behind, max(0, made.next + rng.choice((-3, -2, -1, 0, 1))))
        elif chance < 0.95:
            drive.call(made.confirm, min(made.written, made.confirmed + rng.choice((0, 1, 1, 2, 4))))
        else:
            drive.call(made.confirm, max(0, made.confirmed - rng.choice((1, 2, 4, 9))))
        drive.note(made.written, made.confirmed, made.next, made.repeated, made.lost, list(made._mine))
        drive.note(made._waiting_bytes, made._kept_bytes)
        drive.step()


class Moody(Log):
    """A shared object that fails at times."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.rng = rng

    def update(self, fragment: bytes) -> None:
        if self.rng.random() < 0.05:
            raise ValueError("not now")
        super().update(fragment)

    def load(self, full: bytes) -> None:
        if self.rng.random() < 0.1:
            raise ValueError("not now")
        super().load(full)


def order(drive: Drive) -> None:
    """Drive the order of a host, and a copy of it that takes what it did in another order."""
    drive.remembers = False
    rng = drive.rng

    def made(node: str, limit: int = 4000) -> SharedOrder:
        return SharedOrder(
            "x", node, 1, Moody(rng), confirm=lambda n: drive.note(node, "confirm", n),
            report=lambda *reported: drive.note(node, reported), limit=limit,
        )  # fmt: skip

    host, copy = made("a"), made("b", rng.choice((60, 4000)))
    term, numbers = 1, dict.fromkeys("bcd", 0)
    runs: list[Run] = []
    for _ in range(400):
        chance = rng.random()
        if chance < 0.06:
            term += rng.choice((0, 1, 1))
            if rng.random() < 0.3:
                host, copy = copy, host
            first = Position(term, rng.choice((1, 2)), 0)
            base = drive.call(host.begin, first)
            if base is not None:
                runs.append(Run("x", first, base, ()))
        elif chance < 0.45 and host.position != START:
            who = rng.choice("bcd")
            numbers[who] += 1
            entry = Entry(who, 1, numbers[who], b"c" * rng.choice((0, 1, 30, 60)))
            at = host.next
            drive.call(host.append, entry)
            runs.append(Run("x", at, None, (entry,)))
        elif chance < 0.75 and runs:
            drive.call(copy.take, rng.choice(runs[-6:]))
        elif chance < 0.8:
            for each in drive.call(host.after, copy.position) or ():
                drive.call(copy.take, each)
        elif chance < 0.87:
            full = drive.call(host.full_state)
            drive.call(copy.load, "a", host.position, full)
        elif chance < 0.88:
            drive.call(copy.load, "a", host.position, rng.choice((b"\x82\x81\x83\x61b\x01\x01\x40", b"\x82\x80\x61b")))
        elif chance < 0.91:
            drive.call(copy.hear, host.position)
        for each in (host, copy):
            drive.note(each.position, each.known, each.changed, each.applied, each.loads, each.failures, each.behind)
            drive.note(list(each._table.items()), each._log_bytes, len(each._log), list(each._held), each._held_bytes)
        where = rng.choice([copy.position, START, *(at for at, _, _ in host._log)])
        drive.note(host.after(where), copy.after(where), copy.last("b", 1), host.next)
        if rng.random() < 0.3:
            copy.changed = False
        drive.step()


def holders(drive: Drive) -> None:
    """Drive the table of a host, before and after all nodes have told it of their documents."""
    rng = drive.rng
    nodes = ("a", "b", "c", "d")
    made = Holders("a", drive.now + 4, ("k",) if drive.seed % 2 else ())
    for _ in range(300):
        drive.now += rng.choice((0.0, 0.0, 1 / 16))
        if drive.now > 80.0:
            made = Holders("a", drive.now + 1, ())
            drive.now = 64.0
        name, node, chance = rng.choice(("d", "e", "k")), rng.choice(nodes), rng.random()
        if chance < 0.6:
            parent, avoid = rng.choice(("", *nodes)), rng.choice(("", "", *nodes))
            drive.call(made.opened, name, node, drive.now, parent=parent, avoid=avoid, filled=rng.random() < 0.4)
        elif chance < 0.75:
            drive.call(made.closed, name, node)
        elif chance < 0.78:
            drive.call(made.node_removed, node)
        elif chance < 0.85:
            drive.call(made.decide, drive.now)
        drive.note(made.wake_at, made.refused, [made.of(each) for each in ("d", "e", "k")], made._entries)
        drive.note(sorted(made._filled))
        drive.step()


def downloads(drive: Drive) -> None:
    """Drive downloads from nodes of which chunks come late, damaged, or never."""
    rng = drive.rng
    sent: list[tuple[str | None, Any]] = []
    transfers, made = Transfers(), Downloads(lambda to, message: sent.append((to, message)), limit=5000)
    manifests = []
    for _ in range(400):
        now, chance = drive.go_on(made.wake_at) + rng.choice((0.0, 0.0, 1.0)), rng.random()
        drive.now = now
        if chance < 0.2:
            body = transfers.offer(bytes([rng.randint(0, 3)]) * rng.choice((1025, 3000, 5000, 5001)),
                                   name=rng.randbytes(16), now=now)  # fmt: skip
            manifests.append(body)
        if chance < 0.35 and manifests:
            drive.call(made.start, rng.choice("ab"), rng.choice(manifests[-4:]),
                       lambda body, at: drive.note("done", body and len(body), at), now)  # fmt: skip
        elif chance < 0.75 and sent:
            to, request = sent.pop(rng.randrange(len(sent)))
            chunks = transfers.chunks(request.transfer, (request.chunk,), now)
            data = chunks[0].data if chunks else b""
            data = data if rng.random() < 0.9 else rng.choice((b"", data[1:], bytes(len(data))))
            sender = to if rng.random() < 0.9 else "c"
            drive.call(made.receive, sender, messages.Chunk(request.transfer, request.chunk, data), now)
        elif chance < 0.95:
            drive.call(made.tick, now)
        elif chance < 0.96:
            drive.call(made.node_removed, rng.choice("ab"), now)
        drive.note(made.wake_at, made.finished, made.failed, sent[-3:], len(sent))
        drive.step()


class Side:
    """A node with one copy of a document and one shared object, and what they sent."""

    def __init__(self, drive: Drive, name: str, epoch: int, refused: set[bytes]) -> None:
        self.name = name
        self.sent: list[tuple[str | None, messages.Message]] = []
        rng = Random(epoch)
        self.transfers = Transfers()
        self.downloads = Downloads(self.send, limit=1 << 20)
        means = Means(rng, self.send, self.transfers, self.downloads)
        self.me = EditStream(origin_of(name), epoch)
        self.content = Lenient(refused)
        self.written = 0
        self.copy = ClusterCopy(
            "d", name, self.me, self.content, means, refused=lambda *why: drive.note(name, why), now=drive.now
        )
        self.shared = SharedReplica(
            "x", name, epoch, Log(), means, report=lambda *why: drive.note(name, why), now=drive.now, limit=1 << 20
        )

    def send(self, to: str | None, message: messages.Message) -> None:
        self.sent.append((to, message))


def copies(drive: Drive) -> None:
    """Drive three copies of a document whose messages come late, twice, in parts that are missing, or never."""
    drive.remembers = False
    rng = drive.rng
    refused: set[bytes] = set()
    sides = {name: Side(drive, name, 10 * place, refused) for place, name in enumerate(NODES, 1)}
    under_way: list[tuple[str, str | None, Any]] = []
    for _ in range(600):
        name = rng.choice(NODES)
        side = sides[name]
        now, chance = drive.go_on(side.copy.wake_at), rng.random()
        if chance < 0.5 and under_way:
            at = rng.randrange(max(0, len(under_way) - 10), len(under_way))
            sender, to, message = under_way[at]
            if to is not None and rng.random() < 0.8:
                del under_way[at]
            name = to or (name if name != sender else rng.choice([each for each in NODES if each != sender]))
            side = sides[name]
            handle(drive, side, sender, message, now)
        elif chance < 0.6:
            side.written += 1
            update = side.content.write(side.me, side.written)
            if drive.seed % 2 == 0 and rng.random() < 0.3:  # so that documents are transferred in chunks
                many = [(*side.me, 100 * side.written + each) for each in range(40)]
                side.content.names |= frozenset(many)
                update = envelope.encode({"edit": many})
            if rng.random() < 0.05:
                refused.add(update)
            drive.call(side.copy.edited, update, now)
        elif chance < 0.62:
            lost = EditStream(side.me.origin, 7)  # of an earlier run, of which edits are lost
            seq = rng.randint(2, 4)
            edits = Updates(lost, "d", seq, (Edit(envelope.encode({"edit": [(*lost, seq)]}), {}),))
            under_way.append((name, None, messages.Fragment("d", wire.encode(edits))))
        elif chance < 0.66:
            drive.call(side.copy.attached, rng.choice(("", *NODES)), now, new_host=rng.random() < 0.5)
        elif chance < 0.71:
            drive.call(
                side.copy.named_partner, messages.Partner("d", rng.choice(("", *NODES)), rng.choice((0, 1, 9))), now
            )
        elif chance < 0.725:
            drive.call(side.copy.gap, rng.choice(NODES), now)
        elif chance < 0.73:
            drive.call(side.copy.node_removed, rng.choice((*NODES, side.copy.partner or "a")), now)
        elif chance < 0.76:
            drive.call(side.copy.not_open, rng.choice((*NODES, side.copy.partner or "a")), now)
        elif chance < 0.775:
            drive.call(side.copy.request_full, now)
        elif chance < 0.78:
            drive.call(side.copy.close)
        if rng.random() < 0.7:
            if now >= side.downloads.wake_at:
                side.downloads.tick(now)
            drive.note(name, side.copy.step(now))
        drive.note(side.sent)
        under_way += [(name, to or rng.choice(NODES), each) if to == "" else (name, to, each) for to, each in side.sent]
        side.sent.clear()
        copy = side.copy
        drive.note(copy.wake_at, copy.partner, copy.holders, copy.caught_up_at, copy._streams, sorted(copy._requests))
        drive.note(copy._parts, copy._interval, copy._heartbeat_at, copy._opened_at, copy._opened_pause, copy._held_at)
        drive.note(copy._unanswered, copy._asked_at, copy._catching, copy.replica.held, copy.replica.missing)
        drive.step()


def chunk(drive: Drive, side: Side, transfer: bytes, index: int, now: float) -> messages.Chunk:
    """Return a chunk of a transfer, which is damaged at times."""
    chunks = side.transfers.chunks(transfer, (index,), now)
    data = chunks[0].data if chunks else b""
    return messages.Chunk(transfer, index, data if drive.rng.random() < 0.9 else data[:-1])


def handle(drive: Drive, side: Side, sender: str, message: Any, now: float) -> None:
    """Give a copy a message, as ClusterDocuments does."""
    copy = side.copy
    match message:
        case messages.Fragment(_, content):
            drive.call(copy.fragment, sender if drive.rng.random() < 0.97 else "c", wire.decode_bus(content), now)
        case messages.FragmentPart():
            drive.call(copy.fragment_part, sender, message, now)
        case messages.Heartbeat(_, content, answer):
            heartbeat = wire.decode_bus(content)
            assert isinstance(heartbeat, Heartbeat)
            drive.call(copy.heartbeat, sender, heartbeat, answer, now)
        case messages.FullDocumentRequest():
            drive.call(copy.full_document_request, sender, message, wire.decode_request(message.content), now)
        case messages.FragmentRequest():
            drive.call(copy.fragment_request, sender, message, wire.decode_request(message.content))
        case messages.Document() | messages.Fragments():
            if drive.rng.random() < 0.1:
                message = messages.NotOpen(message.number, "d")
            elif drive.rng.random() < 0.05:
                message = drive.changed(message, content=message.content[:-1])
            drive.call(copy.replied, sender if drive.rng.random() < 0.95 else "c", message, now)
        case messages.ChunkRequest(transfer, index):
            side.send(sender, chunk(drive, side, transfer, index, now))
        case messages.Chunk():
            drive.call(side.downloads.receive, sender, message, now)


def objects(drive: Drive) -> None:
    """Drive three copies of a shared object; the host is now this one, now that, or two of them."""
    drive.remembers = False
    rng = drive.rng
    sides = {name: Side(drive, name, 10 * place, set()) for place, name in enumerate(NODES, 1)}
    under_way: list[tuple[str, str | None, Any]] = []
    term, host = 0, ""
    for _ in range(700):
        name = rng.choice(NODES)
        side = sides[name]
        now, chance = drive.go_on(side.shared.wake_at), rng.random()
        if chance < 0.5 and under_way:
            at = rng.randrange(max(0, len(under_way) - 8), len(under_way))
            sender, to, message = under_way[at]
            if to is not None and rng.random() < 0.8:
                del under_way[at]
            name = to or (name if name != sender else rng.choice([each for each in NODES if each != sender]))
            side = sides[name]
            take(drive, side, sender, message, now)
        elif chance < 0.62:
            drive.call(side.shared.change, b"c" * rng.choice((1, 20, 60, 61, 300)), now)
        elif chance < 0.645:
            term, host = term + 1, name
            drive.call(side.shared.lead, term, now)
        elif chance < 0.72 and term and name != host:
            parent = rng.choice(("", *NODES))
            old = term - (rng.random() < 0.1)
            spread, after = rng.choice(((0.0, 0.0), (0.25, 1.0)))
            drive.call(side.shared.attached, old, parent, now, spread=spread, after=after)
        elif chance < 0.735:
            drive.call(side.shared.gap, now)
        elif chance < 0.75 and host:
            drive.call(side.shared.heard_position, sides[host].shared.order.position, now)
        elif chance < 0.76:
            drive.call(side.shared.request_full, now)
        elif chance < 0.77:
            drive.call(side.shared.node_removed, rng.choice(NODES), now)
        elif chance < 0.8:
            ahead = Position(term + rng.choice((-1, 0, 1)), rng.choice((10, 20, 30)), rng.randint(0, 9))
            drive.call(side.shared.offer, rng.choice(NODES), messages.Offer("x", ahead), now)
        if rng.random() < 0.7:
            if now >= side.downloads.wake_at:
                side.downloads.tick(now)
            drive.note(name, side.shared.step(now))
        drive.note(side.sent)
        under_way += [(name, to or host or "a", each) if to == "" else (name, to, each) for to, each in side.sent]
        side.sent.clear()
        made = side.shared
        drive.note(made.wake_at, made.confirmed, made.behind_host, made.order.position, made.order.known, made._request)
        drive.note(made._ask_at, made._ask_pause, made._ask_host, made._force, made._downloading, made._best)
        drive.note(
            made._begin_at, made._begin_latest, made._resend_at, made._resend_pause, made.writer.next, made.leading
        )
        drive.step()


def take(drive: Drive, side: Side, sender: str, message: Any, now: float) -> None:
    """Give a shared object a message, as ClusterDocuments does."""
    made = side.shared
    match message:
        case messages.OrderedFragments():
            drive.call(made.ordered, message)
        case messages.Gather():
            drive.call(made.gather, sender, message, now)
        case messages.Offer():
            drive.call(made.offer, sender, message, now)
        case messages.Changes():
            drive.call(made.changes, sender, message)
        case messages.Behind():
            drive.call(made.behind, message)
        case messages.FullObjectRequest():
            drive.call(made.requested, sender, message, now)
        case messages.FullObject() | messages.MissingFragments() | messages.NotOpen():
            if drive.rng.random() < 0.1:
                message = messages.NotOpen(message.number, "x")
            elif isinstance(message, messages.FullObject) and drive.rng.random() < 0.1:
                message = drive.changed(message, content=drive.rng.choice((b"", message.content[:-1])))
            drive.call(made.replied, sender, message, now)
        case messages.ChunkRequest(transfer, index):
            side.send(sender, chunk(drive, side, transfer, index, now))
        case messages.Chunk():
            drive.call(side.downloads.receive, sender, message, now)


def small(drive: Drive, which: Any) -> None:
    """Drive a part with small limits."""
    with limits(**SMALL):
        which(drive)


def either(drive: Drive, which: Any) -> None:
    """Drive a part; every other seed has small limits."""
    with limits(**SMALL if drive.seed % 2 else {"documents__sync__transfers": {"CHUNK": 1024}}):
        which(drive)


DRIVES: Final = {
    "writer": (lambda drive: small(drive, writer), 2),
    "order": (lambda drive: small(drive, order), 3),
    "holders": (lambda drive: small(drive, holders), 2),
    "downloads": (lambda drive: small(drive, downloads), 2),
    "copies": (lambda drive: either(drive, copies), 4),
    "objects": (lambda drive: either(drive, objects), 4),
}


@pytest.mark.parametrize("name", names(DRIVES))
def test_parts_do_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
