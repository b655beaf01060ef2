"""Random calls of one pure part, and a record of what it did: for parts whose simulations are polite.

A simulated network sends what real peers send, at times that are never quite equal. Here messages are drawn from their
declarations, with few ids and small numbers, and time stands still or goes to the very moment of the next wake-up: so
limits are met exactly, messages are stale, repeated or of a stranger, and void ones are frequent. What the part
returns, sends and counts is compared with the record of an earlier version::

    python -m tests.driving             # writes the record anew, if a change is meant
    python -m tests.driving crew 3      # prints the steps of one drive, to compare them with another version's

A digest of each hundred steps is kept, so a difference says where it begins.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias
from unittest.mock import patch

from msgspec import Struct
from msgspec import inspect as types
from msgspec.structs import replace

from nngkit.errors import NngkitError

RECORD: Final = Path(__file__).parent / "driven.json"
PART: Final = 100  # steps of one digest
STEPS: Final = (0.0, 0.0, 0.0, 0.0, 1 / 64, 1 / 64, 1 / 16, 1 / 4)  # seconds between calls: sums of them are exact
_UNSTABLE: Final = re.compile(r"frozenset\(\{(.*?)\}\)| at 0x[0-9a-f]+")  # differs between processes
NUMBERS: Final = (0, 1, 1, 2, 2, 3, 4, 5)


class Drive:
    """One sequence of calls.

    `texts`: values of fields by name, "*" for all others of text; `drawers`: of classes whose fields depend on each
    other; `remembers`: messages may be drawn again.
    """

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now = 64.0
        self.texts: dict[str, Sequence[Any]] = {}
        self.drawers: dict[type, Callable[[], Any]] = {}
        self.digests: list[str] = []
        self._digest = sha256()
        self.steps = 0
        self._trace = trace
        self.remembers = True
        self._last: dict[type, list[Any]] = {}

    def go_on(self, wake_at: float) -> float:
        """Let time pass, or come to a wake-up, or to a little before it."""
        chance = self.rng.random()
        if chance < 0.15 and self.now <= wake_at < self.now + 1000.0:
            self.now = wake_at if chance < 0.1 else max(self.now, wake_at - 1 / 64)
        else:
            self.now += self.rng.choice(STEPS)
        return self.now

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a method, and note what it was given, and what it returns or raises."""
        try:
            result = function(*arguments, **named)
        except (NngkitError, ValueError, LookupError) as error:
            self.note(function.__name__, arguments, named, type(error), str(error))
            return None
        self.note(function.__name__, arguments, named, result)
        return result

    def note(self, *values: Any) -> None:
        """Add to the digest what has happened, and remember the messages, which may be drawn again."""
        text = repr(values)
        if "frozenset" in text or " at 0x" in text:
            text = _UNSTABLE.sub(lambda found: str(sorted(found[1].split(", "))) if found[1] else "", text)
        if self._trace:
            sys.stdout.write(f"{self.steps:5} {self.now:9.4f} {text}\n")
        self._digest.update(text.encode())
        if self.remembers:
            self._remember(values)

    def step(self) -> None:
        """Count a step."""
        self.steps += 1
        if self.steps % PART == 0:
            self.digests.append(self._digest.hexdigest()[:8])

    def ended(self) -> list[str]:
        """Return the digests of all steps."""
        return [*self.digests, self._digest.hexdigest()[:8]]

    def _remember(self, value: Any) -> None:
        if isinstance(value, Struct):
            seen = self._last.setdefault(type(value), [])
            seen.append(value)
            if len(seen) > 24:
                del seen[self.rng.randrange(24)]
            for name in value.__struct_fields__:
                self._remember(getattr(value, name))
        elif isinstance(value, list | tuple):
            for each in value[:50]:
                self._remember(each)

    # ---- what is drawn

    def seen(self, kind: type[Any]) -> list[Any]:
        """Return the last messages of a class."""
        return self._last.get(kind, [])

    @staticmethod
    def changed(message: Any, **fields: Any) -> Any:
        """Return a message with other values of some fields."""
        return replace(message, **fields)

    def message(self, *kinds: type[Any]) -> Any:
        """Return a message of one of the classes: one of the last, one a little changed, or a new one."""
        kind = self.rng.choice(kinds)
        seen = self._last.get(kind)
        chance = self.rng.random()
        if seen and chance < (0.3 if kind in self.drawers else 0.6):
            message = self.rng.choice(seen)
            if chance < 0.2 and kind not in self.drawers and message.__struct_fields__:
                name = self.rng.choice(message.__struct_fields__)
                message = replace(message, **{name: getattr(self._new(kind), name)})
            return message
        return self._new(kind)

    def _new(self, kind: type[Any]) -> Any:
        if kind in self.drawers:
            return self.drawers[kind]()
        info = types.type_info(kind)
        assert isinstance(info, types.StructType)
        return kind(**{each.name: self.value(each.type, each.name) for each in info.fields})

    def value(self, info: Any, name: str = "") -> Any:
        """Return a value of a declared type, for a field of a name."""
        rng = self.rng
        if name in self.texts and isinstance(info, types.IntType | types.FloatType | types.StrType | types.BytesType):
            return rng.choice(self.texts[name])
        match info:
            case types.Metadata():
                return self.value(info.type, name)
            case types.UnionType():
                return self.value(rng.choice(info.types), name)
            case types.BoolType():
                return rng.random() < 0.5
            case types.IntType() | types.FloatType():
                least = info.ge if info.ge is not None else info.gt + 1 if info.gt is not None else -2
                most = info.le if info.le is not None else info.lt - 1 if info.lt is not None else 1 << 53
                number = min(max(rng.choice(NUMBERS) if least >= 0 else rng.randint(-3, 5), least), most)
                return float(number) if isinstance(info, types.FloatType) else int(number)
            case types.StrType():
                return rng.choice(self.texts["*"])
            case types.BytesType():
                return b"x" * max(rng.choice(NUMBERS), info.min_length or 0)
            case types.NoneType():
                return None
            case types.AnyType():
                return rng.choice(NUMBERS)
            case types.LiteralType():
                return rng.choice(info.values)
            case types.StructType():
                return self.message(info.cls)
            case types.ListType() | types.VarTupleType() | types.FrozenSetType() | types.SetType():
                count = max(rng.choice((0, 1, 1, 2, 3)), info.min_length or 0)
                items = [self.value(info.item_type, name) for _ in range(count)]
                made = {types.ListType: list, types.VarTupleType: tuple, types.SetType: set}
                return made.get(type(info), frozenset)(items)
            case types.TupleType():
                return tuple(self.value(each, name) for each in info.item_types)
            case types.DictType():
                count = max(rng.choice((0, 1, 2)), info.min_length or 0)
                return {self.value(info.key_type, name): self.value(info.value_type, name) for _ in range(count)}
        raise TypeError(f"{name}: {info}")


def below(kind: type[Any]) -> list[type[Any]]:
    """Return the messages that derive from a base, in the order of their tags."""
    found = [message for each in kind.__subclasses__() for message in (each, *below(each))]
    return sorted((each for each in found if each.__struct_config__.tag is not None), key=_tag)


def _tag(kind: type[Any]) -> int:
    return int(kind.__struct_config__.tag)


@contextmanager
def limits(**by_module: Mapping[str, Any]) -> Iterator[None]:
    """Have constants of modules, or of the messages that they import, be small: `__` is a dot of a module's name."""
    with ExitStack() as stack:
        for path, values in by_module.items():
            module = import_module(f"nngkit.{path.replace('__', '.')}")
            for name, value in values.items():
                stack.enter_context(patch.object(module if hasattr(module, name) else module.messages, name, value))
        yield


Drives: TypeAlias = Mapping[str, tuple[Callable[[Drive], None], int]]
"""A function and a number of seeds each, by name."""


def names(drives: Drives) -> list[str]:
    """Return the names of the drives of a module."""
    return [f"{name} {seed}" for name, (_, seeds) in drives.items() for seed in range(seeds)]


def driven(drives: Drives, name: str, *, trace: bool = False) -> list[str]:
    """Return the digests of a drive."""
    which, seed = name.split()
    drive = Drive(int(seed), trace=trace)
    drives[which][0](drive)
    return drive.ended()


def recorded(name: str) -> list[str]:
    """Return the digests of the record."""
    found: list[str] = json.loads(RECORD.read_text())[name].split()
    return found


def main() -> None:
    """Print the steps of a drive, or write the record."""
    files = sorted(path.relative_to(RECORD.parent.parent) for path in RECORD.parent.rglob("test_driven_*.py"))
    modules = [import_module(".".join(path.with_suffix("").parts)) for path in files]
    if len(sys.argv) > 2:
        for module in modules:
            if sys.argv[1] in module.DRIVES:
                driven(module.DRIVES, f"{sys.argv[1]} {sys.argv[2]}", trace=True)
        return
    record = {name: " ".join(driven(each.DRIVES, name)) for each in modules for name in names(each.DRIVES)}
    RECORD.write_text(json.dumps(record, indent=0) + "\n")


if __name__ == "__main__":
    main()
