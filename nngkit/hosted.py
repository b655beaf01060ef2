"""Base of the classes of nngkit.blocking and nngkit.aio: calls of an async object that lives in the portal.

`python3 dev.py faces` writes those classes: each method has the name, arguments, errors and docstring of the object's
own, and is one call of this base or of that of its package. `_opened` is for thread-safe methods and properties, `_do`
for any other method that never waits; those that wait differ between the two packages.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar

from nngkit.errors import Closed, Forked
from nngkit.portal import Calls, Host

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


class Face(Generic[T]):
    """Base class: calls of an object in the portal."""

    _inner: T

    def _open_object(self) -> tuple[Calls, T]:
        """Return the way to the portal, and the object. Raises Closed, Forked."""
        raise NotImplementedError

    def _iterate(
        self, method: Callable[Concatenate[T, P], AsyncGenerator[R, None]], /, *arguments: P.args, **options: P.kwargs
    ) -> Any:
        """Return an iterator over an async generator in the portal; closing it closes the generator."""
        raise NotImplementedError

    @property
    def _opened(self) -> T:
        return self._open_object()[1]

    def _do(self, method: Callable[Concatenate[T, P], R], /, *arguments: P.args, **options: P.kwargs) -> R:
        """Call a method that never waits but is not thread-safe: in the portal's thread, while the caller waits."""
        calls, inner = self._open_object()
        return calls.do(method, inner, *arguments, **options)


class Hosted(Face[T]):
    """Base class: an async object, hosted by the portal while the block runs."""

    _of: ClassVar[type[Any]]
    _block: ClassVar[str]  # the statement that opens it

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._host: Host | None = None

    def _open_object(self) -> tuple[Calls, T]:
        if self._pid != os.getpid():
            raise Forked(f"this {type(self).__name__} belongs to the process that made it")
        if self._host is None:
            raise Closed(f"this {type(self).__name__} is not open: use it in {self._block}")
        return self._host, self._inner

    @property
    def _is_inside(self) -> bool:
        """True in a function that the object has called: its end would wait for that of the function."""
        return bool(getattr(self._inner, "_is_inside", False))

    def _close_later(self) -> None:
        """Close the object once the function that it, or the loop, has called has returned."""
        assert self._host is not None
        self._inner._put_off(partial(self._host.portal.later, self._host.go))  # type: ignore[attr-defined]

    def _registering(self, register: Callable[[F], F]) -> Callable[[F], F]:
        """Return a decorator that calls `register`, in the portal's thread once the object is open."""

        def decorate(function: F) -> F:
            return register(function) if self._host is None else self._host.do(register, function)

        return decorate


class Held(Face[T]):
    """Base class: an object in the portal that an open one has returned."""

    def __init__(self, inner: T, calls: Calls) -> None:
        self._inner = inner
        self._calls = calls

    def _open_object(self) -> tuple[Calls, T]:
        return self._calls, self._inner

    def __repr__(self) -> str:
        return repr(self._inner)


def constructor(
    of: Callable[P, Any], **bridged: str
) -> Callable[[Callable[[Any], None]], Callable[Concatenate[Any, P], None]]:
    """Return a decorator of an `__init__`, which gives it the arguments of the class `of`: they make `_inner`.

    `bridged`: arguments that go through the object's `_bridge`, with the name of its method.
    """

    def decorate(initialize: Callable[[Any], None]) -> Callable[Concatenate[Any, P], None]:
        @functools.wraps(of.__init__)  # its signature is also what help() shows
        def construct(self: Any, /, *arguments: P.args, **options: P.kwargs) -> None:
            initialize(self)
            if not bridged:
                self._inner = of(*arguments, **options)
                return
            given = inspect.signature(of).bind(*arguments, **options)
            for name in bridged.keys() & given.arguments.keys():
                given.arguments[name] = getattr(self._bridge, bridged[name])(given.arguments[name])
            self._inner = of(*given.args, **given.kwargs)

        return construct

    return decorate


def hosted(argument: object) -> Any:
    """Return the object in the portal if the argument is one of these classes, and else the argument."""
    return argument._opened if isinstance(argument, Face) else argument
