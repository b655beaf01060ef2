"""Endpoint: a node of a cluster as a program uses it; `Host` and `Member` (hosting.py) are the ways to make one.

::

    async with Host("render", listen="tcp://0.0.0.0:7000", id="a", token="s3cret") as host: ...

    async with Member("render", dial=["tcp://a:7000"], token="s3cret", slots=4) as node:
        await node.joined(timeout=5)

        @node.on("chat")
        async def heard(message): print(message.origin, message.body)

        await node.send("chat", b"hello")

        @node.work("render")
        async def render(job): return draw(job.payload)

        job = await node.submit("render", b"scene 1")
        picture = await job.result()

shell.py runs the node, node.py and the modules that it names decide.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final, TypeVar

import trio

from nngkit.cluster.containing import plain
from nngkit.cluster.content.order import SharedObject
from nngkit.cluster.frames import as_bytes, check_id, check_kind
from nngkit.cluster.messages import ClusterGap, ClusterMessage
from nngkit.cluster.shell.core import EndpointOptions
from nngkit.cluster.shell.jobs import Job
from nngkit.cluster.shell.options import check_shared_object
from nngkit.cluster.shell.sharing import Shared
from nngkit.cluster.shell.shell import NodeShell
from nngkit.cluster.status import ClusterStatus, ClusterTree
from nngkit.errors import ConfigError, NotFound, TooLarge

__all__ = ["Endpoint", "EndpointOptions"]

F = TypeVar("F", bound=Callable[..., Any])

SEND_MANY: Final = 64  # messages between two looks at the queues
ROOM_PAUSE: Final = 0.005  # seconds between two looks: a quarter of a queue is written in 20 ms


class Endpoint(NodeShell):
    """A node of a cluster: messages, jobs, documents, and questions to the host. See ShellCore for its options."""

    # ---- messages

    def on(self, kind: str | None = None) -> Callable[[F], F]:
        """Decorate a function that is called with each `ClusterMessage` of a kind; without one, of all other kinds.

        An async function runs as a task, a plain one in a worker thread. Messages of one origin are handled one after
        the other, in order; those of different origins side by side. An exception is logged, and counted.

        Raises ConfigError for a second handler of a kind.
        """

        def decorate(function: F) -> F:
            self._dispatcher.register(None if kind is None else check_kind(kind), function)
            return function

        return decorate

    def on_gap(self, function: Callable[[ClusterGap], object]) -> None:
        """Call `function(gap)` for messages that will not come: this node was away for longer than others keep them.

        See `on_client_added`.
        """
        self._dispatcher.on_gap(function)

    def on_client_added(self, function: Callable[[str], object]) -> None:
        """Call `function(id)` for each node that joins below this one; at the host, each of the cluster.

        It is a plain function, which is called in the loop. An exception is logged, and counted. Raises ConfigError for
        an async one.
        """
        self._added.append(plain(function))

    def on_client_removed(self, function: Callable[[str], object]) -> None:
        """Call `function(id)` for each node that has left below this one; at the host, each of the cluster.

        See `on_client_added`.
        """
        self._removed.append(plain(function))

    async def send(self, kind: str, body: bytes, *, to: str | None = None) -> int:
        """Send a message to all other nodes, or to one; return its number in this run of the node.

        It comes once to each node, in the order in which this node sent. To one node: it is sent again until that has
        acknowledged it, for 30 s; messages to all and those to one node keep no order among each other. Without a way
        to the host it waits in this node's memory, and in that of the nodes that it can reach. Waits while the
        neighbours have no room. If cancelled, it was not sent.

        Raises:
            ConfigError: An unusable kind.
            TooLarge: More than half of `recv_max_size`.
            Closed: The node was closed.
        """
        check_kind(kind)
        body = as_bytes("a message", body)
        if 2 * len(body) > self._recv_max_size:
            raise TooLarge(len(body), self._recv_max_size // 2)
        self._check_open()
        if to is None:
            await self._wait_for_room(1)
            number = self._node.broadcast(kind, (body,), trio.current_time())
        else:
            check_id(to)
            await trio.lowlevel.checkpoint_if_cancelled()
            while not self._node.letters.room(to):  # acknowledgements are not worth an event each
                await trio.sleep(ROOM_PAUSE)
                self._check_open()
            number = self._node.letter(to, kind, body, trio.current_time())
        self._record_message(ClusterMessage(self.id, self.epoch, number, kind, body), to)
        self._act_soon()
        return number

    async def send_many(self, kind: str, bodies: Iterable[bytes]) -> int:
        """Send messages to all other nodes, in order; return how many. If cancelled, the first ones were sent."""
        check_kind(kind)
        held = [as_bytes("a message", body) for body in bodies]
        for body in held:
            if 2 * len(body) > self._recv_max_size:
                raise TooLarge(len(body), self._recv_max_size // 2)
        for start in range(0, len(held), SEND_MANY):
            part = held[start : start + SEND_MANY]
            await self._wait_for_room(len(part))
            last = self._node.broadcast(kind, part, trio.current_time())
            for number, body in enumerate(part, last - len(part) + 1):
                self._record_message(ClusterMessage(self.id, self.epoch, number, kind, body))
            self._act_soon()
        return len(held)

    async def _wait_for_room(self, count: int) -> None:
        """Yield every 64 messages, and wait while the queues of all neighbours are over a quarter full."""
        self._check_open()
        self._sent_since += count
        if self._sent_since < SEND_MANY:
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        self._sent_since = 0
        await trio.lowlevel.checkpoint()
        while self._transport.busy(self._node.tree_links):  # noqa: ASYNC110  # no event says that a queue has room
            await trio.sleep(ROOM_PAUSE)
        self._check_open()

    # ---- jobs

    def work(self, kind: str, *, concurrency: int = 1, timeout: float | None = None) -> Callable[[F], F]:
        """Decorate the function that does jobs of a kind: it is called with a `JobRun` and returns the result, bytes.

        An async function runs as a task, a plain one in a worker thread. A generator yields parts of the result; the
        result is empty then. An exception makes the job fail: it is tried again, at this node or another, unless it is
        JobFailed. `concurrency`: runs of it at a time. `timeout`: seconds that a run may take, beside that of the job.

        Raises ConfigError for a second function of a kind.
        """

        def decorate(function: F) -> F:
            self._workers.register(check_kind(kind), function, concurrency, timeout)
            if "_node" in self.__dict__:
                self._set_work()
            return function

        return decorate

    async def submit(
        self,
        kind: str,
        payload: bytes,
        *,
        key: bytes | str | None = None,
        priority: int = 0,
        tries: int = 3,
        visibility: float = 30.0,
        deadline: float | None = None,
        delay: float = 0.0,
        stream: bool = False,
        timeout: float | None = None,
    ) -> Job:
        """Submit a job; return it once the host has accepted it: it will end then, whichever nodes die.

        It is done at least once, and its result is taken once. Waits while the host's queue has no room for this node
        (backpressure), and while there is no host. If cancelled, the job may be accepted or not: use a key. One with a
        key goes on then, and a second call under the key gets its result; one without is cancelled.

        Args:
            kind: Kind of the job: some node has a function for it, now or later.
            payload: Bytes for that function.
            key: Idempotency key: of all jobs of a kind with one key, one is done, and all get its result; a cancelled
                one frees its key.
            priority: 0 to 15; jobs of a higher one are given out first.
            tries: Starts of the job, until it is given up as dead.
            visibility: Seconds without a sign of the worker's node, until it is given to another. While the node is
                alive and connected, it says each third of them that the function runs.
            deadline: Seconds until it fails, from its acceptance; None: never.
            delay: Seconds until it may start.
            stream: Send the parts that the function yields or sends to this node; see `Job.parts`.
            timeout: Seconds that its function may run; then it is cancelled, and the job tried again. None: for ever.

        Raises:
            ConfigError: An unusable value.
            TooLarge: The payload is over the host's limit.
            Closed: The node was closed.
        """
        self._check_open()
        await trio.lowlevel.checkpoint_if_cancelled()
        options = {
            "priority": priority,
            "tries": tries,
            "visibility": float(visibility),
            "deadline": None if deadline is None else float(deadline),
            "delay": float(delay),
            "stream": stream,
            "timeout": None if timeout is None else float(timeout),
        }
        name = key.encode() if isinstance(key, str) else None if key is None else as_bytes("a key", key)
        return await self._workers.submit(check_kind(kind), as_bytes("a payload", payload), name, options)

    async def map(
        self,
        kind: str,
        payloads: Iterable[bytes] | AsyncIterable[bytes],
        *,
        in_flight: int = 1000,
        progress: Callable[[int], object] | None = None,
        **options: Any,
    ) -> AsyncGenerator[bytes, None]:
        """Submit a job for each payload, and yield the results in the order of the payloads.

        At most `in_flight` of them are submitted and not yielded. `progress` is called with the number of ended jobs.
        `options` are those of `submit` but `key`. An abandoned iteration cancels the jobs that have not ended.

        An asynchronous iterable is iterated over by a task beside, which submits each payload as it comes: the next one
        may depend on the last result. An async generator is closed at the end. A plain iterable must not block here; in
        nngkit.blocking it may.

        Raises JobFailed of the first job that has ended without a result; the rest are cancelled.
        """
        self._check_open()
        if "key" in options:
            raise ConfigError("key", "jobs of a map have none: under one key, all would have one result")
        async with aclosing(self._workers.map(check_kind(kind), payloads, in_flight, progress, options)) as results:
            async for result in results:
                yield result

    # ---- documents

    def document(self, name: str) -> Any:
        """Open a document of nngkit.documents that all nodes of the cluster may edit; needs the extra `documents`."""
        self._check_open()
        document = self._node.documents.open(name, trio.current_time())
        self._act_soon()
        return document

    def share(self, name: str, content: SharedObject) -> Shared:
        """Share an object of the program's: it has `update(fragment)`, `full_state()` and `load(state)`.

        Its changes are applied at all nodes in one order, which the host decides; the host has to share it too. The
        methods are plain functions, which are called in the loop. Raises ConfigError for an unusable or a used name,
        and for an object that lacks a method or has an async one.
        """
        self._check_open()
        check_shared_object(content)
        self._node.documents.share(name, content, trio.current_time())
        shared = self._shared[name] = Shared(name, content, self._node.documents, self._act, self._check_open)
        self._act_soon()
        return shared

    def request_full_document(self, name: str) -> None:
        """Ask for the full content of a document, as after a suspected fault."""
        self._check_open()
        self._node.documents.request_full(name, trio.current_time())
        self._act_soon()

    # ---- questions to the host

    async def status(self, timeout: float | None = 5.0) -> ClusterStatus:
        """Return the state of the cluster, from its host. Raises TimedOut, Broken, Closed, BadMessage."""
        answer = await self._ask("status", "", timeout)
        return ClusterStatus.parse(answer.content, answer.sender)

    async def tree(self, timeout: float | None = 5.0) -> ClusterTree:
        """Return the members in their tree, from the host. Raises TimedOut, Broken, Closed, BadMessage."""
        answer = await self._ask("tree", "", timeout)
        return ClusterTree.parse(answer.content, answer.sender)

    async def drain(self, id: str | None = None, timeout: float | None = 5.0) -> None:
        """Have a node leave the cluster, and take no more jobs; by default this one, after its jobs have ended.

        Its own jobs have an hour to end; then the host has taken their results, unless there is none for 5 s. Several
        tasks may drain at once. A work function cannot drain its own node, as it would wait for its own end: start the
        call in a task or a thread beside it. For another node: return once the host has passed it on.

        Raises NotFound, TimedOut, Closed, and RuntimeError in a work function of this node.
        """
        if id is None or id == self.id:
            await self._leave()
            return
        answer = await self._ask("drain", check_id(id), timeout)
        if answer.why is not None:
            raise NotFound(answer.why)
