"""Whole nodes, over links without manners, do what was recorded: see tests/driving.py."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from nngkit.cluster.frames import Channel, local_frame
from nngkit.cluster.jobs.part import JobStart
from nngkit.cluster.node.letters import LetterLimits
from nngkit.cluster.node.node import Node
from nngkit.cluster.node.values import NodeConfig
from tests.cluster.documents_network import Log
from tests.driving import Drive, driven, limits, names, recorded

NAMES: Final = ("a", "b", "c", "d", "e")
VOTERS: Final = {"a": "mem://a", "b": "mem://b", "c": "mem://c"}
WALL: Final = 1.7e9
LETTERS: Final = LetterLimits(waiting=3, again=0.25, patience=1.0, receivers=2, senders=2)


class Links:
    """Nodes, their links, and frames under way."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        self.nodes: dict[str, Node] = {}
        self.ends: dict[tuple[str, int], tuple[str, int]] = {}
        self.frames: dict[tuple[str, int], list[list[bytes]]] = {}  # to each end
        self.dials: list[tuple[str, str]] = []
        self.jobs: list[tuple[str, Any]] = []
        self.numbers, self.epoch = 0, int(WALL * 1e6)
        self.voters = dict(list(VOTERS.items())[: drive.rng.choice((1, 3))])
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        self.epoch += 1_000_000
        config = NodeConfig(
            cluster="c", id=name, address=f"mem://{name}" if name != "e" else None, seeds=tuple(self.voters.values()),
            voters=self.voters if name in self.voters else {}, fanout=2, kinds=frozenset({"work"}), slots=2,
            token="secret" if name != "d" or self.drive.rng.random() < 0.9 else "other", letters=LETTERS,
            max_members=6,
        )  # fmt: skip
        now = self.drive.now
        self.nodes[name] = Node(
            config,
            epoch=self.epoch,
            now=now,
            wall=WALL + now,
            rng=Random(self.epoch),
            entropy=Random(self.epoch).randbytes,
        )

    def connect(self, dialer: str, address: str) -> None:
        drive, other = self.drive, address[-1]
        if drive.rng.random() < 0.1 or other not in NAMES[:4]:
            drive.call(self.nodes[dialer].dial_failed, address, "not reached", drive.now)
            return
        self.numbers += 2
        one, two = (dialer, self.numbers), (other, self.numbers + 1)
        for here, there in ((one, two), (two, one)):
            self.ends[here], self.frames[here] = there, []
        self.nodes[dialer].link_up(one[1], address, address, drive.now)
        self.nodes[other].link_up(two[1], "mem://?", None, drive.now)

    def end(self, one: tuple[str, int], *, told: bool) -> None:
        two = self.ends.pop(one)
        del self.frames[one]
        if told:
            self.nodes[one[0]].link_down(one[1], self.drive.now)
        if self.ends.pop(two, None) is not None:
            for frames in self.frames.pop(two):
                self.nodes[two[0]].received(two[1], frames, self.drive.now)
            self.nodes[two[0]].link_down(two[1], self.drive.now)

    def take(self, name: str) -> None:
        drive, node = self.drive, self.nodes[name]
        effects = node.take(drive.now)
        drive.note(name, effects.sends, effects.drops, effects.dials, effects.events, effects.warnings)
        for link, frames, _ in effects.sends:
            two = self.ends.get((name, link))
            if two in self.frames:
                self.frames[two].append(frames)
        for link in effects.drops:
            if (name, link) in self.ends:
                self.end((name, link), told=False)
        self.dials += [(name, address) for address in effects.dials]
        self.jobs += [(name, event.job) for event in effects.events if isinstance(event, JobStart)]


def damaged(rng: Random, frames: list[bytes]) -> list[bytes]:
    """Return frames, seldom with a wrong bit, or cut off."""
    if rng.random() > 0.01 or not frames[0]:
        return frames
    frame = bytearray(frames[0])
    frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    return [bytes(frame[: rng.choice((len(frame), 3))]), *frames[1:]]


def node(drive: Drive) -> None:
    """Drive five nodes of small fan-out, with few questions at a time."""
    with limits(cluster__node__questions={"MOST": 3}, cluster__node__node={"MOST_KINDS_BYTES": 9}):
        nodes(drive)


def nodes(drive: Drive) -> None:
    """Drive five nodes."""
    drive.remembers = False
    rng, links = drive.rng, Links(drive)
    for _ in range(1100):
        drive.now += rng.choice((0.0, 0.0, 0.0, 1 / 64))
        due = min(each.wake_at for each in links.nodes.values())
        if rng.random() < 0.3 and due < drive.now + 10:
            drive.now = max(drive.now, due)
        now, chance = drive.now, rng.random()
        late = [name for name, each in links.nodes.items() if each.wake_at <= now]
        full = [end for end, frames in links.frames.items() if frames]
        name = rng.choice(NAMES)
        made = links.nodes[name]
        if late and chance < 0.35:
            name = rng.choice(late)
            links.nodes[name].tick(now, WALL + now)
        elif full and chance < 0.75:
            end = rng.choice(full)
            name = end[0]
            for _ in range(rng.choice((1, 4, 8))):
                if links.frames.get(end):
                    drive.call(links.nodes[name].received, end[1], damaged(rng, links.frames[end].pop(0)), now)
        elif links.dials and chance < 0.85:
            name, address = links.dials.pop(rng.randrange(len(links.dials)))
            links.connect(name, address)
        elif links.jobs and chance < 0.87:
            name, job = links.jobs.pop()
            crew = links.nodes[name].work.crew
            if rng.random() < 0.7:
                drive.call(crew.done, job, b"result", now)
            else:
                drive.call(crew.failed, job, "Error", "text", now, retry=rng.random() < 0.5)
        elif chance < 0.872 and links.ends:
            end = rng.choice(list(links.ends))
            links.end(end, told=True)
            name = end[0]
        elif chance < 0.89:
            drive.call(made.broadcast, rng.choice(("chat", "other")), [b"m"] * rng.choice((1, 2)), now)
        elif chance < 0.91:
            drive.call(made.letter, rng.choice(NAMES), "note", b"l", now)
        elif chance < 0.93:
            what = rng.choice(("status", "tree", "other", "echo", "joined", "joined", "drain", "forget"))
            about = rng.choice((*NAMES, "z")) if what == "drain" and rng.random() < 0.5 else "z"
            if what == "forget":
                drive.call(made.questions.forget, rng.randint(1, 9))
            else:
                drive.call(made.questions.ask, what, str(made.epoch) if what == "joined" else about, now)
        elif chance < 0.94 and links.ends:
            end = rng.choice(list(links.ends))
            name, channel = end[0], rng.choice(list(Channel))
            drive.call(links.nodes[name].received, end[1], [local_frame(channel, [rng.randint(0, 9), 1])], now)
        elif chance < 0.96:
            submitter = made.work.submitter
            drive.call(submitter.submit, "work", b"job", now, delay=rng.choice((0.0, 0.25)))
        elif chance < 0.965:
            kinds = rng.choice((["work"], ["work", "a", "four"], ["work", "five5"], ["work", "sixsix"]))
            drive.call(made.set_work, {kind: rng.randint(1, 2) for kind in kinds}, rng.randint(0, 3), now)
        elif chance < 0.97:
            drive.call(made.set_busy, rng.random() < 0.5, now)
        elif chance < 0.98:
            if "x" not in made.documents.objects:
                drive.call(made.documents.share, "x", Log(), now)
            else:
                drive.call(made.documents.change, "x", b"change", now)
        elif chance < 0.983:
            row = [rng.randint(0, 5), rng.choice(("", 1, b"x"))]
            drive.call(made.post, rng.choice(list(Channel)), rng.choice((*NAMES, "", "z")), row, now)
        elif chance < 0.9855:
            for end in [end for end in links.ends if end[0] == name]:
                if end in links.ends:
                    links.end(end, told=False)
            links.dials = [dial for dial in links.dials if dial[0] != name]
            links.jobs = [job for job in links.jobs if job[0] != name]
            links.start(name)
        elif chance < 0.987:
            drive.call(made.leave, now)
        links.take(name)
        made = links.nodes[name]
        drive.note(made.wake_at, made.stats, made.is_host, made.tree_links, [made.reach(each) for each in NAMES])
        if rng.random() < 0.1:
            drive.note(sorted(made.work.counters().items()), made.mesh.stats, made.place.stats)
            drive.note(made.questions.status(now), made.questions.tree(), made.voting and made.voting.waits_for)
        drive.step()


DRIVES: Final = {"node": (node, 4)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_nodes_do_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
