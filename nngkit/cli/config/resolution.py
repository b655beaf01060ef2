"""Precedence of sources: the value of each setting that holds, and where it comes from.

Reads nothing by itself but the files of secrets.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from nngkit.cli.config.settings import NO, YES, Setting
from nngkit.cli.config.toml_file import TomlFile
from nngkit.cli.masking import MASK
from nngkit.cli.tokens import secret_in
from nngkit.errors import ConfigError

FLAG: Final = 0  # the ranks of sources
VARIABLE: Final = 1
FILE: Final = 2
_WORDS: Final = {"yes": YES, "true": YES, "on": YES, "1": YES, "no": NO, "false": NO, "off": NO, "0": NO}


class Found(NamedTuple):
    """A value that is set: as `texts`, `where`, and whether the command reads that variable itself."""

    texts: tuple[str, ...]
    rank: int
    where: str
    declared: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    """The values that hold: what is set, by key, and what the command is given for every setting."""

    found: Mapping[str, Found]
    arguments: argparse.Namespace


def resolve(
    parser: argparse.ArgumentParser,
    settings: Mapping[str, Setting],
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    file: TomlFile | None,
) -> Resolution:
    """Return what holds. `flags`: given on the command line, by dest, as text. Raises ConfigError.

    A wrong flag, and a setting that is required and missing, end the program, as argparse does.
    """
    found: dict[str, Found] = {}
    for key, setting in settings.items():
        if setting.action.dest in flags:
            found[key] = Found(_texts(flags[setting.action.dest]), FLAG, setting.flag)
        elif name := setting.set_variable(environ):
            text = environ[name].strip()
            texts = (text,) if setting.declared else _of_variable(setting, name, text)
            found[key] = Found(texts, VARIABLE, name, declared=not setting.own)
        elif file is not None and key in file.values:
            found[key] = Found(_of_file(setting, file.values[key], file.where(key)), FILE, file.where(key))
    _keep_one_of_each(_groups(parser, settings), found)
    for key, setting in settings.items():
        beside = found.get(f"{key}_file") if setting.secret else None
        if beside is not None and not beside.declared:
            found[key] = beside._replace(texts=(secret_in(beside.texts[0], beside.where),))
    return Resolution(found, _namespace(parser, settings, found))


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return YES if value else NO
    return tuple(value) if isinstance(value, list) else (value,)


def _of_variable(setting: Setting, name: str, text: str) -> tuple[str, ...]:
    """Return the texts in a variable: yes or no for a switch, of a list words as in a shell."""
    if setting.is_switch:
        if (meant := _WORDS.get(text.lower())) is None:
            raise ConfigError(name, f"{text!r} is neither yes nor no", text)
        return meant
    if not setting.repeats:
        return (text,)
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(name, f"{text!r}: {error}", text) from error


def _of_file(setting: Setting, value: Any, where: str) -> tuple[str, ...]:
    """Return the texts of a value of TOML."""
    if setting.is_switch:
        if not isinstance(value, bool):
            raise ConfigError(where, f"{setting.key}: {value!r} is neither true nor false", value)
        return YES if value else NO
    values = value if isinstance(value, list) and setting.repeats else [value]
    for each in values:
        if isinstance(each, bool) or not isinstance(each, str | int | float):
            wanted = "strings" if setting.repeats else "a string or a number"
            shown = MASK if setting.secret else repr(each)
            raise ConfigError(where, f"{setting.key}: {shown} is not {wanted}", value)
    return tuple(map(str, values))


def _groups(parser: argparse.ArgumentParser, settings: Mapping[str, Setting]) -> Iterable[list[str]]:
    """Yield the keys of settings of which one may be given: exclusive options; a secret, and its file."""
    keys = {id(setting.action): key for key, setting in settings.items()}
    for group in parser._mutually_exclusive_groups:
        yield [keys[id(action)] for action in group._group_actions if id(action) in keys]
    yield from ([key, f"{key}_file"] for key, setting in settings.items() if setting.secret)


def _keep_one_of_each(groups: Iterable[list[str]], found: dict[str, Found]) -> None:
    for keys in groups:
        given = [key for key in keys if key in found and found[key].texts != NO]
        best = min((found[key].rank for key in given), default=FLAG)
        kept = [key for key in given if found[key].rank == best]
        if len(kept) > 1:
            one, other = found[kept[0]].where, found[kept[1]].where
            raise ConfigError(other, f"{kept[1]}: not allowed with {kept[0]} ({one})")
        for key in given:
            if key not in kept:
                del found[key]


def _namespace(
    parser: argparse.ArgumentParser, settings: Mapping[str, Setting], found: Mapping[str, Found]
) -> argparse.Namespace:
    arguments = argparse.Namespace()
    for key, setting in settings.items():
        action, value = setting.action, setting.action.default
        set_here = found.get(key)
        if set_here is not None and not set_here.declared:
            value = _value(parser, setting, set_here)
        elif isinstance(value, str) and action.type is not None:
            value = parser._get_value(action, value)
        elif isinstance(value, list):
            value = list(value)
        setattr(arguments, action.dest, value)
    missing = [
        argparse._get_action_name(setting.action) or key
        for key, setting in settings.items()
        if setting.action.required and key not in found
    ]
    if missing:
        parser.error(f"the following arguments are required: {', '.join(missing)}")
    return arguments


def _value(parser: argparse.ArgumentParser, setting: Setting, found: Found) -> Any:
    if setting.is_switch:
        return found.texts == YES
    values = []
    for text in found.texts:
        try:
            value = parser._get_value(setting.action, text)
            parser._check_value(setting.action, value)
        except argparse.ArgumentError as error:
            if found.rank == FLAG:
                parser.error(str(error))
            named = f"{setting.key}: " if found.rank == FILE else ""
            raise ConfigError(found.where, f"{named}{error.message}", text) from error
        values.append(value)
    return values if setting.repeats else values[0]
