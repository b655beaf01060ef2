"""Many nodes of a cluster, each in a process of its own, as `_cluster_node.py` runs them: started, commanded, killed.

::

    async with Fleet(task) as fleet:
        await fleet.start("a", "host", listen="tcp://127.0.0.1:0")
        tree = await fleet["a"].ask("tree")           # a command, and its reply
        fleet["a"].kill()                             # SIGKILL
        async for event in fleet.events: ...          # what nodes tell without being asked, with their name as "from"

A fleet has one process that forks the nodes, or one in each host of `tests/hosts.py`. All end with the fleet.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trio
from _restarted import list_process, said
from _tied import TIED

from _child import cpu_of, fail
from _contenders import HERE

_numbers = itertools.count()
WAIT = 60.0  # seconds for the reply to a command


class Died(Exception):
    """The process of a node ended before it replied."""


class Failed(Exception):
    """A node's reply is an error; `reply` has all of it."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(reply["error"])
        self.reply = reply


class Node:
    """The fleet's end of a node."""

    def __init__(self, name: str, pid: int, stream: trio.SocketStream, tell: Callable[[dict[str, Any]], None]) -> None:
        self.name = name
        self.pid = pid
        self.alive = True
        self.options: dict[str, Any] = {}
        self.address = ""
        self._stream = stream
        self._sending = trio.Lock()
        self._tell = tell
        self._number = 0
        self._waiting: dict[int, tuple[trio.Event, dict[str, Any]]] = {}

    async def ask(self, do: str, *, limit: float = WAIT, **arguments: Any) -> dict[str, Any]:
        """Send a command; return the reply. Raises Failed, Died, and trio.TooSlowError after `limit` seconds."""
        number = self._number = self._number + 1
        event, reply = self._waiting[number] = trio.Event(), dict[str, Any]()
        try:
            with trio.fail_after(limit):
                await self._send({"id": number, "do": do, **arguments})
                await event.wait()
        finally:
            del self._waiting[number]
        if not reply:
            raise Died(self.name)
        if "error" in reply:
            raise Failed(reply)
        return reply

    async def _send(self, command: dict[str, Any]) -> None:
        async with self._sending:
            try:
                await self._stream.send_all(json.dumps(command).encode() + b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise Died(self.name) from error

    async def read(self) -> None:
        """Read replies and events until the process ends."""
        buffer = bytearray()
        with suppress(trio.BrokenResourceError):
            while data := await self._stream.receive_some(1 << 18):
                buffer += data
                *lines, rest = buffer.split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    self._take(json.loads(line))
        self.alive = False
        for event, _ in self._waiting.values():
            event.set()
        self._tell({"event": "ended", "from": self.name, "pid": self.pid})

    def _take(self, line: dict[str, Any]) -> None:
        if "event" in line:
            self._tell({**line, "from": self.name})
        elif (waiting := self._waiting.get(line["reply"])) is not None:
            waiting[1].update(line)
            waiting[0].set()

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.alive = False
        self.signal(signal.SIGKILL)

    def cpu(self) -> float:
        """Return the CPU seconds used so far; 0.0 of a dead process."""
        with suppress(OSError):
            return cpu_of([self.pid])
        return 0.0

    def memory(self) -> float:
        """Return the MiB of memory it has for itself, and its part of what it shares with the other processes."""
        with open(f"/proc/{self.pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


class Fleet:
    """The nodes of a measurement, by name: the last process of each. `events`: channel of what they tell."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._nurseries: dict[str, subprocess.Popen[str]] = {}
        self._nodes: dict[str, Node] = {}
        self._connected: dict[int, trio.Event] = {}
        self._told: list[Callable[[dict[str, Any]], None]] = []
        self.all: list[Node] = []
        self._send_event, self.events = trio.open_memory_channel[dict[str, Any]](1_000_000)

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self._path = str(Path(self._task["processes"]).with_name(f"fleet{next(_numbers)}"))
        self._socket = trio.socket.socket(trio.socket.AF_UNIX)
        await self._socket.bind(self._path)
        self._socket.listen(1000)
        self._background = await self._stack.enter_async_context(trio.open_nursery())
        self._background.start_soon(self._accept)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node in self.all:
            if node.alive:
                node.kill()
        for process in self._nurseries.values():
            process.kill()
            process.wait(WAIT)
        self._background.cancel_scope.cancel()
        self._socket.close()
        await self._stack.aclose()

    async def _accept(self) -> None:
        while True:
            link, _ = await self._socket.accept()
            self._background.start_soon(self._serve, trio.SocketStream(link))

    async def _serve(self, stream: trio.SocketStream) -> None:
        buffer = b""
        while not buffer.endswith(b"\n"):  # a node says nothing more before its first command
            data = await stream.receive_some(4096)
            if not data:
                return
            buffer += data
        hello = json.loads(buffer)
        node = self._nodes[hello["name"]] = Node(hello["name"], hello["pid"], stream, self._tell)
        self.all.append(node)
        self._connected.setdefault(node.pid, trio.Event()).set()
        await node.read()

    def _tell(self, event: dict[str, Any]) -> None:
        for function in self._told:
            function(event)
        if not self._told:
            self._send_event.send_nowait(event)

    def on_event(self, function: Callable[[dict[str, Any]], None]) -> None:
        """Call `function` with each event, at once, instead of putting them into `events`."""
        self._told.append(function)

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    @property
    def alive(self) -> list[Node]:
        """The nodes whose processes live, in the order of their names."""
        return [node for _, node in sorted(self._nodes.items()) if node.alive]

    async def fork(self, name: str, namespace: str = "") -> Node:
        """Start the process of a node, which waits for `open`."""
        if namespace not in self._nurseries:
            self._nurseries[namespace] = _open_nursery(self._task, namespace)
        process = self._nurseries[namespace]
        assert process.stdin is not None
        process.stdin.write(f"{name} {self._path}\n")
        process.stdin.flush()
        pid = int(said(process)["pid"])
        list_process(self._task, pid)
        with trio.fail_after(WAIT):
            await self._connected.setdefault(pid, trio.Event()).wait()
        del self._connected[pid]  # the number may come again
        return self._nodes[name]

    async def start(
        self,
        name: str,
        role: str = "member",
        *,
        namespace: str = "",
        work: dict[str, int] | None = None,
        factor: float = 1.0,
        **options: Any,
    ) -> Node:
        """Start a node; it listens when this returns, and joins on its own. `options` are the constructor's."""
        node = await self.fork(name, namespace)
        node.options = {"role": role, "options": options, "work": work, "factor": factor}
        node.address = (await node.ask("open", **node.options))["address"]
        return node

    async def restart(self, name: str, namespace: str = "") -> Node:
        """Start a node again, at the address it had."""
        old = self._nodes[name]
        node = await self.fork(name, namespace)
        node.options = old.options
        options = dict(old.options["options"])
        if options.get("listen") and old.address:
            options["listen"] = old.address
        node.address = (await node.ask("open", **{**old.options, "options": options}))["address"]
        return node

    async def each(
        self, do: str, nodes: Iterable[Node] | None = None, *, limit: float = WAIT, **arguments: Any
    ) -> dict[str, dict[str, Any]]:
        """Send a command to nodes, all by default, at once; return their replies. A node that died has none."""
        replies: dict[str, dict[str, Any]] = {}

        async def ask(node: Node) -> None:
            with suppress(Died):
                replies[node.name] = await node.ask(do, limit=limit, **arguments)

        async with trio.open_nursery() as nursery:
            for node in self.alive if nodes is None else nodes:
                nursery.start_soon(ask, node)
        return replies


def _open_nursery(task: dict[str, Any], namespace: str) -> subprocess.Popen[str]:
    words = [*TIED, sys.executable, str(HERE / "_child.py"), "_cluster_node:nursery", json.dumps(task)]
    if namespace:
        words = ["ip", "netns", "exec", namespace, *words]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said(process)
    return process


async def until(condition: Callable[[], Any], seconds: float, what: str, *, pause: float = 0.02) -> Any:
    """Return the first true value of an async function; end the run after `seconds`."""
    end = trio.current_time() + seconds
    while True:
        if found := await condition():
            return found
        if trio.current_time() > end:
            fail(f"not in {seconds:g} s: {what}")
        await trio.sleep(pause)
