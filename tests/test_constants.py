"""The numbers of the pure modules are those that were recorded: limits, sizes, kinds on the wire, defaults of options.

Peers of other versions and the docs rely on most of them. A number that is changed on purpose is recorded anew:
`python -m tests.test_constants`. Seconds and ratios are left out, as nothing relies on their exact values.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.mutate import module_of, pure_files

RECORD: Final = Path(__file__).parent / "constants.json"


def plain(value: object) -> Any:
    """Return a number, or what contains nothing but numbers and texts, as JSON has it; None for all else."""
    match value:
        case bool() | int() | bytes():
            return repr(value)
        case tuple() | list() if value and all(isinstance(each, int | bytes) for each in value):
            return repr(value)
        case frozenset() | set() if value and all(isinstance(each, int) for each in value):
            return repr(sorted(value))
        case Mapping() if value and all(isinstance(each, int) for each in (*value.values(),)):
            return repr(sorted((str(key), int(each)) for key, each in value.items()))
    return None


def numbers(name: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a module's constants, and of the defaults of its dataclasses."""
    module = importlib.import_module(name)
    source = Path(str(module.__file__)).read_text()
    for key, value in vars(module).items():
        is_own = key.isupper() and re.search(rf"^[A-Z_0-9, ]*\b{key}\b[^=\n]*=", source, re.MULTILINE)
        if is_own and (found := plain(value)) is not None:
            yield key, found
        if isinstance(value, type) and value.__module__ == name and dataclasses.is_dataclass(value):
            for each in dataclasses.fields(value):
                if (found := plain(each.default)) is not None:
                    yield f"{key}.{each.name}", found


def all_numbers() -> dict[str, dict[str, str]]:
    """Return the numbers of all modules that have some."""
    found = {name: dict(sorted(numbers(name))) for name in sorted(map(module_of, pure_files()))}
    return {name: each for name, each in found.items() if each}


def test_numbers_are_those_that_were_recorded() -> None:
    assert all_numbers() == json.loads(RECORD.read_text())


if __name__ == "__main__":
    RECORD.write_text(json.dumps(all_numbers(), indent=1) + "\n")
