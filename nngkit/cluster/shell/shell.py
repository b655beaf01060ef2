"""Shell of a node of a cluster: its transport, clock, voter's file, journal and tasks. Under trio.

The decisions are in node.py; what a program calls is in endpoint.py, which derives from `NodeShell`.

Effects are carried out at once if none were for `SPACING`, else together with those of the next moment: a busy node so
sends many messages in one frame, and a quiet one waits for nothing.
"""

from __future__ import annotations

import logging
import math
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import trio

from nngkit.background import WakeUp
from nngkit.cluster.containing import contained
from nngkit.cluster.election.values import Restored
from nngkit.cluster.jobs.part import JobsEnded
from nngkit.cluster.messages import ClusterGap, ClusterMessage
from nngkit.cluster.node.greetings import ITSELF
from nngkit.cluster.node.node import Node
from nngkit.cluster.node.questions import Answered, DrainOrdered
from nngkit.cluster.node.values import ContentChanged, NodeConfig, Refused
from nngkit.cluster.node.voting import Store, VotingEvent
from nngkit.cluster.shell.discovery import announce, seek
from nngkit.cluster.tree import values as placing
from nngkit.cluster.tree.load import EVERY, LoadGauge
from nngkit.errors import Broken, Closed, ConfigError, NotStored, TimedOut

if TYPE_CHECKING:
    from nngkit.cluster.election.values import Persist
    from nngkit.cluster.shell.store import VoterStore

from nngkit.cluster.shell.core import SOME_NODE, ShellCore

__all__ = ["NodeShell"]

log = logging.getLogger("nngkit.cluster")

LATE: Final = 0.05  # seconds after a due time: the loop stood still; also the time to take in what came meanwhile
CATCHING_UP: Final = 5  # times LATE at most: a node with too much to do is late all the time
ECHO: Final = 1.0  # seconds that the host has to answer a node that leaves: without, some jobs may take a second longer
MOST_REASONS: Final = 16  # addresses that the error of `joined` names
SPACING: Final = 0.001  # seconds between two times that effects are carried out: the shortest wait of a loop


def _new_store(path: str | os.PathLike[str], cluster: str, id: str) -> VoterStore:
    """Return a voter's store. Raises ConfigError without the extra that it needs."""
    try:
        from nngkit.cluster.shell.store import VoterStore
    except ImportError as error:
        raise ConfigError("store", f"it needs the extra nngkit[journal] ({error})", path) from error
    return VoterStore(path, (cluster, id))


def _open(store: VoterStore) -> Restored | None:
    """Return what a voter's store has; None for a new voter. Raises ConfigError, Damaged. It blocks."""
    try:
        return store.open()
    except OSError as error:
        raise ConfigError("store", f"{store.path}: {error.strerror or error}", str(store.path)) from error


def _write(store: VoterStore, steps: Sequence[Persist]) -> None:
    """Write what a voter has to remember. Raises NotStored. It blocks."""
    try:
        store.write(steps)
    except OSError as error:
        why = f"{error.strerror or error}; this voter ends, as it may acknowledge only what it has stored"
        raise NotStored(f"{store.path}: {why}") from error


class NodeShell(ShellCore):
    """A node of a cluster that runs: see ShellCore for its options."""

    # ---- life

    async def __aenter__(self) -> Self:
        self._entering()
        if self._closed or "_node" in self.__dict__:
            raise Closed(f"the node {self.id!r} has been opened before: make another one, which is a run of its own")
        await self._background.open()
        try:
            restored = None
            if self._store_path is not None:
                self._store = _new_store(self._store_path, self.cluster, self.id)
                restored = await trio.to_thread.run_sync(_open, self._store)
            await self._choose_host()  # before it listens: this may wait
            await self._transport.open(self, self._background.start)
            self._node = self._make_node(restored)  # before the loop goes on: a connection may wait
            self._node.set_work(self._workers.concurrency, self._slot_count(), trio.current_time())
            self._workers.opened()
            self._due, self._storable = WakeUp(), WakeUp()
            self._acted_at, self._act_at = trio.current_time() - SPACING, math.inf
            self._clock = trio.lowlevel.current_clock()
            self._changed = trio.Event()  # the next change
            self._seen = self._changed  # the first one for which no `wait_for_change` has returned
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._transport.aclose()
            self._close_store()
            await self._background.close(*sys.exc_info())
            raise
        self._background.start(self._keep_time)
        if self._store_path is not None:
            self._background.start(self._keep_store)
        if self.address is not None:
            self._background.start(self._watch_load)
        if self._daemons:
            self._background.start(seek, self.cluster, self._daemons, self._seeks, self._found)
        if self._discovery and self.address is not None:
            self._background.start(self._announce, self.address)
        return self

    def _make_node(self, restored: Restored | None) -> Node:
        """Return the pure part of this run. Raises ConfigError."""
        address = self._address_for_others()
        if self.id in self._voters and address is None:
            raise ConfigError("voters", f"{self.id!r} is a voter, and has to listen")
        if self._alone:
            assert address is not None
            self._voters = {self.id: address}
        config = NodeConfig(
            **self._settings,
            address=address,
            seeds=(*self._dial, *self._voters.values()),
            voters=self._voters,
            kinds=self._workers.kinds,
            slots=self._slot_count(),
        )
        return Node(
            config,
            epoch=self.epoch,
            now=trio.current_time(),
            wall=time.time(),
            rng=random.Random(),
            restored=restored,
            wake=self._wake_for_documents,
        )

    def _set_work(self) -> None:
        """Tell the node which jobs its functions can do."""
        self._node.set_work(self._workers.concurrency, self._slot_count(), trio.current_time())
        self._act_soon()

    async def _announce(self, address: str) -> None:
        async with AsyncExitStack() as stack:
            await announce(stack, self.cluster, self.id, address, self._discovery, self._room)
            await trio.sleep_forever()

    def _room(self) -> tuple[int, int] | None:
        """Return the children and their limit; None without a way to a host, or with too much to do."""
        place = self._node.place
        return (len(place.children), place.fanout) if place.path and not self._node.busy else None

    async def _watch_load(self) -> None:
        """Tell the cluster when this node has too much to do."""
        gauge = LoadGauge()
        wall, used = time.monotonic(), time.thread_time()
        while True:
            await trio.sleep(EVERY)
            before, wall = wall, time.monotonic()
            before_used, used = used, time.thread_time()
            load = (used - before_used) / (wall - before)
            if self._load is not None:
                try:
                    load = float(self._load())
                except BaseException as error:
                    contained(error)
                    log.exception("%s: `load` has failed; from now on its loop's share of a processor counts", self.id)
                    self._load = None
            if gauge.add(load):
                log.info("%s: %s", self.id, "it has too much to do" if gauge.busy else "it has time again")
                self._node.set_busy(gauge.busy, trio.current_time())
                self._act_soon()

    def _seeks(self) -> bool:
        return not self._node.place.path

    def _found(self, addresses: list[str]) -> None:
        self._node.place.set_seeds([*addresses, *self._dial], trio.current_time())
        self._act()

    def _wake_for_documents(self) -> None:
        """Publish the edits of a turn of the loop together, once it is over."""
        trio.lowlevel.current_trio_token().run_sync_soon(self._act_if_open, idempotent=True)

    def _act_if_open(self) -> None:
        if not self._closed:
            self._act_soon()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        finally:
            await self._background.close(kind, value, traceback)

    async def aclose(self) -> None:
        """Leave the cluster at once, and close: children and jobs go elsewhere. `drain` takes its time. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if (failure := self._background.failure) is not None:  # a thread's block goes on until its next call
            log.error("%s: the node has ended: %s", self.id, failure)
        try:
            if not self._left:
                self._node.leave(trio.current_time())
                self._act()
        finally:
            self._background.end()
            self._workers.close()
            self._note_change()
            self._wake_waits()
            with trio.CancelScope(shield=True):
                await self._transport.aclose()

    def _wake_waits(self) -> None:
        """Have those that wait for an answer, or a change of a shared object, look whether the node is still open."""
        for event, _ in self._answers.values():
            event.set()
        for shared in self._shared.values():
            shared._notify()

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    # ---- for the transport

    def link_up(self, link: int, peer: str, dialed: str | None) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._unreached.pop(dialed or "", None)
        self._node.link_up(link, peer, dialed, trio.current_time())
        self._act_soon()

    def link_down(self, link: int, why: str) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._node.link_down(link, trio.current_time())
        self._act_soon()

    def dial_failed(self, address: str, why: str) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._note_unreached(address, why)
        self._node.dial_failed(address, why, trio.current_time())
        self._act_soon()

    def received(self, link: int, frames: Sequence[bytes]) -> None:
        """See nngkit.cluster.transport.Sink."""
        self._node.received(link, frames, trio.current_time())
        self._act_soon()

    def _note_unreached(self, address: str, why: str) -> None:
        if not self._node.place.path and len(self._unreached) < MOST_REASONS:
            self._unreached[address] = why

    # ---- effects

    async def _keep_time(self) -> None:
        node = self._node
        while True:
            at = min(self._act_at, max(node.wake_at, self._acted_at + SPACING))
            with trio.move_on_at(at):
                await self._due.wait()
                continue  # an earlier time has been set
            if trio.current_time() >= node.wake_at:
                await self._catch_up(node.wake_at)
                node.tick(trio.current_time(), time.time())
            self._act()

    async def _catch_up(self, due: float) -> None:
        """Let other tasks take in what came while the loop stood still, if it did.

        Otherwise neighbours would be given up for a silence that was this node's.
        """
        for _ in range(CATCHING_UP):
            now = trio.current_time()
            if not LATE < now - due < math.inf:
                break
            due = now + LATE
            await trio.sleep_until(due)

    def _act_soon(self) -> None:
        """Carry out what the node asks for: now, or together with what comes until `SPACING` after the last time."""
        if self._act_at != math.inf:
            return
        if trio.current_time() >= self._acted_at + SPACING:
            self._act()
        else:
            self._act_at = self._acted_at + SPACING
            self._due.wake()

    def _act(self) -> None:
        """Carry out what the node asks for."""
        self._acted_at, self._act_at = trio.current_time(), math.inf
        effects = self._node.take(self._acted_at)
        transport = self._transport
        for link, frames, droppable in effects.sends:
            transport.send(link, frames, droppable=droppable)
        for link in effects.drops:
            transport.drop(link)
        for address in effects.dials:
            self._note_unreached(address, self._unreached.get(address, "not connected yet"))
            try:
                transport.dial(address)
            except ConfigError as error:
                log.warning("%s: an address that cannot be dialed: %s", self.id, error)
                self._node.dial_failed(address, str(error), trio.current_time())
        for line in effects.warnings:
            log.warning("%s: %s", self.id, line)
        for event in effects.events:
            self._happened(event)
        self._workers.acted()
        self._due.wake()

    def _happened(self, event: object) -> None:
        """Tell the program of an event."""
        match event:
            case ClusterMessage():
                self._record_message(event, self.id if event.direct else None)
                self._dispatcher.put(event)
            case ClusterGap():
                self._dispatcher.report_gap(event)
            case placing.MemberAdded(member, before) if before is None or before.epoch != member.epoch:
                self._notify(self._added, member.id)
            case placing.MemberRemoved(member):
                self._notify(self._removed, member.id)
            case placing.Refused(why, final):
                if final:
                    self._final = why
                    log.error("%s: the cluster does not want this node: %s", self.id, why)
                    self._wake_waits()
                else:
                    self._refusals[SOME_NODE] = why
                self._note_change()
            case Refused(address, why):
                if why != ITSELF and len(self._refusals) < MOST_REASONS:
                    self._refusals[address] = why
            case placing.Attached() | placing.Detached() | placing.TermChanged():
                if self._node.place.path:
                    self._refusals.clear()
                    self._unreached.clear()
                else:
                    self._accepted = False
                self._note_change()
            case placing.Left():
                self._left = True
                self._workers.close()
                self._note_change()
            case Answered():
                if (waiting := self._answers.get(event.number)) is not None:
                    waiting[1].append(event)
                    waiting[0].set()
            case DrainOrdered():
                self._background.start(self._leave_and_close)
            case ContentChanged(names):
                for name in names & self._shared.keys():
                    self._shared[name]._notify()
            case Store(steps):
                self._to_store += steps
                self._storable.wake()
            case VotingEvent(news):
                if self._journal is not None:
                    self._journal.election(news)
            case JobsEnded(ends):
                if self._journal is not None:
                    self._journal.ends(ends)
            case _:
                self._workers.happened(event)

    async def _keep_store(self) -> None:
        """Write what the voter has to remember before it may answer."""
        store, voting = self._store, self._node.voting
        assert store is not None
        assert voting is not None
        try:
            while True:
                while not self._to_store:
                    await self._storable.wait()
                steps, self._to_store = self._to_store, []
                await trio.to_thread.run_sync(_write, store, steps)
                voting.persisted(steps[-1].token, trio.current_time())
                self._act()
        finally:
            self._close_store()  # here, as a thread may write until this task ends

    async def _leave(self) -> None:
        """Hand over all work, then leave the cluster. Raises Closed, AccessDenied, RuntimeError in a work function."""
        self._check_not_closed()
        await self._workers.drain()
        if not self._left and not self._closed:
            await self._meet_grants()
            self._node.leave(trio.current_time())
            self._act_soon()
        while not self._left and not self._closed:
            await self._changed.wait()

    async def _meet_grants(self) -> None:
        """Return the jobs that were granted to this node before its parent knew that it takes no more.

        They come before the host's answer to a question that follows the withdrawn demand: to a second one, as a parent
        passes answers on at once, and grants with the next effects it carries out. Lost with the link, each would
        take a try from its job.
        """
        place = self._node.place
        if not self._workers.kinds or not place.path or self._node.is_host:
            return
        with trio.move_on_after(ECHO), suppress(TimedOut, Broken, Closed):
            for _ in range(2):
                self._act()
                await self._ask("echo", "", None)

    async def _ask(self, what: str, argument: str, timeout: float | None) -> Answered:
        self._check_open()
        number = self._node.questions.ask(what, argument, trio.current_time())
        event, found = self._answers[number] = trio.Event(), list[Answered]()
        self._act_soon()
        try:
            with trio.move_on_after(math.inf if timeout is None else timeout):
                await event.wait()
        finally:
            del self._answers[number]
            self._node.questions.forget(number)
        if not found:
            self._check_open()
            raise TimedOut(f"{self!r}: the host has not answered {what!r} in {timeout} s", timeout)
        if found[0].why is not None and what != "drain":
            raise Broken(f"the host {found[0].sender!r} refuses {what!r}: {found[0].why}")
        return found[0]

    async def _leave_and_close(self) -> None:
        log.info("%s: drained by order", self.id)
        with suppress(Closed):
            await self._leave()
        await self.aclose()

    def _notify(self, functions: Sequence[Callable[[str], object]], id: str) -> None:
        for function in functions:
            try:
                function(id)
            except BaseException as error:
                contained(error)
                self._dispatcher.failed += 1
                log.exception("%s: a function for clients failed", self.id)

    def _record_message(self, message: ClusterMessage, to: str | None = None) -> None:
        if self._journal is not None and self._journal.messages:
            self._journal.message(message.kind, message.origin, message.epoch, message.sequence, message.body, to)
