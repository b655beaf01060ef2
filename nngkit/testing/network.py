"""A simulated network: nodes that exchange messages over a virtual clock, with faults, reproducible from a seed.

It drives code that decides without sockets and without a clock of its own, such as the registry of discovery and the
replicas of documents. Thousands of runs with losses and crashes take seconds; a failing one is repeated exactly::

    network = Network(seed=7, conditions=Conditions(loss=0.1, delay=(0.001, 0.05)))
    network.start("a", receive=a.receive)             # called as a.receive(sender, message)
    network.start("b", receive=b.receive)
    network.call_later(0.5, lambda: network.crash("b"))
    network.broadcast("a", "hello")
    network.run_until(network.now + 10.0)

Messages are handed over as they are: nothing is encoded or copied. The network knows no socket, loop or real time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Any

from nngkit.testing.clock import Timer, VirtualClock

Receive = Callable[[str, Any], object]
Answer = Callable[[str, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Faults of a network. The default is a perfect one: nothing is lost, and nothing takes time.

    Attributes:
        loss: Probability that a message is lost, from 0 to 1, for each copy and receiver.
        duplication: Probability that a message is delivered twice, from 0 to 1, for each receiver.
        delay: Shortest and longest time on the way, in seconds, uniformly distributed. Different times reorder
            messages.
        refusal: Probability that a request fails although it arrives, from 0 to 1.
        failure_after: Seconds from the arrival of a failing request until the requester is informed.
    """

    loss: float = 0.0
    duplication: float = 0.0
    delay: tuple[float, float] = (0.0, 0.0)
    refusal: float = 0.0
    failure_after: float = 0.5

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "refusal"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a probability from 0 to 1, not {getattr(self, name)!r}")
        if not 0.0 <= self.delay[0] <= self.delay[1]:
            raise ValueError(f"delay is the shortest and the longest time in seconds, not {self.delay!r}")
        if self.failure_after < 0.0:
            raise ValueError(f"failure_after is at least 0 seconds, not {self.failure_after!r}")


@dataclass
class NetworkStats:
    """Counters of a network. Of the copies sent, some are still on their way: `in_flight`.

    Attributes:
        sent: Copies of messages, duplicates included, one for each receiver.
        lost: Copies lost by `Conditions.loss`.
        delivered: Copies handed to their receiver.
        undeliverable: Copies whose sender had crashed, whose receiver was down, or that a partition stopped.
        requests: Requests sent.
        failed: Requests that failed, as far as their requester was informed.
    """

    sent: int = 0
    lost: int = 0
    delivered: int = 0
    undeliverable: int = 0
    requests: int = 0
    failed: int = 0

    @property
    def in_flight(self) -> int:
        """Copies that are on their way."""
        return self.sent - self.lost - self.delivered - self.undeliverable


class Partition:
    """A separation of some nodes from all others, until `heal`. Partitions may overlap."""

    def __init__(self, network: Network, side: frozenset[str]) -> None:
        self.side = side
        self._network = network

    def heal(self) -> None:
        """End the separation. Nodes stay separated if another partition separates them."""
        if self in self._network._partitions:
            self._network._partitions.remove(self)


class _Node:
    """A node's handlers, while it runs."""

    __slots__ = ("answer", "life", "receive", "running", "step", "wake_at")

    def __init__(self) -> None:
        self.running = False
        self.life = 0  # number of its starts: timers and messages of an earlier life are void
        self.receive: Receive | None = None
        self.answer: Answer | None = None
        self.step: Callable[[], object] | None = None
        self.wake_at = float("inf")


class Network:
    """Nodes by name, the messages between them, and the clock.

    Two networks with the same seed on which the same calls are made behave the same. Handlers may call every method of
    the network; a message is delivered later, never within the call that sends it.

    Args:
        seed: Seed of `rng`, which decides on all faults.
        conditions: The faults; a perfect network by default. Assign `network.conditions` to change them during a run;
            messages that are on their way keep their time of arrival.
        now: The time at the start, in seconds.

    Attributes:
        conditions: The current faults.
        rng: The source of chance for faults. Nodes should have their own, or their choices change the faults.
        stats: The counters.
    """

    def __init__(self, seed: int | str = 0, conditions: Conditions | None = None, *, now: float = 0.0) -> None:
        self.conditions = conditions or Conditions()
        self.rng = Random(seed)
        self.stats = NetworkStats()
        self._clock = VirtualClock(now)
        self._nodes: dict[str, _Node] = {}
        self._partitions: list[Partition] = []

    # ---- time

    @property
    def now(self) -> float:
        """Time of the virtual clock, in seconds."""
        return self._clock.now

    def call_at(self, time: float, call: Callable[[], object], *, node: str | None = None) -> Timer:
        """Schedule `call` at `time`, in seconds of the clock; a crash of `node` cancels it.

        Raises:
            ValueError: `node` is not running.
        """
        if node is None:
            return self._clock.call_at(time, call)
        owner = self._running(node)
        life = owner.life

        def call_if_running() -> None:
            if owner.running and owner.life == life:
                call()

        return self._clock.call_at(time, call_if_running)

    def call_later(self, seconds: float, call: Callable[[], object], *, node: str | None = None) -> Timer:
        """Schedule `call` in `seconds`, as `call_at` does."""
        return self.call_at(self.now + seconds, call, node=node)

    def run_until(self, time: float, condition: Callable[[], object] | None = None) -> bool:
        """Run all events up to `time`; stop early once `condition` is true after an event.

        An exception of a handler or of `condition` ends the run and is passed on.

        Args:
            time: In seconds of the clock, absolute. The clock shows it afterwards, unless the run stopped early.
            condition: Called after each event.

        Returns:
            True if `condition` became true.
        """
        return self._clock.run_until(time, condition)

    # ---- nodes

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the running nodes, in the order of their first start."""
        return tuple(name for name, node in self._nodes.items() if node.running)

    def start(
        self,
        name: str,
        *,
        receive: Receive | None = None,
        answer: Answer | None = None,
        step: Callable[[], object] | None = None,
    ) -> None:
        """Start a node, or restart it after a crash.

        Args:
            name: Name of the node.
            receive: Called as ``receive(sender, message)`` for each message that arrives.
            answer: Called as ``answer(sender, request)`` for each request that arrives; its result is the reply.
            step: Called at the times set by `wake`.

        Raises:
            ValueError: The node runs already.
        """
        node = self._nodes.setdefault(name, _Node())
        if node.running:
            raise ValueError(f"node {name!r} is running")
        node.running, node.life, node.wake_at = True, node.life + 1, float("inf")
        node.receive, node.answer, node.step = receive, answer, step

    def crash(self, name: str) -> None:
        """Stop a node at once: its timers, wake-ups, requests and messages that are on their way are dropped.

        Raises:
            ValueError: The node is not running.
        """
        node = self._running(name)
        node.running = False
        node.receive = node.answer = node.step = None

    def wake(self, name: str, time: float) -> None:
        """Call the node's `step` at `time`, in seconds of the clock. Only the earliest wake-up of a node is kept.

        Raises:
            ValueError: The node is not running.
        """
        node = self._running(name)
        if self.now < node.wake_at <= time:
            return
        node.wake_at = time
        life = node.life

        def wake() -> None:
            if node.running and node.life == life and node.wake_at == time:
                node.wake_at = float("inf")
                if node.step is not None:
                    node.step()

        self._clock.schedule(time, wake)

    # ---- partitions

    def split(self, side: Collection[str]) -> Partition:
        """Separate the nodes of `side` from all others, later ones included, until ``heal()`` of the result.

        Messages that are on their way between the two sides are dropped if the partition lasts until their arrival.
        """
        if isinstance(side, str):
            raise TypeError("side is a collection of names")
        partition = Partition(self, frozenset(side))
        self._partitions.append(partition)
        return partition

    def heal(self) -> None:
        """End all partitions."""
        self._partitions.clear()

    def connected(self, one: str, other: str) -> bool:
        """Return True if both nodes run and no partition separates them."""
        a, b = self._nodes.get(one), self._nodes.get(other)
        return a is not None and b is not None and self._connected(one, a, other, b)

    def _connected(self, one: str, a: _Node, other: str, b: _Node) -> bool:
        if not a.running or not b.running:
            return False
        return not self._partitions or not any((one in cut.side) != (other in cut.side) for cut in self._partitions)

    # ---- messages

    def send(self, sender: str, receiver: str, message: Any) -> None:
        """Send a message, which arrives once, twice or never, as the conditions say.

        It is dropped if at its arrival the receiver is down or separated from the sender, or the sender has crashed
        since, as a crash ends connections.

        Raises:
            ValueError: The sender is not running.
        """
        source = self._running(sender)
        life = source.life
        conditions, rng, stats = self.conditions, self.rng, self.stats

        def arrive() -> None:
            target = self._nodes.get(receiver)
            if target is None or source.life != life or not self._connected(sender, source, receiver, target):
                stats.undeliverable += 1
                return
            stats.delivered += 1
            if target.receive is not None:
                target.receive(sender, message)

        shortest, longest = conditions.delay
        for _ in range(1 + (rng.random() < conditions.duplication)):
            stats.sent += 1
            if rng.random() < conditions.loss:
                stats.lost += 1
            else:
                self._clock.schedule(self._clock.now + (shortest + (longest - shortest) * rng.random()), arrive)

    def broadcast(self, sender: str, message: Any) -> None:
        """Send a message to every other node, each with faults of its own.

        A node that is down receives it if it is restarted before the arrival.

        Raises:
            ValueError: The sender is not running.
        """
        for name in self._nodes:
            if name != sender:
                self.send(sender, name, message)

    def request(
        self,
        sender: str,
        receiver: str,
        request: Any,
        *,
        reply: Callable[[Any], object],
        failure: Callable[[], object] | None = None,
    ) -> None:
        """Send a request over a connection; later, either `reply` is called with the receiver's answer, or `failure`.

        A request is not lost silently: it fails `Conditions.failure_after` seconds after its arrival if the receiver is
        down, unknown, separated or has no `answer`, or by `Conditions.refusal`; and at once if the receiver is not
        connected when its reply arrives. Neither function is called once the requester has crashed.

        Raises:
            ValueError: The sender is not running.
        """
        source = self._running(sender)
        life = source.life
        self.stats.requests += 1

        def fail() -> None:
            if source.running and source.life == life:
                self.stats.failed += 1
                if failure is not None:
                    failure()

        def arrive() -> None:
            target = self._nodes.get(receiver)
            refused = not self.connected(sender, receiver) or self.rng.random() < self.conditions.refusal
            if refused or target is None or target.answer is None:
                self._clock.schedule(self._clock.now + self.conditions.failure_after, fail)
                return
            answer = target.answer(sender, request)
            self._clock.schedule(self._clock.now + self._delay(), lambda: back(answer))

        def back(answer: Any) -> None:
            if not source.running or source.life != life:
                return
            if self.connected(sender, receiver):
                reply(answer)
            else:
                fail()

        self._clock.schedule(self._clock.now + self._delay(), arrive)

    def _delay(self) -> float:
        return self.rng.uniform(*self.conditions.delay)

    def _running(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None or not node.running:
            raise ValueError(f"node {name!r} is not running")
        return node
