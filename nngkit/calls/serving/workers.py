"""Tasks that receive requests and run calls, each one call at a time.

One worker receives, and others wait for its turn. It gives the turn away when its handler first waits: so a request
wakes one task, and calls whose handlers do not wait run in one task after each other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from types import coroutine
from typing import Any, Final

import trio

from nngkit.background import Background
from nngkit.calls.serving.progress import Progress, Worker
from nngkit.errors import Closed
from nngkit.protocols import Rep, Request

BURST: Final = 64  # requests received together, between which no other task of the program runs


class Workers:
    """The workers of one server. `most`: of them.

    `receiver`: the one that has the turn. `taken`: requests that were received together, and not looked at yet.
    `scopes`: end the calls whose handlers wait, by their ids. `rep` is set before the start.
    """

    rep: Rep

    def __init__(self, progress: Progress, background: Background, most: int) -> None:
        self._progress = progress
        self._background = background
        self._most = most
        self._count = 0
        self._waiting = trio.lowlevel.ParkingLot()  # workers that wait for the turn
        self.receiver: Worker | None = None
        self.taken: deque[Request] = deque()
        self.scopes: dict[str, trio.CancelScope] = {}

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start to receive. `work`: receives requests for ever as a worker, which it gets of `working`."""
        self._work = work
        self._start_one()

    def _start_one(self) -> None:
        self._count += 1
        self._background.start(self._work)

    @contextmanager
    def working(self) -> Iterator[Worker]:
        """Be a worker until the socket is closed, which ends the block."""
        worker = Worker()
        try:
            yield worker
        except Closed:
            pass
        finally:
            if worker.request is not None:
                self.disarm(worker)
                self._progress.finish(worker)
            if self.receiver is worker:
                self.receiver = None
                self._waiting.unpark_all()

    async def turn(self, worker: Worker) -> None:
        """Wait until it is the turn of `worker` to receive."""
        while self.receiver is not worker:
            if self.receiver is None:
                self.receiver = worker
            else:
                await self._waiting.park()

    def pass_on(self, worker: Worker) -> None:
        """Let another worker receive, as the handler of `worker` waits; from now on it can be stopped."""
        if worker.handler is not None and worker.call is not None:
            worker.waits = True
            self.scopes[worker.call.id] = worker.scope
            if worker.deadline != float("inf"):
                worker.scope.deadline = trio.current_time() + worker.deadline - time.monotonic()
        if self.receiver is worker:
            self.receiver = None
            if self._waiting:
                self._waiting.unpark()
            elif self._count < self._most:
                self._start_one()
        progress = self._progress
        if progress.in_progress >= progress.concurrency and not progress.watched:
            progress.watched = True
            self._background.start(progress.watch)

    def disarm(self, worker: Worker) -> bool:
        """End what `pass_on` has begun; return True if the scope is used up."""
        if not worker.waits:
            return False
        assert worker.call is not None
        worker.waits = False
        self.scopes.pop(worker.call.id, None)
        used = worker.scope.cancel_called
        worker.scope.deadline = float("inf")
        return used


@coroutine
def go_on(running: Coroutine[Any, Any, Any], trap: Any) -> Generator[Any, Any, Any]:
    """Run a coroutine that waits by `trap` to its end; return its result."""
    value: Any = None
    try:
        while True:
            resume: Callable[[Any], Any] = running.send
            try:
                value = yield trap
            except BaseException as error:  # the loop's, for the coroutine
                value, resume = error, running.throw
            trap = resume(value)
    except StopIteration as end:
        return end.value
    finally:
        running.close()
        del value  # an error refers to this frame
