"""Messages declared as classes: a field carries its type and limits, and one reader and one writer serve all of them.

A message is a row or a map of what `envelope` decodes. A row is an array that begins with its kind::

    class Message(Row, frozen=True): ...

    class Survey(Message, frozen=True, tag=4):
        epoch: Natural
        term: Natural

    KINDS: Final = Rows[Message]("election message", Message)

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
from abc import ABC
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Generic, TypeAlias, TypeVar, cast

from msgspec import NODEFAULT, UNSET, Meta, Struct, ValidationError, convert, field, msgpack, to_builtins
from msgspec import inspect as types
from msgspec.structs import asdict, astuple

from nngkit import envelope
from nngkit.errors import BadMessage

MOST_NUMBER: Final = (1 << 53) - 1
"""Greatest integer that every reader of CBOR has exactly, a browser's among them."""
ADDRESS: Final = {"text": "address"}
"""`extra` of text that is an address: printable, with a space only in a path."""
ANY_TEXT: Final = {"text": "any"}
"""`extra` of text that may have control characters, such as line ends."""


def always(value: Any, name: str | None = None) -> Any:
    """Return the default of a field that is written even if it has that value, in a class with `omit_defaults`."""
    return field(default_factory=lambda: value, name=name)


def packed(most: int) -> dict[str, Any]:
    """Return the `extra` of a value that has at most `most` bytes as CBOR."""
    return {"packed": most}


Natural: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_NUMBER)]
Natural63: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Integer: TypeAlias = Annotated[int, Meta(ge=-MOST_NUMBER, le=MOST_NUMBER)]
Flag: TypeAlias = bool
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Address: TypeAlias = Annotated[str, Meta(max_length=256, extra=ADDRESS)]


class Row(Struct, frozen=True, array_like=True):
    """A message, or a part of one, that is an array. A message has its kind as `tag`."""


class Fields(Struct, frozen=True):
    """A message, or a part of one, that is a map."""


class Wired(ABC):
    """Type of a field whose value is of another class, which is registered: `Name.register(dict)`.

    `form`: the declared type of what is on the wire.
    """

    form: ClassVar[Any]

    @staticmethod
    def read(value: Any) -> Any:
        """Return the value of what was decoded. Raises ValueError."""
        raise NotImplementedError

    @staticmethod
    def write(value: Any) -> Any:
        """Return the items on the wire for a value."""
        raise NotImplementedError


def _read_wired(kind: type[Wired], value: Any) -> Any:
    return kind.read(value)


M = TypeVar("M")
_Check: TypeAlias = Callable[[Any], None]


class Rows(Generic[M]):
    """Reader and writer of rows. `what`: their name in errors. `kinds`: classes with tags, or the base of such classes.

    `version`: an item before the kind, which then is text; None: the messages have no version.
    """

    def __init__(self, what: str, *kinds: type[Any], version: int | None = None) -> None:
        self.what = what
        self.kinds = {kind.__struct_config__.tag: kind for base in kinds for kind in _tagged(base)}
        self.version = version
        self._readers = {tag: _Reader(kind) for tag, kind in self.kinds.items()}
        self._writers = {kind: _row_writer(_info(kind)) for kind in self.kinds.values()}

    def pack(self, message: M) -> list[Any]:
        """Return the row of a message, for `envelope.encode`."""
        row = self._writers[type(message)](message)
        return row if self.version is None else [self.version, *row]

    def encode(self, message: M) -> bytes:
        """Return the bytes of a message."""
        return envelope.encode(self.pack(message))

    def parse(self, row: object, peer: str | None = None) -> M | None:
        """Return the message in a decoded row; None for a kind of a later version. Raises BadMessage."""
        of: type = int
        if self.version is not None:
            if type(row) is not list or not row or row[0] != self.version:
                raise BadMessage(self.what, f"it is not an array that begins with version {self.version}", peer)
            of, row = str, row[1:]
        if type(row) is not list or not row or type(row[0]) is not of:
            raise BadMessage(self.what, "it is not an array that begins with a kind", peer)
        reader = self._readers.get(row[0])
        if reader is None:
            if type(row[0]) is int and row[0] < 0:
                raise BadMessage(self.what, f"its kind is {row[0]}", peer)
            return None
        message: M = reader.read(row, self.what, peer)
        return message

    def decode(self, data: bytes, peer: str | None = None, *, limit: int = envelope.CONTROL_LIMIT) -> M:
        """Return the message in at most `limit` bytes, of a kind that is known. Raises BadMessage, TooLarge."""
        row = envelope.decode(data, what=self.what, limit=limit, peer=peer)
        message = self.parse(row, peer)
        if message is None:
            kind = row[0] if self.version is None else row[1]
            raise BadMessage(self.what, f"unknown kind {envelope.shown(kind)!r}", peer)
        return message


def _tagged(kind: type[Any]) -> list[type[Any]]:
    """Return a class with a tag, or those below a base without one, in the order of their tags."""
    if kind.__struct_config__.tag is not None:
        return [kind]
    below = [each for base in kind.__subclasses__() for each in _tagged(base)]
    return sorted(below, key=lambda each: each.__struct_config__.tag)


class Maps(Generic[M]):
    """Reader and writer of maps. `kinds`: one class, or several with tags. `limit`: bytes of an encoded message.

    `version`: what `v` says; None: the messages have no version. A class may declare `v` itself; then its default is
    written. `reads`: the highest version that is read, if it is another. `version_what`: the name in the error about a
    version that is too new.
    """

    def __init__(
        self,
        what: str,
        *kinds: type[Any],
        version: int | None = None,
        reads: int | None = None,
        limit: int | None = envelope.CONTROL_LIMIT,
        version_what: str | None = None,
    ) -> None:
        self.what = what
        self.kinds = {kind.__struct_config__.tag: kind for kind in kinds}
        self.reads = reads or version
        self.limit = limit
        self.key = kinds[0].__struct_config__.tag_field or "type"
        self._version_what = version_what or what
        self._readers = {tag: _Reader(kind) for tag, kind in self.kinds.items()}
        self._writers = {kind: _Writer(kind, version) for kind in kinds}

    def pack(self, message: M) -> dict[str, Any]:
        """Return the map of a message."""
        return self._writers[type(message)].fields(message)

    def encode(self, message: M, limit: int | None = None) -> bytes:
        """Return the bytes of a message. Raises TooLarge; TypeError or ValueError as `envelope.encode`."""
        return envelope.encode(self.pack(message), limit=limit or self.limit)

    def parse(self, value: object, peer: str | None = None) -> M:
        """Return the message in a decoded map. Raises BadMessage."""
        message = self.parse_known(value, peer)
        if message is not None:
            return message
        fields = cast(dict[str, Any], value)
        self._check_version(fields, peer)
        if self.key not in fields:
            raise BadMessage(self.what, f"field {self.key!r} is missing", peer)
        raise BadMessage(self.what, f"unknown {self.key} {envelope.shown(fields[self.key])!r}", peer)

    def parse_known(self, value: object, peer: str | None = None) -> M | None:
        """Return the message in a decoded map; None for a kind that is none of these. Raises BadMessage."""
        fields = envelope.as_map(value, what=self.what, peer=peer)
        tag = None if None in self._readers else fields.get(self.key)
        reader = self._readers.get(tag) if tag is None or type(tag) is str else None
        if reader is None:
            return None
        self._check_version(fields, peer)
        message: M = reader.read(fields, self.what, peer)
        return message

    def _check_version(self, fields: dict[str, Any], peer: str | None) -> None:
        version = fields.get("v")
        if self.reads is not None and not (type(version) is int and 1 <= version <= self.reads):
            envelope.check_version(fields, self.reads, what=self._version_what, peer=peer)

    def decode(self, data: bytes, peer: str | None = None, *, limit: int | None = None) -> M:
        """Return the message in bytes from a peer. Raises BadMessage, TooLarge."""
        return self.parse(self._value(data, peer, limit), peer)

    def decode_known(self, data: bytes, peer: str | None = None) -> M | None:
        """Return the message in bytes from a peer; None for a kind that is none of these. Raises as `decode`."""
        return self.parse_known(self._value(data, peer, None), peer)

    def _value(self, data: bytes, peer: str | None, limit: int | None) -> object:
        most = limit or self.limit or envelope.CONTROL_LIMIT
        return envelope.decode(data, what=self.what, limit=most, peer=peer)


class _Reader:
    """Reader of one class."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self._check = _struct(_info(kind), ())
        # bytes are bytes, never base64 in text; said only where it matters, as it costs more than small messages do
        self._native: tuple[type, ...] | None = (bytes,) if _has(types.type_info(kind), types.BytesType) else None
        self._hook = _read_wired if _has(types.type_info(kind), types.CustomType) else None

    def read(self, value: Any, what: str, peer: str | None) -> Any:
        kind = self._kind
        try:
            if self._native:
                message = convert(value, kind, builtin_types=self._native, dec_hook=self._hook)
            else:
                message = convert(value, kind, dec_hook=self._hook)
            if self._check is not None:
                self._check(message)
        except ValidationError as error:
            raise BadMessage(what, _reason(kind, str(error)), peer) from None
        except ValueError as error:
            raise BadMessage(what, f"{kind.__name__}: {error}", peer) from None
        return message


class _Writer:
    """Writer of one class of maps. `version`: the value of `v`, unless the class declares it."""

    def __init__(self, kind: type[Any], version: int | None) -> None:
        info = _info(kind)
        config = kind.__struct_config__
        said = [each.default for each in info.fields if each.encode_name == "v"]
        version = said[0] if said else version
        self._head = ({} if version is None else {"v": version}) | ({config.tag_field: info.tag} if info.tag else {})
        self._defaults = tuple(
            (f.encode_name, f.default) for f in info.fields if config.omit_defaults and not f.required
        )
        self._sets = _has(info, types.FrozenSetType)
        # Values of any type are passed on as they are: to_builtins would make text of dates, and of bytearray.
        self._as_they_are = _has(info, types.AnyType)

    def fields(self, message: Any) -> dict[str, Any]:
        written: dict[str, Any]
        if self._as_they_are:
            written = asdict(message)
        elif self._sets:
            written = to_builtins(message, builtin_types=(bytes,), order="deterministic")
        else:
            written = to_builtins(message, builtin_types=(bytes,))
        for name, default in self._defaults:  # msgspec leaves out only what is the same object
            if name in written and written[name] == default:
                del written[name]
        return self._head | written


_CHANGED: Final = (types.StructType, types.NamedTupleType, types.EnumType, types.FrozenSetType, types.SetType)
_builtins: Final = partial(to_builtins, builtin_types=(bytes,))


def _writer(info: types.Type) -> Callable[[Any], Any] | None:
    """Return a writer of the values of a declared type; None if they need no change.

    msgspec writes a row whose parts need a change, unless it cannot, or they are lists with bytes, at each of which it
    would look.
    """
    while isinstance(info, types.Metadata):
        info = info.type
    match info:
        case types.CustomType():
            return cast(type[Wired], info.cls).write
        case types.NamedTupleType():
            return list
        case types.VarTupleType():
            item = _writer(info.item_type)
            return None if item is None else lambda values: list(map(item, values))
        case types.UnionType():
            found = {_type_of(each): write for each in info.types if (write := _writer(each)) is not None}
            return _union_writer(found) if found else None
        case types.StructType():
            return _row_writer(info) if info.array_like else _map_writer(info)
    return _builtins if _has(info, _CHANGED) else None


def _union_writer(writers: dict[type[Any], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def written(value: Any) -> Any:
        write = writers.get(type(value))
        return value if write is None else write(value)

    return written


def _row_writer(info: types.StructType) -> Callable[[Any], list[Any]]:
    tag = [] if info.tag is None else [info.tag]
    found = [(at, f.type, _writer(f.type)) for at, f in enumerate(info.fields, len(tag))]
    changed = [(at, kind, write) for at, kind, write in found if write is not None]
    lists = all(isinstance(kind, types.VarTupleType) and _has(kind, types.BytesType) for _, kind, _ in changed)
    if not lists and not _has(info, (types.CustomType, types.NamedTupleType)):
        return _builtins
    writers = [(at, write) for at, _, write in changed]

    def written(message: Any) -> list[Any]:
        row = [*tag, *astuple(message)]
        for at, write in writers:
            row[at] = write(row[at])
        return row

    return written


def _map_writer(info: types.StructType) -> Callable[[Any], dict[str, Any]]:
    omits = info.cls.__struct_config__.omit_defaults
    fields = [(f.name, f.encode_name, f.default if omits else NODEFAULT, _writer(f.type)) for f in info.fields]

    def written(message: Any) -> dict[str, Any]:
        found = {}
        for name, key, default, write in fields:
            value = getattr(message, name)
            if value is not UNSET and value != default:
                found[key] = value if write is None or value is None else write(value)
        return found

    return written


def _info(kind: type[Any]) -> types.StructType:
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    return info


def _has(info: types.Type, wanted: type[types.Type] | tuple[type[types.Type], ...]) -> bool:
    """Return True if a declared type is, or contains, a `wanted` one."""
    if isinstance(info, wanted):
        return True
    if isinstance(info, types.StructType | types.NamedTupleType):
        return any(_has(each.type, wanted) for each in info.fields)
    inside = [getattr(info, name, None) for name in ("type", "item_type", "key_type", "value_type")]
    inside += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    return any(isinstance(each, types.Type) and _has(each, wanted) for each in inside)


_PLACE: Final = re.compile(r" - at `\$(?:\[(\d+)\]|\.(\w+))?(.*)`$")


def _reason(kind: type[Any], text: str) -> str:
    """Return msgspec's text with the name of the field in place of its number."""
    found = _PLACE.search(text)
    if found is None:
        return f"{kind.__name__}: {text}"
    number, name, inside = found.groups()
    if number is not None:
        fields, first = kind.__struct_encode_fields__, kind.__struct_config__.tag is not None
        at = int(number) - first
        name = fields[at] if 0 <= at < len(fields) else number
    return f"{kind.__name__}: field {f'{name}{inside}'!r}: {text[: found.start()]}"


# What an annotation says beyond msgspec's own limits is compiled, once for each class, into a function that looks only
# at fields of which it says something.


def _struct(info: types.StructType, inside: tuple[type[Any], ...]) -> _Check | None:
    if info.cls in inside:
        raise TypeError(f"{info.cls.__name__} contains itself")
    found = [(each.name, _check_of_field(each, (*inside, info.cls))) for each in info.fields]
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


def _check_of_field(field: types.Field, inside: tuple[type[Any], ...]) -> _Check | None:
    check = _check(field.type, inside)
    if check is None or field.required or field.default is not NODEFAULT or field.default_factory is not NODEFAULT:
        return check  # only a field whose default is UNSET may be left out and has no default here

    def unless_unset(value: Any) -> None:
        if value is not UNSET:
            check(value)

    return unless_unset


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
        if value is not None and not _surely_within(value, most) and len(envelope.encode(value)) > most:
            raise ValueError(f"it has over {most} bytes")
        if check is not None:
            check(value)

    return limited


def _surely_within(value: Any, most: int) -> bool:
    """Return True without writing the CBOR: it has at most twice the bytes of MessagePack, and costs 20 times more."""
    try:
        return 2 * len(msgpack.encode(value)) <= most
    except OverflowError:  # an integer of more than 64 bits
        return False


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
