"""A TOML file of settings: keys and values, and the line of each key, for errors and `--check`.

tomllib keeps no positions; `key_lines` finds them in a text that tomllib has accepted.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nngkit.cli.suggestions import did_you_mean
from nngkit.errors import ConfigError

MOST: Final = 1 << 20  # bytes; far more than any file of settings, and no device that never ends
_TOKEN: Final = re.compile(
    r'"""(?:\\.|(?!""").)*"{3,5}|\'\'\'(?:(?!\'\'\').)*\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}=\n]|[^"\'#\[\]{}=\n]+',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class TomlFile:
    """Content of a file: values by key, and the line of each."""

    path: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def where(self, key: str) -> str:
        """Return FILE:LINE of a key."""
        return f"{self.path}:{self.lines[key]}"


def read(path: str, what: str, known: Mapping[str, object]) -> TomlFile:
    """Read a file whose keys are `known`. Raises ConfigError: with `what` if it cannot be read, else FILE:LINE."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST + 1)
        if len(data) > MOST:
            raise ConfigError(what, f"{path}: over {MOST} bytes", path)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(what, f"{path}: {getattr(error, 'strerror', None) or error}", path) from error
    text = text.replace("\r\n", "\n")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"^(.*) \(at line (\d+), column (\d+)\)$", str(error))
        if place is None:
            raise ConfigError(f"{path}:{text.count(chr(10)) + 1}", str(error), path) from error
        raise ConfigError(f"{path}:{place[2]}", f"{place[1]} (column {place[3]})", path) from error
    except RecursionError as error:
        raise ConfigError(what, f"{path}: nested too deeply", path) from error
    file_read = TomlFile(path, values, key_lines(text))
    for key in values:
        if key not in known:
            meant = did_you_mean(key, known)
            raise ConfigError(file_read.where(key), f"no setting {key!r}{meant} (see --print-config)", key)
        if _has_nul(values[key]):
            raise ConfigError(file_read.where(key), f"{key}: a setting has no NUL", key)
    return file_read


def _has_nul(value: Any) -> bool:
    """Return True for a text with a NUL, or several with one: no option or variable could have it, and no path."""
    if isinstance(value, dict):
        return any(map(_has_nul, (*value, *value.values())))
    return any(map(_has_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def key_lines(text: str) -> dict[str, int]:
    """Return the line of each top-level key of valid TOML, also of tables.

    >>> key_lines('a = 1\\n"b" = [\\n  "c = 2",\\n]\\nd.e = 3')
    {'a': 1, 'b': 2, 'd': 5}
    """
    found: dict[str, int] = {}
    line, depth, start, table = 1, 0, "", False
    for token in _TOKEN.findall(text):
        if token == "\n":
            if depth == 0:
                start, table = "", False
        elif token[0] == "#":
            continue
        elif token in "[{":
            table = table or (not start.strip() and depth == 0)  # a header: what it names follows
            depth += 1
        elif token in "]}":
            depth -= 1
            if table and depth == 0:
                found.setdefault(_first(start), line)
                table, start = False, "="
        elif token == "=" and depth == 0 and "=" not in start:
            found.setdefault(_first(start), line)
            start = "="
        elif table or (depth == 0 and not start.startswith("=")):
            start += token
        line += token.count("\n")
    return found


def _first(dotted: str) -> str:
    """Return the first part of a key, which may be quoted and dotted."""
    return next(iter(tomllib.loads(f"{dotted.strip()} = 0")))
