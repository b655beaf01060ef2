"""Exceptions of the program's functions that a node calls in its loop: each is contained to what it concerns. Pure.

::

    try:
        content.update(fragment)
    except BaseException as error:
        failure = contained(error)      # raises Ctrl-C again
        warn(f"update raised {describe(failure)}")

It is nngkit.calls.handlers.order_to_end for modules that know no trio: a plain function that is called in the loop
reaches no checkpoint, so no cancellation comes out of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from nngkit.calls.texts import text_of
from nngkit.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

ORDERS: Final = (KeyboardInterrupt, GeneratorExit)


def contained(error: BaseException) -> BaseException:
    """Return the exception if it is the function's own failure, be it SystemExit. Raises the others again."""
    if isinstance(error, BaseExceptionGroup):
        if (orders := error.subgroup(ORDERS)) is not None:
            raise orders
    elif isinstance(error, ORDERS):
        raise error
    return error


def plain(function: F) -> F:
    """Return a function that is called with news and not awaited. Raises ConfigError for an async one."""
    if is_async(function):
        raise ConfigError("function", f"{function!r} is async: it is called, and not awaited", function)
    return function


def is_async(function: Callable[..., Any]) -> bool:
    """Return True for an async function, or an object whose class has an async `__call__`."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def describe(error: BaseException) -> str:
    """Return class and text of an exception."""
    return f"{type(error).__name__}: {text_of(error)}"
