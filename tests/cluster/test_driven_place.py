"""Places of nodes in a tree, over a network without manners, do what was recorded: see tests/driving.py."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from nngkit.cluster.tree.messages import KINDS, Ancestry, Message, Path
from nngkit.cluster.tree.place import Place
from nngkit.cluster.tree.values import PlaceLimits
from tests.driving import Drive, below, driven, limits, names, recorded

IDS: Final = ("a", "b", "c", "d", "e", "f", "g", "h")
LIMITS: Final = PlaceLimits(
    heartbeat=0.25, silence=2.0, standby_heartbeat=0.5, standby_silence=3.0, handshake=1.0, attempt=0.5, wait=1.0,
    stagger=0.0625, first_backoff=0.0625, longest_backoff=0.5, patience=0.5, news=0.0625, quiet=0.25, plan=0.5,
    moves=16, members=7, links=5, waiters=1,
)  # fmt: skip


class Tree:
    """Places, their links, and what is under way on them."""

    def __init__(self, drive: Drive, fanout: int) -> None:
        self.drive, self.fanout = drive, fanout
        self.nodes: dict[str, Place] = {}
        self.epochs = 10
        self.links: dict[tuple[str, int], tuple[str, int]] = {}  # the other end of each end
        self.queues: dict[tuple[str, int], list[Any]] = {}  # to each end
        self.dials: list[tuple[str, str]] = []
        self.numbers = 0
        for name in IDS:
            self.start(name)

    def start(self, name: str) -> None:
        drive = self.drive
        self.epochs += 1
        twin = "b" if name == "h" else name  # two nodes with one id
        listens = name not in ("f", "h")
        self.nodes[name] = Place(
            twin, self.epochs, address=f"tcp://{name}:1" if listens else None,
            seeds=["tcp://a:1", f"tcp://{drive.rng.choice(IDS[:5])}:1", "tcp://absent:1"],
            voters={"a": "tcp://a:1", "b": "tcp://b:1"}, fanout=self.fanout, may_host=name in ("a", "b"),
            now=drive.now, rng=Random(self.epochs), limits=LIMITS, facts={"n": 1} if name == "c" else None,
        )  # fmt: skip
        drive.call(self.nodes[name].join, drive.now)

    def connect(self, dialer: str, address: str) -> None:
        other = address[6:7]
        drive = self.drive
        if other not in self.nodes or len(address) > 9 or drive.rng.random() < 0.1:
            drive.call(self.nodes[dialer].dial_failed, address, drive.now)
            return
        self.numbers += 2
        ends = (dialer, self.numbers), (other, self.numbers + 1)
        for one, two in (ends, ends[::-1]):
            self.links[one], self.queues[one] = two, []
        drive.call(self.nodes[dialer].link_up, ends[0][1], drive.now, dialed=address)
        drive.call(self.nodes[other].link_up, ends[1][1], drive.now, dialed=None)

    def end(self, one: tuple[str, int], *, told: bool) -> None:
        two = self.links.pop(one)
        self.queues.pop(one)
        if told:
            self.drive.call(self.nodes[one[0]].link_down, one[1], self.drive.now)
        if self.links.get(two) == one:
            if self.queues[two] and self.drive.rng.random() < 0.5:  # what was written before arrives
                for message in self.queues[two]:
                    self.drive.call(self.nodes[two[0]].receive, two[1], message, self.drive.now)
            self.links.pop(two)
            self.queues.pop(two)
            self.drive.call(self.nodes[two[0]].link_down, two[1], self.drive.now)

    def take(self, name: str) -> None:
        node, drive = self.nodes[name], self.drive
        effects = node.take()
        drive.note(name, effects.sends, effects.drop, effects.dial, effects.events)
        for link, message in effects.sends:
            two = self.links.get((name, link))
            if two is not None and two in self.queues:
                self.queues[two].append(KINDS.parse(KINDS.pack(message), name))
        for link in effects.drop:
            if (name, link) in self.links:
                self.end((name, link), told=False)
        self.dials += [(name, address) for address in effects.dial]


def place(drive: Drive) -> None:
    """Drive eight nodes of small fan-out, two of them with one id, and a root that changes."""
    with limits(cluster__tree__search={"MOST_HOPS": 3}, cluster__tree__children={"MOST_HOPS": 3}):
        play(drive)


def play(drive: Drive) -> None:
    """Drive the nodes."""
    rng = drive.rng
    drive.texts = {"*": ("a", "b", "c", "d"), "address": ("tcp://a:1", "tcp://d:1"), "epoch": (9, 11, 12, 13)}
    drive.texts |= {"host": ("tcp://a:1", "tcp://b:1"), "grandparent": ("tcp://a:1", "tcp://e:1")}
    drive.texts |= {"addresses": ("tcp://c:1", "tcp://e:1"), "sibling": ("tcp://c:1",), "size": (1, 1, 2, 6)}
    drive.texts |= {"fanout": (0, 0, 2, 2, 3), "hops": (0, 1, 2, 3, 4)}
    term = 1

    def ancestry() -> tuple[Any, ...]:
        path = tuple(rng.sample(IDS, rng.randint(0, 3)))
        return rng.choice((0, term, term)), rng.randint(1, 3), path, "tcp://a:1", None, "tcp://c:1"

    drive.drawers = {Ancestry: lambda: Ancestry(*ancestry()), Path: lambda: Path(*ancestry())}
    tree = Tree(drive, rng.choice((1, 2, 2, 3)))
    drive.call(tree.nodes["a"].lead, term, drive.now)
    for _ in range(1200):
        drive.now += rng.choice((0.0, 0.0, 0.0, 0.0, 1 / 128, 1 / 64, 1 / 32))
        due = min(node.wake_at for node in tree.nodes.values())
        if rng.random() < 0.1 and due < drive.now + 10:
            drive.now = max(drive.now, due)
        now, chance = drive.now, rng.random()
        late = [name for name, node in tree.nodes.items() if node.wake_at <= now]
        full = [end for end, queue in tree.queues.items() if queue]
        if late and chance < 0.3:
            name = rng.choice(late)
            drive.call(tree.nodes[name].tick, now)
        elif full and chance < 0.85:
            end = rng.choice(full)
            name, message = end[0], tree.queues[end].pop(0)
            if rng.random() < 0.02:
                continue
            if rng.random() < 0.04:
                message = drive.message(type(message))
            drive.call(tree.nodes[name].receive, end[1], message, now)
        elif tree.dials and chance < 0.95:
            name, address = tree.dials.pop(rng.randrange(len(tree.dials)))
            tree.connect(name, address)
        elif chance < 0.96 and tree.links:
            end = rng.choice(list(tree.links))
            name = end[0]
            if rng.random() < 0.4:
                tree.end(end, told=True)
            else:
                drive.call(tree.nodes[name].receive, end[1], drive.message(*below(Message)), now)
        elif chance < 0.967:
            term, name = term + 1, rng.choice(("a", "b"))
            drive.call(tree.nodes[name].lead, term, now)
        elif chance < 0.975:
            name, host = rng.choice(IDS), rng.choice((*"ab", None))
            drive.call(tree.nodes[name].follow, term, host, host and f"tcp://{host}:1", now)
        elif chance < 0.977:
            name = rng.choice(IDS)
            drive.call(tree.nodes[name].leave, now)
        elif chance < 0.98:
            name = rng.choice(IDS)
            drive.call(tree.nodes[name].set_facts, {"x": rng.randint(0, 2)}, now)
        elif chance < 0.983:
            name = rng.choice(IDS)
            drive.call(tree.nodes[name].set_seeds, ["tcp://b:1", "tcp://d:1"], now)
        elif chance < 0.986:
            name = rng.choice(IDS)
            for end in [end for end in tree.links if end[0] == name]:
                if end in tree.links:
                    tree.end(end, told=False)
            tree.dials = [dial for dial in tree.dials if dial[0] != name]
            tree.start(name)
        else:
            name = rng.choice(IDS)
            drive.call(tree.nodes[name].heard, rng.randint(1, tree.numbers + 1), now)
        tree.take(name)
        node = tree.nodes[name]
        drive.note(node.parent, node.parent_id, node.term, node.host, node.host_address, node.path, node.leading)
        drive.note(node.children, node.voters, node.wake_at, node.stats, [node.route(each) for each in IDS])
        if rng.random() < 0.1:
            drive.note(node.members(), node.shape(), [node.has_earlier(each, 13) for each in IDS])
        drive.step()


DRIVES: Final = {"place": (place, 10)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_places_are_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
