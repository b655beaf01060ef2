"""Documents and shared objects of three nodes, over a network without manners: see tests/driving.py."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from nngkit import envelope
from nngkit.cluster.content.messages import BODY_LIMIT
from nngkit.cluster.content.part import ClusterDocuments
from nngkit.cluster.content.values import OpenedDocument
from nngkit.documents.versions import EditStream
from tests.cluster.documents_network import Log, PlainDocument
from tests.driving import Drive, driven, limits, names, recorded

NODES: Final = ("a", "b", "c")
DOCS: Final = ("d", "e")
OBJECTS: Final = ("x", "y")


class Node:
    """A node, its objects, and what is under way to it."""

    def __init__(self, drive: Drive, name: str, epoch: int, saw: dict[str, Any]) -> None:
        def open_document(documents: ClusterDocuments, doc: str, me: EditStream) -> OpenedDocument:
            return PlainDocument(documents, doc, me, saw.setdefault(doc, {}))

        self.name, self.epoch = name, epoch
        self.objects: dict[str, Log] = {}
        accept = (lambda _: True) if name == "a" else None
        rng = Random(epoch)
        self.documents = ClusterDocuments(
            name, epoch, now=drive.now, rng=rng, accept=accept, open_document=open_document
        )


def content(drive: Drive) -> None:
    """Drive three nodes whose messages come late, twice, changed, or never; the host is now this one, now that."""
    drive.remembers = False
    rng = drive.rng
    saw: dict[str, Any] = {}
    nodes = {name: Node(drive, name, 100 * place, saw) for place, name in enumerate(NODES, 1)}
    broadcasts: list[tuple[str, int, bytes]] = []
    unicasts: list[tuple[str, str, list[Any]]] = []
    term, host = 1, "a"
    for name, node in nodes.items():
        node.documents.attached(term, host, "" if name == host else host, drive.now)
    for _ in range(600):
        name = rng.choice(NODES)
        node = nodes[name]
        documents = node.documents
        now, chance = drive.go_on(documents.wake_at), rng.random()
        if now >= documents.wake_at and chance < 0.8:
            drive.call(documents.tick, now)
        elif chance < 0.5 and unicasts:
            at = rng.randrange(max(0, len(unicasts) - 12), len(unicasts))
            sender, to, row = unicasts.pop(at) if rng.random() < 0.7 else unicasts[at]
            if rng.random() < 0.06:
                row = list(row)
                at = rng.randrange(1, len(row))
                row[at] = changed(drive, row[at])
            node = nodes.get(rng.choice(NODES) if rng.random() < 0.05 else to or host, node)
            drive.call(node.documents.unicast, sender, row, now)
        elif chance < 0.65 and broadcasts:
            origin, epoch, body = broadcasts[max(-6, -len(broadcasts)) if rng.random() < 0.5 else -1]
            if rng.random() < 0.04:
                row = envelope.decode(body, what="message", limit=BODY_LIMIT)
                row[-1] = changed(drive, row[-1])
                body = envelope.encode(row)
            if origin != name:
                if rng.random() < 0.1:
                    drive.call(documents.gap, origin, epoch, now)
                else:
                    drive.call(documents.received, origin, epoch, body, now)
        elif chance < 0.7:
            doc = rng.choice(DOCS)
            if doc in documents.documents:
                documents.documents[doc].edit(now)
                drive.note("edit", name, doc)
            else:
                drive.call(documents.open, doc, now)
        elif chance < 0.78:
            which = rng.choice(OBJECTS)
            if which in node.objects:
                for _ in range(rng.choice((1, 1, 3))):
                    drive.call(documents.change, which, b"c" * rng.choice((1, 20, 40, 60, 70, 1500)), now)
            else:
                log = Log()
                drive.call(documents.share, which, log, now)
                if which in documents.objects:
                    node.objects[which] = log
        elif chance < 0.79:
            drive.call(documents.request_full, rng.choice((*DOCS, *OBJECTS)), now)
        elif chance < 0.797:
            drive.call(documents.close, rng.choice(DOCS))
        elif chance < 0.807:
            drive.call(documents.aware, rng.choice(DOCS), rng.randint(0, 3), rng.choice((b"s", None)))
        elif chance < 0.812:
            drive.call(documents.member_removed, rng.choice(NODES), now)
        elif chance < 0.82:
            term, host = term + 1, name
            drive.call(documents.lead, term, now)
        elif chance < 0.86:
            if name != host:
                drive.call(documents.attached, term, host, rng.choice([each for each in NODES if each != name]), now)
        elif chance < 0.865:
            drive.call(documents.attached, term - 1, rng.choice(NODES), host, now)
        for each, other in nodes.items():
            if other is node or rng.random() < 0.1:
                effects = other.documents.take(now)
                broadcasts += [(each, other.epoch, body) for body in effects.broadcasts]
                unicasts += [(each, to, row) for to, row in effects.sends]
                drive.note(each, effects.broadcasts, effects.sends, effects.events, sorted(effects.changed))
                drive.note(other.documents.wake_at, sorted(other.documents.count.items()))
                for which, log in other.objects.items():
                    drive.note(which, log.changes[-3:], len(log.changes), other.documents.confirmed(which))
                    shared = other.documents.objects[which]
                    drive.note(other.documents.behind(which), shared.order.position, shared.order.applied)
                    drive.note(shared.order.loads, shared.order.failures, shared.writer.lost, shared.writer.repeated)
                drive.note([other.documents.holders(doc) for doc in DOCS])
                drive.note([sorted(each.states.items()) for each in other.documents.documents.values()])
        drive.step()


def changed(drive: Drive, value: Any) -> Any:
    """Return an item of a message that is a little different."""
    match value:
        case bool():
            return not value
        case int():
            return max(0, value + drive.rng.choice((-1, 1)))
        case str():
            return drive.rng.choice((*NODES, *DOCS, *OBJECTS))
        case bytes():
            return value[: drive.rng.randint(0, len(value))]
        case list() if value:
            at = drive.rng.randrange(len(value))
            return [changed(drive, each) if at == place else each for place, each in enumerate(value)]
    return value


SMALL: Final[dict[str, dict[str, int]]] = {
    "cluster__content__copy": {"PEERS": 1, "LARGE": 30, "ASSEMBLED": 60, "MOST_PARTS": 3},
    "cluster__content__order": {"WRITERS": 2, "HELD_BYTES": 150, "HELD_CHANGES": 3},
    "cluster__content__writer": {"RUN_BYTES": 220, "MOST_ENTRIES": 2, "KEPT_CHANGES": 2},
    "cluster__content__holders": {"MOST_NAMES": 1, "MOST_ENTRIES": 2},
    "cluster__content__transfers": {"WINDOW": 1, "MOST": 1},
    "cluster__content__part": {"MOST_OPEN": 1, "MOST_POSITIONS": 1, "POSITIONS": 1, "AWARENESS": 2},
    "documents__sync__transfers": {"CHUNK": 1024},
}


def small(drive: Drive) -> None:
    """Drive them; every other seed has small limits."""
    with limits(**SMALL if drive.seed % 2 else {}):
        content(drive)


DRIVES: Final = {"content": (small, 8)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_content_does_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
