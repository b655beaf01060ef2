"""Endpoints of a cluster in memory, with virtual time, that are killed, started again and separated.

::

    python -m tests.many_histories endpoints 100

Each history has three voters and some members, in a tree; messages, letters, jobs and a shared object are under way
while nodes are killed and come back, and links are cut off. Checked:

1. A node that lives on hears each message once, and those of one run of an origin in order.
2. A letter between two nodes that live on comes once, and in order.
3. An accepted job ends; a job's key has one result; a submitter that lives on gets the results of its jobs.
4. After the faults there is one host, all nodes are in one tree, and the shared object is equal at all.

The seed decides size, delays, losses and faults. The order of tasks within a turn is trio's, and random.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from random import Random
from typing import Any

import trio
from trio.testing import MockClock

from nngkit.cluster import ClusterGap, ClusterMessage, Host, JobRun, Member
from nngkit.errors import Closed
from nngkit.testing import aeventually
from nngkit.testing.cluster_memory import ClusterMemory

VOTERS = {name: f"mem://{name}" for name in ("va", "vb", "vc")}
FAULTS = 20.0  # seconds with faults
HEAL = 40.0  # seconds until all is well again, at most


class Prices:
    """A shared object: the changes in their order."""

    def __init__(self) -> None:
        self.changes: list[bytes] = []

    def update(self, fragment: bytes) -> None:
        self.changes.append(bytes(fragment))

    def full_state(self) -> bytes:
        return b",".join(self.changes)

    def load(self, full: bytes) -> None:
        self.changes = full.split(b",") if full else []


class Run:
    """One run of a node."""

    def __init__(self, history: History, name: str) -> None:
        self.name = name
        self.history = history
        self.scope = trio.CancelScope()
        self.prices = Prices()
        self.heard: dict[tuple[str, int], int] = {}
        self.letters: dict[tuple[str, int], int] = {}
        self.gaps: list[ClusterGap] = []
        transport = history.memory.transport(name)
        if name in VOTERS:
            self.node: Host | Member = Host("c", transport=transport, id=name, voters=VOTERS, fanout=3)
        else:
            self.node = Member("c", dial=list(VOTERS.values()), transport=transport, id=name, fanout=2)
        node = self.node

        @node.on("n")
        async def hear(message: ClusterMessage) -> None:
            box = self.letters if message.direct else self.heard
            run = message.origin, message.epoch
            last = box.get(run)
            assert last is None or message.sequence > last, f"{name}: {message} after {last}"
            if last is not None and message.sequence > last + 1 and not message.direct:
                missing = range(last + 1, message.sequence)
                gaps = [gap for gap in self.gaps if (gap.origin, gap.epoch) == run]
                # the numbers of a run that are not in `numbers` are those of documents
                unreported = [n for n in missing if not any(gap.first <= n <= gap.last for gap in gaps)]
                assert not history.numbers[run].intersection(unreported), (name, message, last)
            if message.direct and last is not None:
                assert message.sequence == last + 1 or history.letter_lost, (name, message, last)
            box[run] = message.sequence

        node.on_gap(self.gaps.append)

        if name not in VOTERS:

            @node.work("job", concurrency=2)
            async def job(run: JobRun) -> bytes:
                history.starts[run.payload] += 1
                await trio.sleep(history.rng.uniform(0.0, 0.3))
                return b"done " + run.payload

    async def live(self, task_status: Any) -> None:
        history = self.history
        with self.scope:
            async with self.node:
                self.shared = self.node.share("prices", self.prices)
                task_status.started()
                await self._act(history)
        if self.scope.cancelled_caught:
            return

    async def _act(self, history: History) -> None:
        async with trio.open_nursery() as nursery:
            rng = history.rng
            count = 0
            while True:
                await trio.sleep(rng.uniform(0.05, 0.5))
                if history.over:
                    await trio.sleep_forever()
                count += 1
                what = rng.random()
                if what < 0.4:
                    number = await self.node.send("n", b"x")
                    history.numbers[self.name, self.node.epoch].add(number)
                elif what < 0.6:
                    to = rng.choice(history.names)
                    await self.node.send("n", b"letter", to=to)
                elif what < 0.9:
                    nursery.start_soon(
                        self._submit, history, b"%s/%d/%d" % (self.name.encode(), self.node.epoch, count)
                    )
                else:
                    nursery.start_soon(self._change, b"%s-%d" % (self.name.encode(), count))

    async def _change(self, fragment: bytes) -> None:
        with suppress(Closed):
            await self.shared.change(fragment)

    async def _submit(self, history: History, payload: bytes) -> None:
        try:
            job = await self.node.submit("job", payload, key=payload, visibility=5.0, tries=20)
            history.accepted.add(payload)
            result = await job.result()
        except Closed:
            return
        assert result == b"done " + payload
        history.finished.add(payload)

    def kill(self) -> None:
        """End the run as SIGKILL does."""
        self.history.memory.kill(self.name)
        self.node._left = True  # it says no goodbye
        self.scope.cancel()


class History:
    """One history of a cluster."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        delay, loss = self.rng.choice([0.0005, 0.002, 0.01]), self.rng.choice([0.0, 0.02])
        self.memory = ClusterMemory(delay=delay, loss=loss, seed=seed)
        self.names = [*VOTERS, *(f"m{number}" for number in range(self.rng.randint(2, 8)))]
        self.runs: dict[str, Run] = {}
        self.numbers: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        self.starts: defaultdict[bytes, int] = defaultdict(int)
        self.accepted: set[bytes] = set()
        self.finished: set[bytes] = set()
        self.letter_lost = False
        self.over = False
        self.kills = self.cuts = 0

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for name in self.names:
                await self._start(nursery, name)
            with trio.fail_after(HEAL):
                await self._whole()
            end = trio.current_time() + FAULTS
            while trio.current_time() < end:
                await trio.sleep(self.rng.uniform(0.2, 3.0))
                await self._fault(nursery)
            self.memory.heal()
            for name in self.names:
                if name not in self.runs:
                    await self._start(nursery, name)
            self.over = True
            with trio.fail_after(HEAL):
                await self._whole()
            await aeventually(lambda: self._unsettled() is None, HEAL, what=lambda: self._unsettled() or "settled")
            nursery.cancel_scope.cancel()

    async def _start(self, nursery: trio.Nursery, name: str) -> None:
        run = self.runs[name] = Run(self, name)
        await nursery.start(run.live)

    async def _fault(self, nursery: trio.Nursery) -> None:
        rng = self.rng
        what = rng.random()
        down = [name for name in self.names if name not in self.runs]
        if down and what < 0.5:
            await self._start(nursery, rng.choice(down))
        elif what < 0.8:
            voters = [name for name in VOTERS if name in self.runs and self.runs[name].node.role != "joining"]
            # at most a minority of the voters has no memory
            alive = [name for name in self.runs if name not in VOTERS or len(voters) == len(VOTERS)]
            if alive:
                name = rng.choice(alive)
                self.kills += 1
                self.runs.pop(name).kill()
        elif self.memory.split_off:
            self.memory.heal()
        else:
            self.cuts += 1
            self.letter_lost = True  # a separation of over 30 s gives letters up
            self.memory.split(rng.sample(self.names, rng.randint(1, len(self.names) - 1)))

    async def _whole(self) -> None:
        while True:
            hosts = {run.node.host for run in self.runs.values()}
            host = next(iter(hosts))
            if len(hosts) == 1 and host in self.runs and self.runs[host].node.role == "host":
                members = self.runs[host].node._node.questions.tree().members
                if {member.id for member in members} == set(self.runs):
                    return
            await trio.sleep(0.05)

    def _unsettled(self) -> str | None:
        """Return what is not as it should be in the end, or None."""
        alive = {(name.encode(), run.node.epoch) for name, run in self.runs.items()}
        for payload in self.accepted - self.finished:
            name, epoch, _ = payload.split(b"/")
            if (name, int(epoch)) in alive:
                return f"job {payload!r} has not ended"
        states = {name: len(run.prices.changes) for name, run in self.runs.items()}
        if len({run.prices.full_state() for run in self.runs.values()}) > 1:
            return f"the shared object differs: {states}"
        return None


def check(seed: int) -> History:
    """Run one history; raise what goes wrong in it."""
    history = History(seed)
    trio.run(history.run, clock=MockClock(autojump_threshold=0))
    return history
