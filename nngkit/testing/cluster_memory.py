"""Links in memory between the nodes of a cluster, with delays, cuts and partitions, for tests under trio.

::

    memory = ClusterMemory(delay=0.001)
    async with Host("c", transport=memory.transport("a"), id="a") as host:
        async with Member("c", dial=["mem://a"], transport=memory.transport("b"), id="b"): ...

With trio's autojump clock a test of minutes takes milliseconds. Nothing is lost on a link but droppable frames, by
`loss`; a partition holds all frames back, and ends no link, as a network without resets does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from itertools import count
from random import Random

import trio

from nngkit.cluster.transport import Sink, Start
from nngkit.errors import ConfigError, Unreachable

SCHEME = "mem://"
QUEUE = 8192  # frames on their way on one link, as a socket's queue has


class _End:
    """One end of a link: its owner, its number there, and the frames that are on their way to it."""

    __slots__ = ("closed", "link", "other", "owner", "waiting", "wake")

    def __init__(self, owner: MemoryTransport, link: int) -> None:
        self.owner = owner
        self.link = link
        self.other: _End
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.wake = trio.Event()
        self.closed = False


class ClusterMemory:
    """A network in memory. Nodes are addressed as ``mem://NAME``.

    Args:
        delay: Seconds that a frame is on its way.
        loss: Probability that a droppable frame is lost, from 0 to 1.
        seed: Seed of the losses.
    """

    def __init__(self, *, delay: float = 0.001, loss: float = 0.0, seed: int = 0) -> None:
        self.delay = delay
        self.loss = loss
        self.rng = Random(seed)
        self.transports: dict[str, MemoryTransport] = {}
        self._side: frozenset[str] = frozenset()

    def transport(self, name: str, *, listens: bool = True, who: str | None = None) -> MemoryTransport:
        """Return the transport of one node, for one run of it. `who`: the name that it proves to its neighbours."""
        return MemoryTransport(self, name, listens, who)

    def split(self, side: Collection[str]) -> None:
        """Separate the nodes of `side` from all others: frames wait, and no connection can be made."""
        self._side = frozenset(side)

    def heal(self) -> None:
        """End the separation; what was held back arrives."""
        self._side = frozenset()
        for transport in self.transports.values():
            for end in transport.ends.values():
                end.wake.set()

    @property
    def split_off(self) -> frozenset[str]:
        """The nodes that are separated from all others."""
        return self._side

    def reachable(self, one: str, other: str) -> bool:
        """Return True if no partition separates two nodes."""
        return (one in self._side) == (other in self._side)

    def kill(self, name: str) -> None:
        """End all links of a node at once, as the death of its process does, and accept no more."""
        self.transports[name].cut()


class MemoryTransport:
    """Links of one node; see `nngkit.cluster.transport.Transport`."""

    def __init__(self, memory: ClusterMemory, name: str, listens: bool, who: str | None = None) -> None:
        self.name = name
        self.who = who
        self.ends: dict[int, _End] = {}
        self.overflows = 0
        self._memory = memory
        self._listens = listens
        self._numbers = count(1)
        self._open = False

    @property
    def addresses(self) -> tuple[str, ...]:
        return (SCHEME + self.name,) if self._listens else ()

    async def open(self, sink: Sink, start: Start) -> None:
        if self._listens and (there := self._memory.transports.get(self.name)) is not None and there._open:
            raise Unreachable(SCHEME + self.name, "in use")
        self._sink, self._start = sink, start
        self._open = True
        self._memory.transports[self.name] = self

    async def aclose(self) -> None:
        self.cut()

    def cut(self) -> None:
        """End all links now, and accept no more."""
        self._open = False
        for end in list(self.ends.values()):
            self._end(end)

    def dial(self, address: str) -> None:
        if not address.startswith(SCHEME):
            raise ConfigError("dial", f"{address!r} does not begin with {SCHEME}", address)
        self._start(self._connect, address)

    async def _connect(self, address: str) -> None:
        name = address.removeprefix(SCHEME)
        await trio.sleep(self._memory.delay)
        there = self._memory.transports.get(name)
        if there is None or not there._open or not there._listens:
            self._sink.dial_failed(address, "refused")
        elif not self._memory.reachable(self.name, name):
            await trio.sleep(0.5)
            self._sink.dial_failed(address, "not connected in 0.5 s")
        else:
            mine, theirs = self._add(), there._add()
            mine.other, theirs.other = theirs, mine
            self._run(mine)
            there._run(theirs)
            there._sink.link_up(theirs.link, SCHEME + self.name, None, self.who)
            self._sink.link_up(mine.link, address, address, there.who)

    def _add(self) -> _End:
        end = _End(self, next(self._numbers))
        self.ends[end.link] = end
        return end

    def _run(self, end: _End) -> None:
        self._start(self._deliver, end)

    async def _deliver(self, end: _End) -> None:
        """Hand over what arrives at `end`, then report its end."""
        memory, other = self._memory, end.other.owner.name
        while True:
            while not end.waiting or not memory.reachable(self.name, other):
                if end.closed and (not end.waiting or end.link not in self.ends):
                    break
                await end.wake.wait()
                end.wake = trio.Event()
            if not end.waiting:
                break
            await trio.sleep(max(0.0, end.waiting[0][0] - trio.current_time()))
            ready = []
            while end.waiting and end.waiting[0][0] <= trio.current_time():
                ready.append(end.waiting.popleft()[1])
            if end.link not in self.ends:
                return
            self._sink.received(end.link, ready)
        if self.ends.pop(end.link, None) is not None:
            self._sink.link_down(end.link, "the connection ended")

    def send(self, link: int, frames: Sequence[bytes], *, droppable: bool = False) -> bool:
        end = self.ends.get(link)
        if end is None or end.closed:
            return False
        queue = end.other.waiting
        if len(queue) + len(frames) > (QUEUE // 2 if droppable else QUEUE):
            if not droppable:
                self.overflows += 1
                self._end(end, report=True)
            return False
        at = trio.current_time() + self._memory.delay
        for frame in frames:
            if not droppable or self._memory.rng.random() >= self._memory.loss:
                queue.append((at, frame))
        end.other.wake.set()
        return True

    def drop(self, link: int) -> None:
        end = self.ends.get(link)
        if end is not None:
            self._end(end)

    def _end(self, end: _End, *, report: bool = False) -> None:
        """Close both ends: the other one hears of it after the frames that are on their way; ours if `report`."""
        end.closed = end.other.closed = True
        if not report:
            self.ends.pop(end.link, None)
        end.wake.set()
        end.other.wake.set()

    def busy(self, links: Sequence[int]) -> bool:
        found = [self.ends[link] for link in links if link in self.ends]
        return bool(found) and all(4 * len(end.other.waiting) > QUEUE for end in found)
