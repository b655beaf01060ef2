"""Shared parts of the socket tests. A test is about a *pattern* over a *wire*, with a *caller* that waits::

    pattern   the two ends of a protocol, and how to carry messages from one to the other
    wire      a transport: addresses to listen at, and the options that both ends need (TLS)
    caller    a way to wait: blocking, trio, asyncio

A caller is given the blocking name and finds the awaitable twin: ``caller.call(sock.recv, timeout=1)`` is
``trio.run(sock.arecv)`` under trio. Every wait is bounded by WAIT: a test that hangs fails instead.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

from nngkit.protocols import (
    TLS,
    Bus,
    Pair0,
    Pair1,
    Pub,
    Pull,
    Push,
    Rep,
    Req,
    Respondent,
    Sub,
    Surveyor,
)

WAIT = 20.0  # seconds: far more than anything here takes, also on a busy machine
ROOT = Path(__file__).parents[2]

_names = itertools.count()


# ---- ways to wait ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Caller:
    """One way to wait for a socket, each call in a loop of its own."""

    name: str

    def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return or raise the outcome of ``method``, or of its awaitable twin."""
        if self.name == "blocking":
            return method(*arguments, **options)
        twin = partial(getattr(method.__self__, f"a{method.__name__}"), *arguments, **options)  # type: ignore[attr-defined]
        return trio.run(twin) if self.name == "trio" else asyncio.run(twin())

    def start(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Background:
        """Like ``call``, in a thread."""
        return Background(self.call, method, *arguments, **options)

    def every(self, sock: Any) -> list[Any]:
        """Return everything that iterating over ``sock`` yields, until it ends."""
        if self.name == "blocking":
            return list(sock)

        async def collect() -> list[Any]:
            return [item async for item in sock]

        return trio.run(collect) if self.name == "trio" else asyncio.run(collect())


BLOCKING = Caller("blocking")
TRIO = Caller("trio")
ASYNCIO = Caller("asyncio")
CALLERS = (BLOCKING, TRIO, ASYNCIO)


class Background(threading.Thread):
    """A call in a thread; ``result`` returns or raises its outcome."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        super().__init__(daemon=True)
        self._function = partial(function, *arguments, **options)
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error

    def result(self, timeout: float = WAIT) -> Any:
        self.join(timeout)
        assert not self.is_alive(), f"{self._function} still runs after {timeout} s"
        if self._error is not None:
            raise self._error
        return self._value

    def error(self, timeout: float = WAIT) -> BaseException:
        """The exception it raised."""
        self.join(timeout)
        assert not self.is_alive(), f"{self._function} still runs after {timeout} s"
        assert self._error is not None, f"{self._function} returned {self._value!r}"
        return self._error


def eventually(true: Callable[[], Any], timeout: float = WAIT) -> Any:
    """Return the result of ``true()`` once it is true: for state without notifications, such as counters."""
    end = time.monotonic() + timeout
    while not (value := true()):
        assert time.monotonic() < end, f"not in {timeout} s: {true}"
        time.sleep(0.002)
    return value


# ---- transports ------------------------------------------------------------------------------------------------------

TRANSPORTS = ("tcp", "tcp6", "ipc", "abstract", "ws", "wss", "tls+tcp", "inproc")


@dataclass(frozen=True)
class Wire:
    """One transport. ``options`` go to both ends."""

    transport: str
    directory: Path
    tls: TLS | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.tls is None else {"tls": self.tls}

    def address(self, port: int = 0) -> str:
        """Return an address that was not listened on yet; on the network with ``port``."""
        match self.transport:
            case "tcp" | "tls+tcp":
                return f"{self.transport}://127.0.0.1:{port}"
            case "tcp6":
                return f"tcp6://[::1]:{port}"
            case "ws" | "wss":
                return f"{self.transport}://127.0.0.1:{port}/brick"
            case "ipc":
                return f"ipc://{self.directory}/{next(_names)}"
            case _:
                return f"{self.transport}://nngkit-{os.getpid()}-{next(_names)}"

    @contextmanager
    def reserved(self) -> Iterator[str]:
        """Yield an address to dial before a listener is there; no other socket can get its port."""
        family = socket.AF_INET6 if self.transport == "tcp6" else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as holder:
            # bound and not listening: the kernel gives the port to no other socket, but lets NNG listen, which sets the
            # same option
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
            yield self.address(holder.getsockname()[1])


# ---- protocols -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pattern:
    """Both ends of a protocol: ``first`` sends, ``second`` receives. ``answered``: messages are questions."""

    name: str
    first: Callable[..., Any]
    second: Callable[..., Any]
    answered: bool = False
    verb: str = "send"
    second_options: dict[str, Any] = field(default_factory=dict)

    def pair(self, wire: Wire, *, first_listens: bool, **options: Any) -> tuple[Any, Any]:
        """Return both ends, connected; the caller closes them."""
        if first_listens:
            one = self.first(listen=wire.address(), **wire.options, **options)
            two = self.second(dial=one.address, **self.second_options, **wire.options, **options)
        else:
            two = self.second(listen=wire.address(), **self.second_options, **wire.options, **options)
            one = self.first(dial=two.address, **wire.options, **options)
        try:
            one.wait_for_peers(1, WAIT)
            two.wait_for_peers(1, WAIT)
        except BaseException:
            one.close(0.0)
            two.close(0.0)
            raise
        return one, two

    @contextmanager
    def connected(self, wire: Wire, *, first_listens: bool = True, **options: Any) -> Iterator[tuple[Any, Any]]:
        one, two = self.pair(wire, first_listens=first_listens, **options)
        # the sender closes first, while the other end can still receive
        with two, one:
            yield one, two

    def open_second(self, **options: Any) -> Any:
        return self.second(**self.second_options, **options)

    def say(self, first: Any) -> Any:
        """Return the method by which the first end sends."""
        return getattr(first, self.verb)

    def carry(self, caller: Caller, first: Any, second: Any, bodies: Sequence[bytes]) -> list[bytes]:
        """Send all of ``bodies`` at the first end and return those received at the second; check the replies too."""
        if not self.answered:
            for body in bodies:
                caller.call(first.send, body)
            return [caller.call(second.recv, timeout=WAIT) for _ in bodies]
        asking = Background(lambda: [self.ask(caller, first, body) for body in bodies])
        heard = []
        for _ in bodies:
            question = caller.call(second.recv, timeout=WAIT)
            heard.append(question.body)
            caller.call(question.reply, question.body[::-1])
        assert asking.result() == [body[::-1] for body in bodies]
        return heard

    def ask(self, caller: Caller, first: Any, body: bytes) -> bytes:
        """Return the one reply to one question."""
        if self.name == "reqrep":
            return bytes(caller.call(first.request, body, timeout=WAIT))
        result = caller.call(first.survey, body, timeout=WAIT, early=True)
        assert (result.expected, result.answered, len(result.replies)) == (1, 1, 1)
        return bytes(result.replies[0].body)


PATTERNS = (
    Pattern("pair0", Pair0, Pair0),
    Pattern("pair1", Pair1, Pair1),
    Pattern("reqrep", Req, Rep, answered=True, verb="request"),
    Pattern("pipeline", Push, Pull),
    Pattern("bus", Bus, Bus),
    Pattern("pubsub", Pub, Sub, second_options={"topics": b""}),
    Pattern("survey", Surveyor, Respondent, answered=True, verb="survey"),
)


# ---- other processes -------------------------------------------------------------------------------------------------


def run_python(program: str, *arguments: str, timeout: float = WAIT) -> subprocess.CompletedProcess[str]:
    """Run ``program`` in a Python of its own; kill it after ``timeout`` seconds (subprocess.TimeoutExpired)."""
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def said(program: str, *arguments: str, timeout: float = WAIT) -> str:
    """Return the output of ``program``, which must exit with 0 and print nothing to standard error."""
    done = run_python(program, *arguments, timeout=timeout)
    assert (done.returncode, done.stderr) == (0, ""), f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()
