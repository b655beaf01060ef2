"""Ways to wait for a socket: blocking, under trio, under asyncio; and calls in a thread.

A check names the blocking method, and the caller finds the awaitable twin: ``caller.call(sock.recv, timeout=1)`` is
``trio.run(sock.arecv)`` under trio. So a socket class can be checked if its blocking methods have twins that begin with
`a`, as those of nngkit.protocols have.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

WAIT: Final = 20.0  # seconds for one operation: far more than one takes, also on a busy machine


@dataclass(frozen=True)
class Caller:
    """A way to wait for a socket, each call in a loop of its own.

    Attributes:
        name: "blocking", "trio" or "asyncio".
    """

    name: str

    def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the result of a bound `method`, or of its awaitable twin. Exceptions of the call are passed on."""
        if self.name == "blocking":
            return method(*arguments, **options)
        twin = partial(getattr(method.__self__, f"a{method.__name__}"), *arguments, **options)  # type: ignore[attr-defined]
        return trio.run(twin) if self.name == "trio" else asyncio.run(twin())

    def start(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Background:
        """Begin `call` in a thread."""
        return Background(self.call, method, *arguments, **options)

    def every(self, sock: Any) -> list[Any]:
        """Return all items of an iteration over `sock`; it ends when the socket is closed."""
        if self.name == "blocking":
            return list(sock)

        async def collect() -> list[Any]:
            return [item async for item in sock]

        return trio.run(collect) if self.name == "trio" else asyncio.run(collect())


BLOCKING: Final = Caller("blocking")
TRIO: Final = Caller("trio")
ASYNCIO: Final = Caller("asyncio")
CALLERS: Final = (BLOCKING, TRIO, ASYNCIO)


class Background(threading.Thread):
    """A call in a daemon thread, which begins at once; `result` returns or raises its outcome.

    ::

        receiving = Background(pull.recv, timeout=5.0)
        push.send(b"work")
        assert receiving.result() == b"work"
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        super().__init__(daemon=True)
        self._function = partial(function, *arguments, **options)
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Make the call; the thread does this itself."""
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error

    def result(self, timeout: float = WAIT) -> Any:
        """Wait for the end of the call; return its result or raise its exception.

        Args:
            timeout: Seconds.

        Raises:
            AssertionError: The call still runs after `timeout` seconds.
        """
        self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._value

    def error(self, timeout: float = WAIT) -> BaseException:
        """Wait for the end of the call; return the exception that it raised.

        Args:
            timeout: Seconds.

        Raises:
            AssertionError: The call still runs after `timeout` seconds, or raised none.
        """
        self._wait(timeout)
        if self._error is None:
            raise AssertionError(f"{self._function} returned {self._value!r}")
        return self._error

    def _wait(self, timeout: float) -> None:
        self.join(timeout)
        if self.is_alive():
            raise AssertionError(f"{self._function} still runs after {timeout:g} s")
