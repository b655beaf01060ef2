"""Base of the classes of nngkit.blocking and nngkit.aio: an async object that lives in the portal, and wrapped methods.

A wrapped method has the name, arguments, result, errors and docstring of the object's own; type checkers and editors
see the real signatures. `direct_call` runs a thread-safe method in the calling thread, `loop_call` any other method
that never waits in the portal's thread. Methods that wait differ between the two packages and are wrapped there.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from nngkit.errors import Closed, Forked
from nngkit.portal import Calls, Host

__all__ = ["Hosted", "HostedProperty", "direct_call", "hosted_property", "loop_call", "signature_of"]

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")


class Hosted(Generic[T]):
    """Base class: an async object, hosted by the portal while the block runs."""

    _of: ClassVar[Callable[..., Any]]
    _block: ClassVar[str]  # the statement that opens it

    def _construct(self, *arguments: Any, **options: Any) -> None:
        self._inner: T = self._of(*arguments, **options)
        self._pid = os.getpid()
        self._host: Host | None = None

    def _open_object(self) -> tuple[Calls, T]:
        if self._pid != os.getpid():
            raise Forked(f"this {type(self).__name__} belongs to the process that made it")
        if self._host is None:
            raise Closed(f"this {type(self).__name__} is not open: use it in {self._block}")
        return self._host, self._inner


def signature_of(cls: Callable[P, Any]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give `__init__` the signature of `cls`."""

    def decorate(_: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        def init(self: Any, /, *arguments: P.args, **options: P.kwargs) -> None:
            self._construct(*arguments, **options)

        init.__wrapped__ = cls.__init__  # type: ignore[attr-defined]  # for help() and inspect.signature
        return init

    return decorate


def direct_call(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Hosted[T], P], R]:
    """Wrap a thread-safe method that never waits: runs in the calling thread."""

    @functools.wraps(method)
    def call(self: Hosted[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        _, inner = self._open_object()
        return method(inner, *arguments, **options)

    return call


def loop_call(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Hosted[T], P], R]:
    """Wrap a method that never waits but is not thread-safe: runs in the portal's thread, and the caller waits."""

    @functools.wraps(method)
    def call(self: Hosted[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        portal, inner = self._open_object()
        return portal.do(method, inner, *arguments, **options)

    return call


class HostedProperty(Generic[R_co]):
    """Thread-safe property that never waits."""

    def __init__(self, getter: Callable[[Any], R_co], doc: str | None) -> None:
        self._getter = getter
        self.__doc__ = doc

    @overload
    def __get__(self, of: None, cls: type) -> Self: ...
    @overload
    def __get__(self, of: Hosted[Any], cls: type) -> R_co: ...
    def __get__(self, of: Hosted[Any] | None, cls: type) -> R_co | Self:
        if of is None:
            return self
        return self._getter(of._open_object()[1])


def hosted_property(attribute: Callable[[T], R]) -> HostedProperty[R]:
    """Wrap a property. Annotate the result: mypy infers its type from the getter, pyright does not."""
    wrapped = cast(property, attribute)
    return HostedProperty(cast(Callable[[Any], R], wrapped.fget), wrapped.__doc__)
