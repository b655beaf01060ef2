"""Messages declared as classes: a field carries its type and limits, and one reader and one writer serve all of them.

A message is a row or a map of what `envelope` decodes. A row is an array that begins with its kind::

    class Survey(Row, frozen=True, tag=4):
        epoch: Natural
        term: Natural

    Message: TypeAlias = Survey | Stand
    KINDS: Final = Rows[Message]("election message", Survey, Stand)

    KINDS.pack(Survey(1, 2))         ->  [4, 1, 2]
    KINDS.parse([4, 1, 2, 9], "b")   ->  Survey(1, 2)    a later version's further items are ignored
    KINDS.parse([99, 1], "b")        ->  None            a kind of a later version

A map has its version as `v`, and its kind, if there are several, as `type`::

    class Position(Fields, frozen=True, tag="position"):
        number: Natural
        age: Seconds

    QUERIES: Final = Maps[Query]("query", Position, SnapshotQuery, version=1)

    QUERIES.encode(Position(7, 0.5))  ->  bytes of {"v": 1, "type": "position", "number": 7, "age": 0.5}
    QUERIES.decode(data, "b")         ->  Position(7, 0.5)

Readers ignore further items of rows, and unknown keys, so versions can differ; a missing item takes its default, and
is an error without one. Limits are `msgspec.Meta` in the annotation: `ge` and `le` of numbers, `max_length` of arrays,
maps and bytes. The `max_length` of text counts bytes of UTF-8, and text is printable, unless the annotation has one of
`ADDRESS`, `ANY_TEXT` as `extra`; `packed(n)` bounds what a value has as CBOR. Floats are finite. A function that raises
ValueError is the `check` of a type's `extra`; of a class, for what concerns several fields, it is a method `check`.
Every error is a BadMessage that names sender, message and field. Pure: `envelope` limits size and depth before anything
is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar, cast

from msgspec import Meta, Struct, ValidationError, convert, to_builtins
from msgspec import inspect as types

from nngkit import envelope
from nngkit.errors import BadMessage

__all__ = [
    "ADDRESS",
    "ANY_TEXT",
    "MOST_NUMBER",
    "Address",
    "Fields",
    "Flag",
    "Integer",
    "Maps",
    "Natural",
    "Row",
    "Rows",
    "Seconds",
    "packed",
]

MOST_NUMBER: Final = (1 << 53) - 1
"""Greatest integer that every reader of CBOR has exactly, a browser's among them."""
ADDRESS: Final = {"text": "address"}
"""`extra` of text that is an address: printable, with a space only in a path."""
ANY_TEXT: Final = {"text": "any"}
"""`extra` of text that may have control characters, such as line ends."""


def packed(most: int) -> dict[str, Any]:
    """Return the `extra` of a value that has at most `most` bytes as CBOR."""
    return {"packed": most}


Natural: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_NUMBER)]
Integer: TypeAlias = Annotated[int, Meta(ge=-MOST_NUMBER, le=MOST_NUMBER)]
Flag: TypeAlias = bool
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Address: TypeAlias = Annotated[str, Meta(max_length=256, extra=ADDRESS)]


class Row(Struct, frozen=True, array_like=True):
    """A message, or a part of one, that is an array. A message has its kind as `tag`."""


class Fields(Struct, frozen=True):
    """A message, or a part of one, that is a map."""


M = TypeVar("M")
_Check: TypeAlias = Callable[[Any], None]


class Rows(Generic[M]):
    """Reader and writer of rows. `what`: their name in errors. `kinds`: classes with tags."""

    def __init__(self, what: str, *kinds: type[Any]) -> None:
        self.what = what
        self.kinds = {cast(int, kind.__struct_config__.tag): kind for kind in kinds}
        self._checks = {kind: _check_of(kind) for kind in kinds}

    def pack(self, message: M) -> list[Any]:
        """Return the row of a message, for `envelope.encode`."""
        row: list[Any] = to_builtins(message, builtin_types=(bytes,))
        return row

    def parse(self, row: object, peer: str | None = None) -> M | None:
        """Return the message in a decoded row; None for a kind of a later version. Raises BadMessage."""
        if type(row) is not list or not row or type(row[0]) is not int:
            raise BadMessage(self.what, "it is not an array that begins with a kind", peer)
        kind = self.kinds.get(row[0])
        if kind is None:
            if row[0] < 0:
                raise BadMessage(self.what, f"its kind is {row[0]}", peer)
            return None
        message: M = _read(row, kind, self._checks[kind], self.what, peer)
        return message


class Maps(Generic[M]):
    """Reader and writer of maps. `kinds`: one class, or several with tags. `limit`: bytes of an encoded message.

    `version`: what `v` says, and the highest that is read; None: the messages have no version.
    """

    def __init__(
        self, what: str, *kinds: type[Any], version: int | None = None, limit: int = envelope.CONTROL_LIMIT
    ) -> None:
        self.what = what
        self.kinds = {kind.__struct_config__.tag: kind for kind in kinds}
        self.version = version
        self.limit = limit
        self._checks = {kind: _check_of(kind) for kind in kinds}

    def pack(self, message: M) -> dict[str, Any]:
        """Return the map of a message."""
        fields: dict[str, Any] = to_builtins(message, builtin_types=(bytes,))
        if self.version is not None:
            fields["v"] = self.version
        return fields

    def encode(self, message: M) -> bytes:
        """Return the bytes of a message. Raises TooLarge."""
        return envelope.encode(self.pack(message), limit=self.limit)

    def parse(self, value: object, peer: str | None = None) -> M:
        """Return the message in a decoded map. Raises BadMessage."""
        fields = envelope.as_map(value, what=self.what, peer=peer)
        if self.version is not None:
            envelope.check_version(fields, self.version, what=self.what, peer=peer)
        kind = self.kinds.get(None)
        if kind is None:
            tag = envelope.field(fields, "type", str, what=self.what, peer=peer)
            kind = self.kinds.get(tag)
            if kind is None:
                raise BadMessage(self.what, f"unknown type {envelope.shown(tag)!r}", peer)
        message: M = _read(fields, kind, self._checks[kind], self.what, peer)
        return message

    def decode(self, data: bytes, peer: str | None = None) -> M:
        """Return the message in bytes from a peer. Raises BadMessage, TooLarge."""
        return self.parse(envelope.decode(data, what=self.what, limit=self.limit, peer=peer), peer)


def _read(value: Any, kind: type[Any], check: _Check | None, what: str, peer: str | None) -> Any:
    try:
        message = convert(value, kind, builtin_types=(bytes,))
        if check is not None:
            check(message)
    except ValidationError as error:
        raise BadMessage(what, _reason(kind, str(error)), peer) from None
    except ValueError as error:
        raise BadMessage(what, f"{kind.__name__}: {error}", peer) from None
    return message


_PLACE: Final = re.compile(r" - at `\$(?:\[(\d+)\]|\.(\w+))?(.*)`$")


def _reason(kind: type[Any], text: str) -> str:
    """Return msgspec's text with the name of the field in place of its number."""
    found = _PLACE.search(text)
    if found is None:
        return f"{kind.__name__}: {text}"
    number, name, inside = found.groups()
    if number is not None:
        fields, first = kind.__struct_fields__, kind.__struct_config__.tag is not None
        at = int(number) - first
        name = fields[at] if 0 <= at < len(fields) else number
    return f"{kind.__name__}: field {f'{name}{inside}'!r}: {text[: found.start()]}"


# What an annotation says beyond msgspec's own limits is compiled, once for each class, into a function that looks only
# at fields of which it says something.


def _check_of(kind: type[Any], inside: tuple[type[Any], ...] = ()) -> _Check | None:
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    return _struct(info, inside)


def _struct(info: types.StructType, inside: tuple[type[Any], ...]) -> _Check | None:
    if info.cls in inside:
        raise TypeError(f"{info.cls.__name__} contains itself")
    found = [(each.name, _check(each.type, (*inside, info.cls))) for each in info.fields]
    checks = tuple((name, check) for name, check in found if check is not None)
    own = getattr(info.cls, "check", None)
    if not callable(own):  # a field may have that name
        own = None

    def check(message: Any) -> None:
        for name, each in checks:
            try:
                each(getattr(message, name))
            except ValueError as error:
                raise ValueError(f"field {name!r}: {error}") from None
        if own is not None:
            own(message)

    return check if checks or own is not None else None


def _check(info: types.Type, inside: tuple[type[Any], ...]) -> _Check | None:
    extra: dict[str, Any] = {}
    while isinstance(info, types.Metadata):
        extra |= info.extra or {}
        info = info.type
    return extra.get("check") or _limited(_checked(info, extra, inside), extra.get("packed"))


def _checked(info: types.Type, extra: dict[str, Any], inside: tuple[type[Any], ...]) -> _Check | None:
    if isinstance(info, types.StrType):
        return _text(info.max_length, extra.get("text"))
    if isinstance(info, types.FloatType):
        return _finite
    if isinstance(info, types.StructType):
        return _struct(info, inside)
    if isinstance(info, types.UnionType):
        return _union(info, inside)
    if isinstance(info, types.VarTupleType | types.ListType | types.FrozenSetType | types.SetType):
        return _each(_check(info.item_type, inside))
    if isinstance(info, types.TupleType):
        return _tuple(tuple(_check(each, inside) for each in info.item_types))
    if isinstance(info, types.DictType):
        return _map(_check(info.key_type, inside), _check(info.value_type, inside))
    return None


def _text(most: int | None, kind: str | None) -> _Check | None:
    if most is None and kind == "any":
        return None

    def check(value: str) -> None:
        if not value.isascii() and most is not None and len(value.encode(errors="replace")) > most:
            raise ValueError(f"it has over {most} bytes")
        if kind == "any":
            return
        if not value.isprintable():
            raise ValueError("it is not printable")
        if kind == "address" and not envelope.is_address(value):
            raise ValueError("it is no address: it has a space")

    return check


def _finite(value: float) -> None:
    if not math.isfinite(value):
        raise ValueError("it is not a finite number")


def _limited(check: _Check | None, most: int | None) -> _Check | None:
    if most is None:
        return check

    def limited(value: Any) -> None:
        if value is not None and len(envelope.encode(value)) > most:
            raise ValueError(f"it has over {most} bytes")
        if check is not None:
            check(value)

    return limited


def _union(info: types.UnionType, inside: tuple[type[Any], ...]) -> _Check | None:
    found = [(_type_of(each), _check(each, inside)) for each in info.types]
    checks = {kind: check for kind, check in found if check is not None}

    def check(value: Any) -> None:
        if (each := checks.get(type(value))) is not None:
            each(value)

    return check if checks else None


def _type_of(info: types.Type) -> type[Any]:
    while isinstance(info, types.Metadata):
        info = info.type
    if isinstance(info, types.StructType):
        return info.cls
    if isinstance(info, types.NoneType):
        return type(None)
    return {
        types.StrType: str,
        types.IntType: int,
        types.FloatType: float,
        types.BoolType: bool,
        types.BytesType: bytes,
        types.VarTupleType: tuple,
        types.TupleType: tuple,
        types.ListType: list,
        types.DictType: dict,
    }.get(type(info), object)


def _each(item: _Check | None) -> _Check | None:
    if item is None:
        return None

    def check(value: Any) -> None:
        for each in value:
            item(each)

    return check


def _tuple(items: tuple[_Check | None, ...]) -> _Check | None:
    checks = tuple((at, check) for at, check in enumerate(items) if check is not None)

    def check(value: Any) -> None:
        for at, each in checks:
            each(value[at])

    return check if checks else None


def _map(key: _Check | None, item: _Check | None) -> _Check | None:
    if key is None and item is None:
        return None

    def check(value: Any) -> None:
        for name, each in value.items():
            if key is not None:
                key(name)
            if item is not None:
                item(each)

    return check
