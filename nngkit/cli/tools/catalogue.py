"""The options of all commands, for man pages, completion and docs/command.md.

Those of the cat commands come from their table, those of others from their parsers, whose modules are loaded.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from typing import Final, NamedTuple

from nngkit.cli.cat.command_line import help_text as helps
from nngkit.cli.cat.command_line.option_table import FORMATS, GROUPS, options_of
from nngkit.cli.commands import SHORTHANDS, module_of

OWN_VALUES: Final = {"format": FORMATS}
CATS: Final = ("cat", "nngcat", "nanocat")  # commands whose options are in one table


class Choice(NamedTuple):
    """An option for completion: its names, the placeholder of its value, and the known values."""

    names: tuple[str, ...]
    takes: str
    help: str
    values: tuple[str, ...] = ()


def choices(command: str) -> list[Choice]:
    """Return the options of a command."""
    if command in CATS or command in SHORTHANDS:
        name = "cat" if command in SHORTHANDS else command
        options = helps.options_for(SHORTHANDS[command]) if command in SHORTHANDS else options_of(command)
        return [
            Choice(option.names(name), option.takes, option.help, OWN_VALUES.get(option.key, ())) for option in options
        ]
    found = {choice.names: choice for choice in _parsed(help_of(command))}  # actions share options
    return list(found.values())


def actions(command: str) -> dict[str, str]:
    """Return a command's actions with their summaries; empty for most commands."""
    if command in CATS or command in SHORTHANDS:
        return {}
    found: dict[str, str] = getattr(import_module(module_of(command)), "ACTIONS", {})
    return found


def words(command: str) -> dict[str, tuple[str, ...]]:
    """Return the fixed words that may follow a command ("") or its actions."""
    if command == "device":
        from nngkit.devices.kinds import KINDS

        return {"": tuple(KINDS)}
    found = {"": tuple(named)} if (named := actions(command)) else {}
    if command == "spark":
        from nngkit.spark.registry import JOBS

        found["run"] = tuple(JOBS)
    return found


def _parsed(text: str) -> Iterator[Choice]:
    """Yield the options of an argparse help: `  -h, --help  text`, or with the text on the next line."""
    for match in re.finditer(r"^  (-[^\n]*?)(?:  +|\n +)(\S[^\n]*)", text, re.MULTILINE):
        names = tuple(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", match[1]))
        takes = re.search(r" ([A-Z]+|\{(.+?)\})", match[1])
        values = tuple(takes[2].split(",")) if takes and takes[2] else ()
        if names:
            yield Choice(names, "" if takes is None else "VALUE" if values else takes[1], match[2], values)


def help_of(command: str) -> str:
    """Return the --help text of a command and of its actions."""
    if command == "nngcat":
        return helps.nngcat_help()
    if command == "nanocat":
        return helps.nanocat_help("nanocat")
    if command == "cat" or command in SHORTHANDS:
        return helps.cat_help(command)
    from nngkit.cli.config.command_parser import parser_of

    parser = parser_of(command)
    named = [each.choices.values() for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return "\n\n".join(each.format_help() for each in chain([parser], *named))


def markdown() -> str:
    """Return the table of the cat commands' options for docs/command.md."""
    lines = []
    for group, title in GROUPS.items():
        lines += [f"**{title}**", "", "| nngkit cat | nngcat | nanocat | |", "|---|---|---|---|"]
        options = [option for command in CATS for option in options_of(command) if option.group == group]
        for option in dict.fromkeys(options):
            cells = [_names(option.names(command), option.takes) for command in CATS]
            lines.append(f"| {' | '.join(cells)} | {option.help.replace('|', '/')} |")
        lines.append("")
    return "\n".join(lines)


def _names(names: tuple[str, ...], takes: str) -> str:
    return ", ".join(f"`{name} {takes}`" if takes else f"`{name}`" for name in names) or "-"
