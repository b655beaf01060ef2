"""Documents shared by several peers: each a process, controlled by the one that measures (``_control.py``)."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import trio
from _control import Commands, Controller
from _store import folder

from _child import RUN_IN, Meter, lowest_peak, peak, quantile, report, resident
from nngkit.documents import Document, DocumentPeer, NetworkFaults

NAME: Final = "d"
CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyz éßñя漢字😀\n"
PATIENCE: Final = 60.0  # seconds
HERE: Final = "tcp://127.0.0.1:0"


# ---- a controlled peer -----------------------------------------------------------------------------------------------


class Member:
    """Peer with the document open and the others connected. Its methods are its commands."""

    def __init__(self, peer: DocumentPeer, doc: Document, faults: NetworkFaults, task: dict[str, Any]) -> None:
        self.peer, self.doc, self.faults, self.task = peer, doc, faults, task
        self.text = doc.text("body")
        self.rng = random.Random(peer.me.origin)
        self.seen: list[tuple[int, float]] = []  # lengths of the text, and when they were seen
        self.typed: list[float] = []
        self.nursery: trio.Nursery

    async def _filled(self, length: int) -> float:
        """Wait for that length; return the time. Each edit adds one character, so the text then has all edits."""
        with trio.fail_after(PATIENCE):
            async with self.doc.changes() as changes:
                while len(self.text) < length:
                    await anext(changes)
        return time.monotonic()

    async def edit(self, count: int, within: float, length: int) -> dict[str, Any]:
        """Type at random positions and times, then wait for the others' edits."""
        began = time.monotonic()
        for moment in sorted(self.rng.uniform(0, within) for _ in range(count)):
            await trio.sleep(max(0.0, began + moment - time.monotonic()))
            self.text.insert(self.rng.randint(0, len(self.text)), self.rng.choice(CHARACTERS))
        edited = time.monotonic()
        return {"edited": edited, "reached": await self._filled(length)}

    async def cut(self, origins: Iterable[str]) -> dict[str, Any]:
        """Drop all messages of these peers."""
        self.faults.cut = {bytes.fromhex(origin) for origin in origins}
        return {}

    async def heal(self, at: float, length: int) -> dict[str, Any]:
        """End the partition at that time."""
        await trio.sleep(max(0.0, at - time.monotonic()))
        self.faults.cut = set()
        return {"reached": await self._filled(length)}

    async def type(self, seconds: float, rate: float) -> dict[str, Any]:
        """Type `rate` characters a second; 0: as many as possible, yielding to the loop after each."""
        self.typed = []
        began = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            self.typed.append(now)
            self.text.append("x")
            if rate:
                await trio.sleep(max(0.0, began + len(self.typed) / rate - time.monotonic()))
            else:
                await trio.lowlevel.checkpoint()
        return {"typed": self.typed}

    async def watch(self) -> dict[str, Any]:
        """Record the text's lengths over time from now on."""
        self.seen = []
        self.nursery.start_soon(self._watch)
        return {}

    async def _watch(self) -> None:
        async for _ in self.doc.changes():
            self.seen.append((len(self.text), time.monotonic()))

    async def wait(self, seconds: float) -> dict[str, Any]:
        """Stay passive."""
        await trio.sleep(seconds)
        return {}

    async def filled(self, length: int) -> dict[str, Any]:
        return {"reached": await self._filled(length)}

    async def replay(self, index: int, count: int, edits: int, turn: int) -> dict[str, Any]:
        """Take turns with the others in replaying a history known to all."""
        history = list(typing(edits))
        lengths = list(itertools.accumulate((len(new) - gone for _, gone, new in history), initial=0))
        done = 0
        async with self.doc.changes() as changes:
            began = time.monotonic()
            for number, start in enumerate(range(0, edits, turn)):
                if number % count != index:
                    continue
                while self._marks() < start:
                    await anext(changes)
                for at, gone, new in history[start : start + turn]:
                    with self.doc.transaction():
                        del self.text[at : at + gone]
                        self.text.insert(at, new)
                    done += 1
                    if done % 16 == 0:
                        await trio.lowlevel.checkpoint()
                self.doc.map("done")["edits"] = min(start + turn, edits)
            while self._marks() < edits:
                await anext(changes)
        return {"began": began, "ended": time.monotonic(), "right": str(self.text) == replayed(edits), "n": lengths[-1]}

    def _marks(self) -> int:
        return int(self.doc.map("done").get("edits", 0))

    async def summary(self) -> dict[str, Any]:
        stats = self.peer.stats
        return {
            "digest": self.doc.digest().hex(),
            "wire": stats.bytes_sent + stats.request_bytes,
            "delivered": stats.delivered,
            "length": len(self.text),
            "seen": self.seen,
            **self.now(),
        }

    async def look(self) -> dict[str, Any]:
        return self.now()

    def now(self) -> dict[str, Any]:
        return {"now": time.monotonic(), "cpu": time.process_time(), "length": len(self.text)}


async def take_part(task: dict[str, Any]) -> None:
    """Connect to the others, and execute commands until the end."""
    commands = Commands(task)
    faults = NetworkFaults(task.get("loss", 0.0), task.get("delay", 0.0))
    bad = faults if faults.loss or faults.delay else None
    async with DocumentPeer(listen=HERE, faults=bad) as peer, trio.open_nursery() as nursery:
        commands.reply({"address": peer.address, "origin": peer.me.origin.hex()})
        for address in (await trio.to_thread.run_sync(commands.next))["dial"]:
            peer.dial(address)
        doc = peer.open(NAME)
        await peer.wait_for_peers(task["others"] - 1, PATIENCE)
        commands.reply({})
        member = Member(peer, doc, faults, task)
        member.nursery = nursery
        while (order := await trio.to_thread.run_sync(commands.next)) is not None:
            done = await getattr(member, order.pop("do"))(**order)
            commands.reply(done)
        nursery.cancel_scope.cancel()


def mesh(task: dict[str, Any]) -> tuple[Controller, list[str]]:
    """Connect all workers with each other; return their origins."""
    controller = Controller(task["others"])
    addresses = [said["address"] for said in controller.hellos]
    controller.to_each([{"dial": addresses[:index]} for index in range(len(addresses))])
    time.sleep(RUN_IN)
    return controller, [said["origin"] for said in controller.hellos]


def agreed(told: Sequence[dict[str, Any]]) -> None:
    """Check that all have the same content; a difference is a defect and ends the benchmark."""
    if len(found := {one["digest"] for one in told}) != 1:
        raise SystemExit(f"{len(told)} peers have {len(found)} contents")


# ---- convergence -----------------------------------------------------------------------------------------------------


def converge(task: dict[str, Any]) -> None:
    """Measure the time from the last edit of a round until the last peer has all edits."""
    controller, origins = mesh(task)
    count, within, length = 3, 0.2, 0
    took: list[float] = []
    deliveries = len(origins) * (len(origins) - 1) * count
    before = controller.to_all({"do": "summary"})
    ends = time.monotonic() + task["seconds"] * task.get("longer", 1)
    wire = before
    said: list[float] = []
    while not took or time.monotonic() < ends:
        length += len(origins) * count
        done = controller.to_all({"do": "edit", "count": count, "within": within, "length": length})
        took.append(max(one["reached"] for one in done) - max(one["edited"] for one in done))
        controller.to_all({"do": "wait", "seconds": 0.25})  # for heartbeats with the new state, part of the cost
        last, wire = wire, controller.to_all({"do": "summary"})
        agreed(wire)
        said.append(sum(one["wire"] for one in wire) - sum(one["wire"] for one in last))
    cpu = sum(one["cpu"] for one in wire) - sum(one["cpu"] for one in before)
    report(
        p50_ms=quantile(took, 0.5) * 1e3,
        p99_ms=quantile(took, 0.99) * 1e3,
        times=len(took),
        wire_kib=statistics.mean(said) / 1024,
        cpu_us=cpu / (deliveries * len(took)) * 1e6,
    )


def heal(task: dict[str, Any]) -> None:
    """Measure the time from the end of a partition, with edits in both halves, until all have the same content."""
    controller, origins = mesh(task)
    half = len(origins) // 2
    halves = origins[:half], origins[half:]
    count, within = task["edits"], task["edits"] / 40
    took: list[float] = []
    length = 0
    before = controller.to_all({"do": "summary"})
    ends = time.monotonic() + task["seconds"] * task.get("longer", 1)
    while not took or time.monotonic() < ends:
        controller.to_each([{"do": "cut", "origins": halves[index < half]} for index in range(len(origins))])
        one_half = length + half * count
        controller.to_all({"do": "edit", "count": count, "within": within, "length": one_half})
        time.sleep(1.0)  # both halves are idle, and heartbeats at their lowest rate
        length += len(origins) * count
        at = time.monotonic() + 0.1
        done = controller.to_all({"do": "heal", "at": at, "length": length})
        took.append(max(one["reached"] for one in done) - at)
        agreed(after := controller.to_all({"do": "summary"}))
    cpu = sum(one["cpu"] for one in after) - sum(one["cpu"] for one in before)
    deliveries = len(origins) * (len(origins) - 1) * count
    report(
        p50_ms=quantile(took, 0.5) * 1e3,
        p99_ms=quantile(took, 0.99) * 1e3,
        times=len(took),
        cpu_us=cpu / (deliveries * len(took)) * 1e6,
    )


# ---- viewers ---------------------------------------------------------------------------------------------------------


def deliver(task: dict[str, Any]) -> None:
    """One peer writes; measure delivery to the others."""
    controller, _ = mesh(task)
    delivered(controller, task, viewers=range(1, task["others"]), writer=0)


def delivered(controller: Controller, task: dict[str, Any], *, viewers: Sequence[int], writer: int) -> None:
    """Measure workers of which one types and the others read."""
    participants = range(task["others"])
    rate, seconds = task.get("rate", 0), task["seconds"]

    def orders(of_writer: dict[str, Any], of_viewers: dict[str, Any]) -> list[dict[str, Any]]:
        idle = {"do": "look"}
        return [of_writer if one == writer else of_viewers if one in viewers else idle for one in participants]

    kind = {"do": "type", "seconds": RUN_IN, "rate": rate}
    typed = controller.to_each(orders(kind, {"do": "look"}))[writer]["typed"]
    length = len(typed)
    controller.to_each(orders({"do": "look"}, {"do": "filled", "length": length}))
    if rate:
        controller.to_each(orders({"do": "look"}, {"do": "watch"}))
    before = controller.to_all({"do": "look"})
    typed = controller.to_each(orders({**kind, "seconds": seconds}, {"do": "wait", "seconds": seconds}))[writer][
        "typed"
    ]
    done = controller.to_each(orders({"do": "look"}, {"do": "filled", "length": length + len(typed)}))
    after = controller.to_all({"do": "summary"})
    agreed([after[one] for one in (writer, *viewers)])
    cpu = sum(one["cpu"] for one in after) - sum(one["cpu"] for one in before)
    deliveries = len(typed) * len(viewers)
    figures: dict[str, Any] = {"cpu_us": cpu / deliveries * 1e6}
    if rate:
        late = [
            when - typed[number]
            for one in viewers
            for (_, when), number in _each(after[one]["seen"], length, len(typed))
        ]
        figures |= {"p50_ms": quantile(late, 0.5) * 1e3, "p99_ms": quantile(late, 0.99) * 1e3}
    else:
        # until the last viewer has the last edit: a writer faster than its readers only fills a queue
        figures["per_second"] = deliveries / (max(done[one]["reached"] for one in viewers) - typed[0])
    report(**figures)


def _each(seen: Sequence[Sequence[float]], length: int, count: int) -> Iterator[tuple[Sequence[float], int]]:
    """Return, for each edit, the first sample that includes it."""
    number = 0
    for look in seen:
        while number < min(int(look[0]) - length, count):
            yield look, number
            number += 1


# ---- the disk --------------------------------------------------------------------------------------------------------


def durable(task: dict[str, Any]) -> None:
    """Measure edits of a whole peer, each awaited until it is on disk."""

    async def main(where: Path) -> None:
        going_on = True
        async with DocumentPeer(listen=HERE, store=where / "docs.sqlite") as peer:
            doc = peer.open(NAME)
            text = doc.text("body")
            meter = Meter(task["seconds"])

            async def write() -> None:
                nonlocal going_on
                while going_on:
                    text.append("x")
                    await doc.durable()
                    going_on = going_on and meter.add(1)

            async with trio.open_nursery() as nursery:
                for _ in range(task["writers"]):
                    nursery.start_soon(write)

    with folder() as where:
        trio.run(main, where)


# ---- a late joiner ---------------------------------------------------------------------------------------------------


async def hold(task: dict[str, Any]) -> None:
    """Hold a large document for a late joiner."""
    rng = random.Random(1)
    async with DocumentPeer(listen=HERE) as peer:
        doc = peer.open(NAME)
        text = doc.text("body")
        size = task["document"]
        while size > 0:
            line = "".join(rng.choices(CHARACTERS[:26], k=min(size, 4096)))
            text.insert(rng.randint(0, len(text)), line)
            size -= len(line)
        await trio.sleep(RUN_IN + 0.25)  # until all is idle
        encoded = len(doc.engine.changes_since(None))
        report(url=peer.address, digest=doc.digest().hex(), encoded=encoded)
        await trio.sleep_forever()


async def join_late(task: dict[str, Any]) -> None:
    """Measure the time from `open` until the digests are equal."""
    async with DocumentPeer(dial=task["url"], listen=HERE) as peer:
        await peer.wait_for_peers(1, PATIENCE)
        await trio.sleep(random.uniform(0.5, 0.7))  # at a random phase of the heartbeats
        heard, cpu = _heard(peer), time.process_time()
        lowest_peak()
        begin, size = time.monotonic(), resident()
        doc = peer.open(NAME)
        doc.text("body")  # as a program would
        await doc.joined(PATIENCE)
        digest = doc.digest().hex()
        took, size_then = time.monotonic() - begin, peak()
        if digest != task["digest"]:
            raise SystemExit("the contents differ")
        encoded = task["encoded"]
        report(
            p50_ms=took * 1e3,
            cpu_us=(time.process_time() - cpu) * 1e6,
            beyond_mib=(_heard(peer) - heard - encoded) / (1 << 20),
            grown_mib=size_then - size,
        )


def _heard(peer: DocumentPeer) -> int:
    return peer.stats.bytes_received + peer.stats.request_bytes


# ---- a history -------------------------------------------------------------------------------------------------------


def typing(edits: int) -> Iterator[tuple[int, int, str]]:
    """Yield a realistic history of one text: position, number of deleted characters, inserted text; always the same.

    Words are typed character by character, some characters are deleted again, and now and then the author moves
    elsewhere, deletes some characters, or pastes a line.
    """
    rng = random.Random(2)
    at = length = 0
    for _ in range(edits):
        what = rng.random()
        if what < 0.03:
            at = rng.randint(0, length)
        if what > 0.9 and at:
            gone, new = min(at, rng.choice((1, 1, 1, 1, 8))), ""
            at -= gone
        else:
            gone, new = 0, rng.choice(CHARACTERS)
            if what > 0.898:
                new = "".join(rng.choices(CHARACTERS, k=40))
        yield at, gone, new
        at += len(new)
        length += len(new) - gone


def replayed(edits: int) -> str:
    """Return the final text, computed by Python alone."""
    text = ""
    for at, gone, new in typing(edits):
        text = text[:at] + new + text[at + gone :]
    return text


def replay(task: dict[str, Any]) -> None:
    """Measure edits a second of a history replayed in turns, until all peers have the final text."""
    controller, origins = mesh(task)
    before = controller.to_all({"do": "look"})
    edits = task["edits"]
    done = controller.to_each(
        [
            {"do": "replay", "index": index, "count": len(origins), "edits": edits, "turn": task["turn"]}
            for index in range(len(origins))
        ]
    )
    after = controller.to_all({"do": "summary"})
    agreed(after)
    if not all(one["right"] for one in done):
        raise SystemExit("the final text is wrong")
    cpu = sum(one["cpu"] for one in after) - sum(one["cpu"] for one in before)
    seconds = max(one["ended"] for one in done) - min(one["began"] for one in done)
    report(per_second=edits / seconds, cpu_us=cpu / edits * 1e6)
