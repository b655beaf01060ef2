"""Contracts: the annotations of a handler, and of an interface, are the types of bodies and replies. Pure.

::

    class Sum(msgspec.Struct):                      # or a dataclass, or builtins
        a: int
        b: int

    @server.method
    async def add(body: Sum) -> int: ...            # runs with a Sum, or not at all

    class Calc(Protocol):
        async def add(self, body: Sum) -> int: ...
        def count(self, body: int) -> AsyncIterator[int]: ...       # a stream

    await client.typed(Calc).add(Sum(2, 3))

msgspec reads and writes the types, and describes them as JSON Schema. A type for which it has no JSON Schema is not
checked, as if there were no annotation; Any and object mean that too.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from nngkit import envelope
from nngkit.calls.messages import Codec
from nngkit.calls.texts import text_of
from nngkit.errors import BadMessage, ConfigError

log = logging.getLogger("nngkit.calls")

_NATIVE: Final[dict[Codec, tuple[type, ...]]] = {"cbor": (bytes, bytearray), "json": ()}
_STREAMS: Final = (AsyncIterator, AsyncIterable, AsyncGenerator, Iterator, Iterable, Generator)
_UNTYPED: Final = (Any, object, inspect.Parameter.empty)
AROUND: Final = 6  # levels of maps around a schema, in the reply to "info"


@dataclass(frozen=True, slots=True)
class Contract:
    """Types of one method, None where there is none. `stream`: `reply` is that of its parts; `doc`: one line.

    `names`: the body's in an interface; `default`: its default there.
    """

    body: Any = None
    reply: Any = None
    stream: bool = False
    doc: str = ""
    names: tuple[str, ...] = ()
    default: Any = inspect.Parameter.empty
    native: tuple[type, ...] = field(default=(), kw_only=True)

    def read_body(self, value: Any) -> Any:
        """Return a received body as its type. Raises ValueError, which names the field."""
        return value if self.body is None else _read(value, self.body, self.native)

    def read_reply(self, value: Any, peer: str | None) -> Any:
        """Return a received reply as its type. Raises BadMessage."""
        if self.reply is None:
            return value
        try:
            return _read(value, self.reply, self.native)
        except ValueError as error:
            raise BadMessage("call reply", str(error), peer) from error

    def write(self, value: Any) -> Any:
        """Return a value as what a codec carries. Raises TypeError, ValueError; RecursionError for a cycle."""
        return msgspec.to_builtins(value, builtin_types=self.native, str_keys=True)

    def check_body(self, value: Any) -> Any:
        """Return a body of a program as what a codec carries. Raises TypeError, which names the field."""
        plain = self.write(value)
        try:
            self.read_body(plain)
        except ValueError as error:
            raise TypeError(str(error)) from error
        return plain

    def described(self) -> dict[str, Any]:
        """Return it for the reply to "info": JSON Schemas."""
        found: dict[str, Any] = {"doc": self.doc} if self.doc else {}
        if self.stream:
            found["stream"] = True
        for name in ("body", "reply"):
            if (kind := getattr(self, name)) is not None:
                found[name] = _without_infinities(msgspec.json.schema(kind))
        return found


def _read(value: Any, kind: Any, native: tuple[type, ...]) -> Any:
    try:
        return msgspec.convert(value, kind, builtin_types=native, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(_words(str(error))) from None
    except Exception as error:  # of a class's own check, which msgspec passes on unless it is a ValueError or TypeError
        raise ValueError(f"{type(error).__name__}: {text_of(error)}") from error


def _words(text: str) -> str:
    """Return msgspec's text with the place first: "field a.0: expected int, got str"."""
    what, _, place = text.partition(" - at `")
    what = what.replace("`", "")
    what = what[:1].lower() + what[1:]
    key, _, place = place.rstrip("`").rpartition("` in `")
    where = place.removeprefix("$").removeprefix(".")
    if key:
        what = f"{key}: {what}"
    return f"field {where}: {what}" if where else what


def _without_infinities(schema: Any) -> Any:
    """Return a JSON Schema without the defaults and limits that JSON has no number for."""
    if isinstance(schema, list):
        return [_without_infinities(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    finite = {name: each for name, each in schema.items() if not isinstance(each, float) or math.isfinite(each)}
    return {name: _without_infinities(each) for name, each in finite.items()}


def contract_of(function: Callable[..., Any], codec: Codec | None, stream: bool) -> Contract | None:
    """Return the contract of a handler; None if nothing is annotated that can be checked."""
    if codec is None:
        return None
    inner = _defined(inspect.unwrap(_defined(function)))
    doc = (inspect.getdoc(inner) or "").partition("\n")[0] if inspect.isroutine(inner) else ""
    first = next(iter(_parameters(function)), "")
    body, result = _kind(_hint(inner, first)), _hint(inner, "return")
    reply = _kind(_item(result) if stream else result)
    if body is None and reply is None and not doc:
        return None
    return Contract(body, reply, stream, doc, native=_NATIVE[codec])


def _defined(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        return type(function).__call__
    return function


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin without a signature
        return []


def _hint(function: Callable[..., Any], name: str) -> Any:
    """Return the annotation of a parameter, or of "return"; None without one, or if it cannot be resolved.

    Each is resolved by itself: others, such as Calling, may be imported for type checkers only.
    """
    told = getattr(function, "__annotations__", {})
    if name not in told:
        return None
    alone = SimpleNamespace(__annotations__={name: told[name]})
    try:
        return get_type_hints(alone, getattr(function, "__globals__", None), include_extras=True)[name]
    except (NameError, TypeError, AttributeError) as error:
        of = getattr(function, "__qualname__", function)
        log.warning("%s: the annotation of %r is not checked, as it cannot be resolved: %s", of, name, error)
        return None


def _kind(kind: Any) -> Any:
    """Return a type that can be checked; None for any other."""
    if kind is None or kind in _UNTYPED:
        return None
    try:
        envelope.encode(msgspec.json.schema(kind), depth=AROUND)
    except NameError as error:  # of a field whose type is imported for type checkers only
        log.warning("%r is not checked, as a field cannot be resolved: %s", kind, error)
        return None
    except (TypeError, ValueError, RecursionError):
        return None
    return kind


def _streams(kind: Any) -> bool:
    return (get_origin(kind) or kind) in _STREAMS


def _item(kind: Any) -> Any:
    arguments = get_args(kind)
    return arguments[0] if arguments and _streams(kind) else None


def interface_methods(interface: Callable[..., Any], codec: Codec | None) -> dict[str, Contract]:
    """Return the methods of an interface, with their contracts. Raises ConfigError."""
    if codec is None:
        raise ConfigError("typed", "needs a codec: codec='cbor' or 'json', at the server too")
    methods = {}
    for name, function in inspect.getmembers(interface, inspect.isfunction):
        if name.startswith("_"):
            continue
        parameters = dict(list(inspect.signature(function).parameters.items())[1:])
        names = tuple(parameters)
        if len(names) > 1:
            raise ConfigError(
                f"{getattr(interface, '__name__', interface)}.{name}",
                "a method has one argument, the body, or none",
                function,
            )
        result = _hint(function, "return")
        stream = inspect.isasyncgenfunction(function) or (
            not inspect.iscoroutinefunction(function) and _streams(result)
        )
        body = _kind(_hint(function, names[0])) if names else None
        reply = _kind(_item(result) if stream else result)
        default = parameters[names[0]].default if names else inspect.Parameter.empty
        methods[name] = Contract(body, reply, stream, names=names, default=default, native=_NATIVE[codec])
    if not methods:
        raise ConfigError("typed", f"{interface!r} has no methods", interface)
    return methods


class Typed:
    """Methods of an interface as calls of a client. `request(body, method)` and `stream(body, method)` make them."""

    def __init__(
        self,
        interface: object,
        methods: dict[str, Contract],
        request: Callable[..., Any],
        stream: Callable[..., Any],
    ) -> None:
        self._interface = interface
        for name, contract in methods.items():
            make = partial(_begin, stream if contract.stream else request, name, contract)
            make.__doc__ = contract.doc
            setattr(self, name, make)

    def __repr__(self) -> str:
        return f"<calls of {self._interface!r}>"


def _begin(make: Callable[..., Any], method: str, contract: Contract, *given: Any, **named: Any) -> Any:
    body = [*given, *named.values()]
    if not body and contract.default is not inspect.Parameter.empty:
        body = [contract.default]
    if len(body) != len(contract.names) or not named.keys() <= set(contract.names):
        raise TypeError(f"{method}() takes {', '.join(contract.names) or 'no argument'}")
    return make(contract.check_body(body[0]) if body else None, method, contract)


async def read_parts(stream: Any, contract: Contract) -> AsyncIterator[Any]:
    """Yield the parts of a reply as their type."""
    async with stream:
        async for part in stream:
            yield contract.read_reply(part, None)


async def read_reply(reply: Awaitable[Any], contract: Contract) -> Any:
    """Return a reply's body as its type."""
    found = await reply
    return contract.read_reply(found.body, found.provider or None)
