"""Writer of the CDDL in docs/wire.md, from the declared messages.

::

    python docs/cddl.py             write the page anew
    python docs/cddl.py --check     exit with 1 if the page is stale

A block is between the marks ``<!-- cddl NAME -->`` and ``<!-- /cddl -->``; PAGES says what is in it. Comments at the
end of a line belong to people: they are kept with their rule and field.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from msgspec import NODEFAULT
from msgspec import inspect as types

from nngkit.messages import Maps, Rows

WIRE: Final = Path(__file__).with_name("wire.md")
PAGES: Final = {
    "survey": ["nngkit.discovery.messages:QUERIES", "nngkit.discovery.messages:REPLIES"],
    "questions": ["nngkit.discovery.questions.messages:QUESTIONS", "nngkit.discovery.questions.messages:ANSWERS"],
    "daemon": [
        "nngkit.discovery.queries:QUERIES",
        "nngkit.discovery.watch:QUERIES",
        "nngkit.discovery.questions.messages:ASKS",
        "nngkit.discovery.queries:REPLIES",
        "nngkit.discovery.watch:REPLIES",
        "nngkit.discovery.questions.messages:REPLIES",
    ],
    "calls": ["nngkit.calls.messages:REQUESTS", "nngkit.calls.messages:REPLIES"],
    "subscribers": [
        "nngkit.fanout.numbered.messages:HEARTBEATS",
        "nngkit.fanout.numbered.messages:REQUESTS",
        "nngkit.fanout.numbered.messages:REPLIES",
    ],
    "mesh": ["nngkit.mesh.wire:CONTROL"],
    "ingest": ["nngkit.journal.ingest:REQUESTS", "nngkit.journal.ingest:REPLIES"],
    "consumers": [
        "nngkit.fanout.durable.messages:REQUESTS",
        "nngkit.fanout.durable.messages:REPLIES",
    ],
    "documents-bus": ["nngkit.documents.sync.wire:BUS"],
    "documents-requests": ["nngkit.documents.sync.wire:REQUESTS", "nngkit.documents.sync.wire:REPLIES"],
    "outbox": ["nngkit.fanout.outbox.entries:ENTRIES"],
}
NAMED: Final = {(0, (1 << 53) - 1): "uint53", (0, (1 << 63) - 1): "uint63"}
BLOCK: Final = re.compile(r"(<!-- cddl ([\w-]+) -->\n)(.*?)(<!-- /cddl -->)", re.DOTALL)
COLUMN: Final = 40  # of the comments


class Block:
    """CDDL of some families. `told`: comments by rule and field. `done`: classes that the page has already."""

    def __init__(self, told: dict[tuple[str, str], str], done: set[type[Any]]) -> None:
        self._told = told
        self._done = done
        self._waiting: list[types.StructType | types.NamedTupleType | types.CustomType] = []
        self._used: set[str] = set()
        self.lines: list[str] = []

    def add(self, family: Maps[Any] | Rows[Any]) -> None:
        """Append the rules of a family, and those of the parts of its messages."""
        for kind in family.kinds.values():
            info = types.type_info(kind)
            assert isinstance(info, types.StructType)
            self._rule(info, list(_head(family, info)))
            while self._waiting:
                self._rule(self._waiting.pop(0), [])

    def end(self) -> None:
        """Append the names of ranges."""
        self.lines += [f"{name} = {low}..{high}" for (low, high), name in NAMED.items() if name in self._used]
        self.lines += ["seconds = number .ge 0"] if "seconds" in self._used else []

    def _rule(
        self, info: types.StructType | types.NamedTupleType | types.CustomType, head: list[tuple[str, str]]
    ) -> None:
        if info.cls in self._done:
            return
        self._done.add(info.cls)
        name = _kebab(info.cls)
        if isinstance(info, types.CustomType):
            self._line(f"{name} = {self._type(types.type_info(info.cls.form))}", name, "")
            self.lines.append("")
            return
        is_map = isinstance(info, types.StructType) and not info.array_like
        begin, end, rest = ("{", "}", ["  * tstr => any,"]) if is_map else ("[", "]", ["  * any,"])
        if isinstance(info, types.NamedTupleType):
            rest = []  # a value, which does not grow
        self._line(f"{name} = {begin}", name, "")
        for key, value in head:
            self._line(f"  {key}: {value},", name, key)
        for field in info.fields:
            if field.encode_name == "v" and head:
                continue
            optional, kind = _is_optional(info, field), self._type(field.type)
            if optional and is_map:
                kind = kind.removesuffix(" / null")  # it is left out instead
            self._line(f"  {'? ' if optional else ''}{field.encode_name}: {kind},", name, field.encode_name)
        self.lines += [*rest, end, ""]

    def _line(self, text: str, rule: str, field: str) -> None:
        comment = self._told.get((rule, field))
        self.lines.append(text if comment is None else f"{text:{COLUMN}} ; {comment}")

    def _type(self, info: types.Type) -> str:
        match info:
            case types.Metadata():
                return self._type(info.type)
            case types.StructType() | types.NamedTupleType() | types.CustomType():
                self._waiting.append(info)
                return _kebab(info.cls)
            case types.IntType():
                return self._integer(info)
            case types.FloatType():
                return self._float(info)
            case types.StrType():
                return _text("tstr", info.min_length, info.max_length, info.pattern)
            case types.BytesType():
                return _text("bstr", info.min_length, info.max_length, None)
            case types.UnionType():
                return " / ".join(self._type(each) for each in info.types)
            case types.TupleType():
                return f"[{', '.join(self._type(each) for each in info.item_types)}]"
            case types.VarTupleType() | types.ListType() | types.FrozenSetType():
                return f"[{_count(info)}{self._type(info.item_type)}]"
            case types.DictType():
                return f"{{{_count(info)}{self._type(info.key_type)} => {self._type(info.value_type)}}}"
            case types.LiteralType():
                return " / ".join(_quoted(each) for each in info.values)
            case types.EnumType():
                return " / ".join(_quoted(each.value) for each in info.cls)
            case types.NoneType():
                return "null"
            case types.BoolType():
                return "bool"
            case types.AnyType():
                return "any"
        raise TypeError(f"no CDDL for {info}")

    def _integer(self, info: types.IntType) -> str:
        low, high = info.ge, info.le if info.le is not None or info.lt is None else info.lt - 1
        if (name := NAMED.get((low, high))) is not None:  # type: ignore[arg-type]
            self._used.add(name)
            return name
        if high is None:
            return "int" if low is None else "uint" if low == 0 else f"uint .ge {low}"
        return str(low) if low == high else f"{low}..{high}"

    def _float(self, info: types.FloatType) -> str:
        limits = [(".ge", info.ge), (".gt", info.gt), (".le", info.le), (".lt", info.lt)]
        said = [f"{sign} {value:g}" for sign, value in limits if value is not None]
        if said == [".ge 0"]:
            self._used.add("seconds")
            return "seconds"
        return " ".join(["number", *said]) if len(said) < 2 else f"(number {said[0]}) {said[1]}"


def _is_optional(info: types.StructType | types.NamedTupleType, field: types.Field) -> bool:
    """Return True if a field may be left out: of a row, one that has a default; of a map, one that we leave out."""
    if field.required or isinstance(info, types.NamedTupleType) or info.array_like:
        return not field.required
    unset = field.default is NODEFAULT and field.default_factory is NODEFAULT
    return unset or (info.cls.__struct_config__.omit_defaults and field.default is not NODEFAULT)


def _head(family: Maps[Any] | Rows[Any], info: types.StructType) -> Iterator[tuple[str, str]]:
    """Yield what is before the fields of a message: version and kind."""
    if isinstance(family, Maps):
        if family.reads is not None:
            yield "v", str(family.reads) if family.reads == 1 else f"1..{family.reads}"
        if info.tag is not None:
            yield family.key, _quoted(info.tag)
        return
    if family.version is not None:
        yield "version", str(family.version)
    yield "kind", _quoted(info.tag)


def _kebab(kind: type[Any]) -> str:
    name = kind.__name__.lstrip("_").removeprefix("Wire")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _text(kind: str, least: int | None, most: int | None, pattern: str | None) -> str:
    size = "" if most is None else f" .size {most}" if least == most else f" .size ({least or 0}..{most})"
    if pattern is None or "(?" in pattern:  # expressions of CDDL look neither ahead nor behind
        return kind + size
    return f'({kind}{size}) .regexp "{pattern.removeprefix("^").removesuffix("$").removesuffix(chr(92) + "Z")}"'


def _count(info: Any) -> str:
    least, most = info.min_length or 0, info.max_length
    return f"{least or ''}* " if most is None else f"{least}*{most} "


def _comments(block: str) -> dict[tuple[str, str], str]:
    """Return the comments of a block by rule and field."""
    told, rule = {}, ""
    for line in block.splitlines():
        if begun := re.match(r"([\w-]+) = ", line):
            rule = begun[1]
        field = re.match(r"  (?:\? )?([\w-]+): ", line)
        comment = re.search(r" ; (.*)$", line)
        if comment is not None:
            told[rule, field[1] if field else ""] = comment[1]
    return told


def _written(found: re.Match[str], done: set[type[Any]]) -> str:
    block = Block(_comments(found[3]), done)
    for place in PAGES[found[2]]:
        module, name = place.split(":")
        families = getattr(import_module(module), name)
        for family in families.values() if isinstance(families, dict) else [families]:
            block.add(family)
    block.end()
    return "\n".join([found[1] + "```cddl", *block.lines]).rstrip() + "\n```\n" + found[4]


def page(text: str) -> str:
    """Return the page with its blocks written anew."""
    done: set[type[Any]] = set()
    return BLOCK.sub(lambda found: _written(found, done), text)


def main(arguments: list[str]) -> int:
    """Write the page, or check it; return the exit code."""
    text = WIRE.read_text()
    new = page(text)
    if arguments == ["--check"]:
        if new != text:
            print("docs/wire.md is stale: python docs/cddl.py writes it anew", file=sys.stderr)
        return int(new != text)
    WIRE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
