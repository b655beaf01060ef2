"""The helps of the cat commands, made of the table of options. Pure."""

from __future__ import annotations

import textwrap

from nngkit.cli.cat_options import GROUPS, Row, rows_of

__all__ = ["invocation", "nanocat_help", "nngcat_help", "sections"]

COLUMN = 32  # where the explanations begin
WIDTH = 100


def invocation(row: Row, command: str) -> str:
    """All the names of an option and what it takes: `--delay, -d SECS`."""
    return f"{', '.join(row.names(command))} {row.takes}".rstrip()


def sections(command: str) -> str:
    """The options of `command`, group by group, with what they mean."""
    parts = []
    for group, title in GROUPS.items():
        rows = [row for row in rows_of(command) if row.group == group]
        if rows:
            parts.append("\n".join([f"{title}:", *(_entry(row, command) for row in rows)]))
    return "\n\n".join(parts) + "\n"


def _entry(row: Row, command: str) -> str:
    names = f"  {invocation(row, command)}"
    indent = " " * COLUMN
    lines = textwrap.wrap(row.help, WIDTH - COLUMN, break_on_hyphens=False)
    if len(names) < COLUMN - 1:
        return names.ljust(COLUMN) + f"\n{indent}".join(lines)
    return f"\n{indent}".join([names, *lines])


def nngcat_help() -> str:
    """What `nngkit nngcat --help` prints."""
    return (
        "Usage: nngcat <proto> <addr>... [<fmt>] [<opts>...] [<src>]\n\n"
        "Talks to one or more peers by one of the scalability protocols, as nngcat does. Times are whole seconds.\n"
        "A long option takes its value as --name value, --name=value or --name:value, and may be cut short.\n\n"
        + sections("nngcat")
    )


def nanocat_help(program: str) -> str:
    """What `nngkit nanocat --help` prints."""
    return (
        f"Usage: {program} <protocol> <address>... [<option>...]\n\n"
        "Talks to one or more peers by one of the scalability protocols, as nanocat does. Times are seconds, with\n"
        "fractions. A long option takes its value as --name value or --name=value, and may be cut short.\n\n"
        + sections("nanocat")
    )
