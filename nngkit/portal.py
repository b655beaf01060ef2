"""Portal: trio in one daemon thread, for threads without a trio loop. nngkit.blocking and nngkit.aio run in it.

::

    portal = the_portal()
    host = Host(portal, discovery)                  # enters a ServiceDiscovery; host.close() leaves it
    host.call(discovery.discover, early=True)       # runs a coroutine function, waits for its result or exception
    host.do(service.drain)                          # the same for a function that does not wait
    BlockingIterator(host, discovery.events())      # waits for each item
    with host.hold(): ...                           # meanwhile the loop runs this thread's functions only

Depends on trio and loop_waits.py; knows nothing about the objects that live in it.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar, cast

import trio

from nngkit.errors import Closed, NngkitError
from nngkit.loop_waits import asked_by

R = TypeVar("R")

ENDING: Final = 3.0
"""Seconds for all open objects together to close at the end of the process: noticeable, but no hang."""
NOTICED: Final = 1.0
"""Seconds until the loop notices that the thread holding it has ended."""


class Wait:
    """A thread's wait for a result from the loop."""

    def __init__(self) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._over = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def over(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result, in the loop; only the first call counts."""
        if not self._over:
            self._over = True
            self._value, self._error = value, error
            self._gate.release()

    def wait(self) -> Any:
        """Return or raise the result, in the thread. Signals interrupt a lock's acquire, so Ctrl-C works."""
        self._gate.acquire()
        error, self._error = self._error, None  # else error and frame would form a reference cycle
        if error is not None:
            raise error
        return self._value


def _ended() -> Closed:
    return Closed("nngkit has been closed at the end of the process")


class _Hold:
    """The loop reserved for one thread. A thread that ends without releasing it is noticed within a second."""

    def __init__(self) -> None:
        self._thread = threading.current_thread()
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Wait] | None] = queue.SimpleQueue()

    def do(self, function: Callable[[], R]) -> R:
        """Run `function` in the loop, from the thread."""
        done = Wait()
        self._work.put((function, done))
        return cast(R, done.wait())

    def end(self) -> None:
        """Release the loop, from the thread."""
        self._work.put(None)

    def serve(self) -> None:
        """Run the thread's functions, in the loop, until it releases the loop."""
        while True:
            try:
                work = self._work.get(timeout=NOTICED)
            except queue.Empty:
                if self._thread.is_alive():
                    continue
                return
            if work is None:
                return
            function, done = work
            try:
                done.over(function())
            except BaseException as error:  # passed on to the thread, whatever it is
                done.over(error=error)
            del function, done, work


class Calls(ABC):
    """Calls into the loop, from other threads."""

    @abstractmethod
    def begin(self, call: Callable[[], Awaitable[object]], end: Wait, scope: trio.CancelScope) -> None:
        """Start a coroutine function in the loop; `end` gets its outcome, and `scope` can cancel it."""

    @abstractmethod
    def later(self, function: Callable[[], object]) -> None:
        """Run `function` in the loop without waiting; do nothing at the end of the process."""

    @abstractmethod
    def do(self, function: Callable[..., R], *arguments: Any, **options: Any) -> R:
        """Run a function that does not wait in the loop, held by this thread or not; return or raise its result."""

    @abstractmethod
    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run `function` until it returns; at the end of the process it is cancelled."""

    @abstractmethod
    def hold(self) -> AbstractContextManager[None]:
        """Reserve the loop for this thread's `do` until the end of the block."""

    def call(self, function: Callable[..., Awaitable[R]], *arguments: Any, **options: Any) -> R:
        """Run a coroutine function in the loop; return or raise its result. An interrupt (Ctrl-C) cancels it."""
        end, scope = Wait(), trio.CancelScope()

        def give_up() -> None:
            end.over(error=Closed("the asyncio loop of this call has ended"))
            scope.cancel()

        self.begin(functools.partial(function, *arguments, **options), end, scope)
        loop = asked_by()
        try:
            with nullcontext() if loop is None else loop.attending(functools.partial(self.later, give_up)):
                return cast(R, end.wait())
        except BaseException:
            self.later(scope.cancel)  # harmless if it has ended
            raise


class Portal(Calls):
    """Trio in a daemon thread, with one nursery for calls and one for the objects that live there."""

    def __init__(self) -> None:
        started = Wait()
        self._holder = threading.local()
        self._thread = threading.Thread(target=self._run, args=(started,), name="nngkit.blocking", daemon=True)
        self._thread.start()
        started.wait()

    def _run(self, started: Wait) -> None:
        trio.run(self._main, started)

    async def _main(self, started: Wait) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.closing = trio.Event()
        async with trio.open_nursery() as calls:
            with trio.CancelScope() as bound:
                async with trio.open_nursery() as lives:
                    self._calls, self._lives = calls, lives
                    started.over()
                    await self.closing.wait()
                    bound.deadline = trio.current_time() + ENDING
            calls.cancel_scope.cancel()

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run `function` in the loop.

        Raises Closed once the process ends; NngkitError while this thread holds the loop, or in the loop's thread.
        """
        if self._holds() is not None:
            raise NngkitError("cannot wait in a transaction: the loop stands still until it ends")
        if self.is_here:
            raise NngkitError("cannot wait in a function that nngkit calls in its loop: start a thread for it")
        self._soon(function, *arguments)

    @property
    def is_here(self) -> bool:
        """True in the loop's thread: in a function that the loop calls."""
        return threading.get_ident() == self._thread.ident

    def _soon(self, function: Callable[..., object], *arguments: Any) -> None:
        try:
            self._token.run_sync_soon(function, *arguments)
        except trio.RunFinishedError:
            raise _ended() from None

    def begin(self, call: Callable[[], Awaitable[object]], end: Wait, scope: trio.CancelScope) -> None:
        async def run() -> None:
            try:
                with scope:
                    end.over(await call())
            except trio.Cancelled:
                raise
            except BaseException as error:  # passed on to the caller, whatever it is
                end.over(error=error)
            finally:
                end.over(error=_ended())

        self.soon(copy_context().run, self._start, False, run, end)  # the call sees the caller's context variables

    def later(self, function: Callable[[], object]) -> None:
        with suppress(Closed):
            self._soon(function)

    def do(self, function: Callable[..., R], *arguments: Any, **options: Any) -> R:
        if self.is_here:  # of a function that the loop calls
            return function(*arguments, **options)
        if (hold := self._holds()) is not None:
            return hold.do(functools.partial(function, *arguments, **options))

        async def there() -> R:
            return function(*arguments, **options)

        return self.call(there)

    def _holds(self) -> _Hold | None:
        hold: _Hold | None = getattr(self._holder, "hold", None)
        return hold

    @contextmanager
    def hold(self) -> Generator[None, None, None]:
        if self.is_here or self._holds() is not None:
            yield
            return
        hold = _Hold()
        try:
            self.soon(hold.serve)
            self._holder.hold = hold
            yield
        finally:
            self._holder.hold = None
            hold.end()

    def live(self, function: Callable[[], Awaitable[None]], opened: Wait) -> None:
        """Run `function` until it returns; at the end of the process `closing` is set, and it has ENDING seconds."""
        self.soon(self._start, True, function, opened)

    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        self.soon(self._start, False, function, Wait())

    def _start(self, lives: bool, function: Callable[[], Awaitable[None]], end: Wait) -> None:
        if self.closing.is_set():
            end.over(error=_ended())
        else:
            (self._lives if lives else self._calls).start_soon(function)

    def end(self) -> None:
        """Close all open objects, and the loop."""
        try:
            self.soon(self.closing.set)
        except Closed:
            return
        self._thread.join(ENDING + 1)


_portal: Portal | None = None
_one = threading.Lock()


def the_portal() -> Portal:
    """Return the portal of this process, starting it on first use."""
    global _portal
    with _one:
        if _portal is None:
            _portal = Portal()
        return _portal


def end() -> None:
    """Close all open objects and the portal, at the end of the process."""
    if _portal is not None:
        _portal.end()


def _after_fork() -> None:
    # The loop's thread does not exist in the child. Its objects raise Forked; the bricks handle NNG.
    global _portal, _one
    _portal, _one = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Host(Calls):
    """Task that hosts an async object: one task must both enter and leave its `async with`.

    If the object fails, its calls raise that exception, those that wait too: it need not wake them itself.
    """

    def __init__(self, portal: Portal, inner: Any, wait: Callable[[], Wait] = Wait) -> None:
        """Begin to enter `inner`. `wait` makes the waits of `open` and `close`."""
        self.portal = portal
        self._inner = inner
        self.opened, self.left = wait(), wait()
        self._leave = False
        self._failure: BaseException | None = None
        self._failed: Callable[[], object] | None = None
        self._leaving: trio.Event | None = None
        self._fails = False
        self._over = trio.Event()
        self._waiting: set[trio.CancelScope] = set()
        self._entering, self._entered = trio.CancelScope(), False
        portal.live(self._live, self.opened)

    def open(self) -> None:
        """Wait until `inner` was entered. Raises its exception; it is left if the wait is interrupted."""
        try:
            self.opened.wait()
        except BaseException:
            self.portal.soon(self.go)
            raise

    async def _live(self) -> None:
        with self._entering:  # not cancelled once the object is open, so that it leaves in order
            await self._enter_and_leave()

    async def _enter_and_leave(self) -> None:
        self._leaving = trio.Event()
        try:
            async with self._inner:
                self._entered = True
                self.opened.over()
                if not self._leave:
                    try:
                        async with trio.open_nursery() as nursery:
                            for event in (self._leaving, self.portal.closing):
                                nursery.start_soon(self._until, event, nursery.cancel_scope)
                    except BaseException:
                        self._fails = True
                        raise
        except trio.Cancelled:
            self.opened.over(error=_ended())
            raise
        except BaseException as error:
            self.opened.over(error=error)
            self.left.over(error=error)
            if self._entered and not self._leave:
                self._failure = error
                self._report_failure()
        finally:
            self._over.set()
            if self._failure is not None:
                for scope in self._waiting:
                    scope.cancel()
            self.left.over()

    def begin(self, call: Callable[[], Awaitable[object]], end: Wait, scope: trio.CancelScope) -> None:
        self.portal.begin(functools.partial(self._attend, call), end, scope)

    async def _attend(self, call: Callable[[], Awaitable[object]]) -> object:
        """Run a call of the object, until the object fails."""
        if self._failure is None:
            scope = trio.CancelScope()
            self._waiting.add(scope)
            try:
                with scope:
                    return await call()
            except Exception:
                if self._fails:
                    await self._over.wait()  # then it is known why
                if self._failure is None:
                    raise
            finally:
                self._waiting.discard(scope)
        raise cast(BaseException, self._failure)

    def later(self, function: Callable[[], object]) -> None:
        self.portal.later(function)

    def do(self, function: Callable[..., R], *arguments: Any, **options: Any) -> R:
        return self.portal.do(function, *arguments, **options)

    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        self.portal.spawn(function)

    def hold(self) -> AbstractContextManager[None]:
        return self.portal.hold()

    async def _until(self, event: trio.Event, scope: trio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    def watch(self, failed: Callable[[], object]) -> None:
        """Have `failed` called, in the loop, once the object has ended by a failure that `close` will raise."""

        def watching() -> None:
            self._failed = failed
            self._report_failure()

        self.portal.later(watching)

    def _report_failure(self) -> None:
        if self._failure is not None and self._failed is not None:
            self._failed()

    def go(self) -> None:
        """Begin to leave, or cancel the entering; in the loop."""
        self._leave = True
        if not self._entered:
            self._entering.cancel()
        if self._leaving is not None:
            self._leaving.set()

    def close(self) -> None:
        """Leave the object and wait until it has closed. Raises the exception that made it fail."""
        try:
            self.portal.soon(self.go)
        except Closed:
            return  # it was closed at the end of the process
        self.left.wait()


class BlockingIterator(Iterator[R]):
    """Iterator over an async generator, for one thread or several: each item goes to one call of `next`.

    `close`, from any thread, ends the iteration and all waiting calls; so does garbage collection. An abandoned wait (a
    timeout around `asyncio.to_thread`) still takes the next item.
    """

    _begun = False

    def __init__(self, portal: Calls, source: AsyncGenerator[R, None]) -> None:
        self._portal = portal
        self._pump = Pump(source)
        self._loop = asked_by()
        self._lock = threading.Lock()
        self._closed = False

    def __next__(self) -> R:
        with self._lock:
            if self._closed:
                raise StopIteration
            if not self._begun:
                self._portal.spawn(self._pump.run)
                self._begun = True
        receive = self._pump.receive.receive
        try:
            if self._loop is not None:
                return self._loop.run(self._portal.call, receive)
            return self._portal.call(receive)
        except trio.EndOfChannel:
            failure, self._pump.failure = self._pump.failure, None
            if failure is not None:
                raise failure from None
            raise StopIteration from None

    def close(self) -> None:
        """End the iteration. Idempotent."""
        self._closed = True
        if self._begun:
            self._portal.later(self._pump.scope.cancel)

    def __del__(self) -> None:
        self.close()


class Pump(Generic[R]):
    """Loop side of an iterator outside, without a reference to it: a task that owns the async generator."""

    def __init__(self, source: AsyncGenerator[R, None]) -> None:
        # unbuffered: an item is taken from the generator only for a waiting call, so none is lost
        self.send, self.receive = trio.open_memory_channel[R](0)
        self.scope = trio.CancelScope()
        self.failure: BaseException | None = None
        self._source = source
        self._runs = False

    async def run(self) -> None:
        """Hand over item by item until the generator ends. A second run does nothing."""
        if self._runs:  # a raising signal handler hid the first start from the caller
            return
        self._runs = True
        with self.scope:
            async with self.send:
                try:
                    try:
                        async for item in self._source:
                            await self.send.send(item)
                    finally:
                        with trio.CancelScope(shield=True):
                            await self._source.aclose()
                except trio.Cancelled:
                    raise
                except BaseException as error:  # passed on to the caller, whatever it is
                    self.failure = error
