"""A node that runs until a signal, or until the cluster has drained it: `nngkit host` and `nngkit join`."""

from __future__ import annotations

import argparse
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from nngkit.cli.cluster.node_lines import NodeLines
from nngkit.cli.cluster.programs import Programs
from nngkit.cli.streams import notify
from nngkit.cli.streams.line_writer import printed
from nngkit.cli.streams.signals import until_signal
from nngkit.errors import AccessDenied, Closed, TimedOut
from nngkit.protocols.own_host import is_everywhere, own_host

if TYPE_CHECKING:
    from nngkit.cluster import Endpoint
    from nngkit.telemetry.metrics import Watchable

PATIENCE: Final = 5.0  # seconds without a host until that is said


async def run_node(
    arguments: argparse.Namespace,
    make: Callable[[], Endpoint],
    lines: NodeLines,
    say: Callable[[str], None],
    prepare: Callable[[Endpoint], None] = lambda node: None,
    *,
    name: str,
    peers: Iterable[str],
    watch: Iterable[Watchable] = (),
) -> int:
    """Run the node of `make` until it is told to end; return the exit code.

    SIGINT and SIGTERM drain it: jobs in progress end, within `--drain-timeout`; a second signal ends it at once.
    `prepare` registers handlers before it begins. `peers`: addresses towards which it seeks its own, if it has to.
    `name`: the command, and `watch`: what has metrics beside the node, for `--http`.
    """
    chooses = arguments.listen is not None and arguments.advertise is None and is_everywhere(arguments.listen)
    # it may wait for names: signals end that wait, and the node then finds the same
    if chooses and (code := await until_signal(partial(own_host, peers, listen=arguments.listen))):
        return code
    life = _Life(arguments, lines, say)
    async with AsyncExitStack() as opened:
        signals = opened.enter_context(trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
        await opened.enter_async_context(printed(lines.writer))
        node = make()
        if arguments.exec is not None:
            programs = await opened.enter_async_context(Programs(arguments, lines))
            for kind in dict.fromkeys(arguments.kind):
                node.work(kind, concurrency=arguments.slots)(programs.do)
        prepare(node)
        if arguments.verbose:
            node.on_client_added(lines.added)
            node.on_client_removed(lines.removed)
        async with node, _door(name, arguments, node, watch):
            lines.begin(node, arguments.listen)
            notify.ready("runs")
            await life.run(node, signals)
    if lines.writer.dropped:
        say(f"{lines.writer.dropped} lines were not read in time, and dropped")
    if life.failure is not None:
        raise life.failure
    return life.code


def _door(
    name: str, arguments: argparse.Namespace, node: Endpoint, watch: Iterable[Watchable]
) -> AbstractAsyncContextManager[None]:
    if arguments.http is None:
        return nullcontext()
    from nngkit.cli.cluster import node_door  # loads the server

    return node_door.opened(name, arguments, node, watch)


class _Life:
    """Life of a node as it is printed. Errors are kept in `failure`, as a nursery would wrap them."""

    def __init__(self, arguments: argparse.Namespace, lines: NodeLines, say: Callable[[str], None]) -> None:
        self.code = 0
        self.failure: AccessDenied | None = None
        self._ending = False
        self._joined = False  # it was in the cluster
        self._patience: float = arguments.drain_timeout
        self._lines = lines
        self._say = say

    async def run(self, node: Endpoint, signals: AsyncIterator[int]) -> None:
        async with trio.open_nursery() as nursery:

            async def follow() -> None:
                try:
                    await self._follow(node)
                except AccessDenied as error:
                    self.failure = error
                except Closed:
                    self._left("was drained, and has left the cluster")
                nursery.cancel_scope.cancel()

            nursery.start_soon(follow)
            async for number in signals:
                notify.stopping()
                self.code = 128 + number
                self._ending = True
                break
            await self._drain(node, signals)
            nursery.cancel_scope.cancel()

    async def _follow(self, node: Endpoint) -> None:
        """Print each change of the role. Raises AccessDenied, and Closed once it has been drained."""
        await self._first_host(node)
        seen = None
        while True:
            now = (node.role, node.term, node.host)
            if now != seen and not self._ending:
                self._tell(*now)
                seen = now
            await node.wait_for_change()

    async def _first_host(self, node: Endpoint) -> None:
        said = False
        while True:
            try:
                await node.joined(PATIENCE)
            except TimedOut as error:
                if not said:
                    self._say(f"{error}; it goes on trying")
                said = True
            else:
                self._joined = True
                return

    def _tell(self, role: str, term: int, host: str | None) -> None:
        text = {
            "host": f"is host of term {term}",
            "member": f"follows {host}, host of term {term}",
            "joining": "has no way to a host",
        }[role]
        self._lines.event(role, text, term=term, host=host)

    async def _drain(self, node: Endpoint, signals: AsyncIterator[int]) -> None:
        async with trio.open_nursery() as nursery:

            async def end_at_once() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(end_at_once)
            with trio.move_on_after(self._patience) as limit:
                with suppress(Closed, AccessDenied):  # it has left already, or was never let in
                    await node.drain()
            if limit.cancelled_caught:
                self._say(f"jobs were in progress after {self._patience:g} s; they go to other nodes")
            nursery.cancel_scope.cancel()
        self._left("has left the cluster")

    def _left(self, text: str) -> None:
        if self._joined:
            self._lines.event("left", text)
