"""Every command with its options, for what is made of them: man pages, completion, docs/command.md.

The cat commands' come from their table, the others' from their parsers, whose modules are brought in for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Final, NamedTuple

from nngkit.cli.cat import help_text as helps
from nngkit.cli.cat.option_table import FORMATS, GROUPS, SHORTHANDS, rows_of
from nngkit.cli.commands import COMMANDS, module_of

__all__ = ["Choice", "actions", "choices", "help_of", "markdown", "words"]

OWN_VALUES: Final = {"format": FORMATS}


class Choice(NamedTuple):
    """An option as a completion offers it: its names, whether a value follows, which ones if that is known."""

    names: tuple[str, ...]
    takes: str
    help: str
    values: tuple[str, ...] = ()


def choices(command: str) -> list[Choice]:
    """The options of a command."""
    if command in ("cat", "nngcat", "nanocat"):
        return [
            Choice(row.names(command), row.takes, row.help, OWN_VALUES.get(row.key, ())) for row in rows_of(command)
        ]
    if command in SHORTHANDS:
        rows = helps.rows_for(SHORTHANDS[command])
        return [Choice(row.names("cat"), row.takes, row.help, OWN_VALUES.get(row.key, ())) for row in rows]
    found = {choice.names: choice for choice in _parsed(help_of(command))}  # actions share many
    return list(found.values())


def actions(command: str) -> dict[str, str]:
    """What a command can be told to do, with what it is; nothing for most."""
    if command in ("cat", "nngcat", "nanocat") or command in SHORTHANDS:
        return {}
    found: dict[str, str] = getattr(import_module(module_of(command)), "ACTIONS", {})
    return found


def words(command: str) -> dict[str, tuple[str, ...]]:
    """Return what may stand behind a command ("") and behind its actions, where that is one of a few words."""
    if command == "device":
        from nngkit.devices.plan import KINDS

        return {"": tuple(KINDS)}
    found = {"": tuple(named)} if (named := actions(command)) else {}
    if command == "spark":
        from nngkit.spark.jobs.table import JOBS

        found["run"] = tuple(JOBS)
    return found


def _parsed(text: str) -> Iterator[Choice]:
    """The options in a help of argparse's: `  -h, --help  what it is`, or with its explanation on the next line."""
    for match in re.finditer(r"^  (-[^\n]*?)(?:  +|\n +)(\S[^\n]*)", text, re.MULTILINE):
        names = tuple(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", match[1]))
        takes = re.search(r" ([A-Z]+|\{(.+?)\})", match[1])
        values = tuple(takes[2].split(",")) if takes and takes[2] else ()
        if names:
            yield Choice(names, "" if takes is None else "VALUE" if values else takes[1], match[2], values)


def help_of(command: str) -> str:
    """What its --help prints; and those of its actions."""
    if command == "nngcat":
        return helps.nngcat_help()
    if command == "nanocat":
        return helps.nanocat_help("nanocat")
    if command == "cat" or command in SHORTHANDS:
        return helps.cat_help(command)
    from nngkit.cli.options import parser_for

    module = import_module(module_of(command))
    parser = parser_for(command, COMMANDS[command], module.EPILOG)
    module.add_arguments(parser)
    own: list[str] = [each.format_help() for each in getattr(module, "parsers", list)()]
    return "\n\n".join([parser.format_help(), *own])


def markdown() -> str:
    """The table of the cat commands' options for docs/command.md."""
    lines = []
    for group, title in GROUPS.items():
        lines += [f"**{title}**", "", "| nngkit cat | nngcat | nanocat | |", "|---|---|---|---|"]
        rows = [row for command in ("cat", "nngcat", "nanocat") for row in rows_of(command) if row.group == group]
        for row in dict.fromkeys(rows):
            cells = [_names(row.names(command), row.takes) for command in ("cat", "nngcat", "nanocat")]
            lines.append(f"| {' | '.join(cells)} | {row.help.replace('|', '/')} |")
        lines.append("")
    return "\n".join(lines)


def _names(names: tuple[str, ...], takes: str) -> str:
    return ", ".join(f"`{name} {takes}`" if takes else f"`{name}`" for name in names) or "-"
