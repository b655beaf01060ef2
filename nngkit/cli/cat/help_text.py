"""The helps of the cat commands, made of the table of options. Pure."""

from __future__ import annotations

import textwrap

from nngkit.cli.cat.option_table import GROUPS, SHORTHANDS, Row, rows_of

__all__ = ["cat_help", "invocation", "nanocat_help", "nngcat_help", "rows_for", "sections"]

COLUMN = 32  # where the explanations begin
WIDTH = 100


def invocation(row: Row, command: str) -> str:
    """All the names of an option and what it takes: `--delay, -d SECS`."""
    return f"{', '.join(row.names(command))} {row.takes}".rstrip()


def sections(command: str, protocol: str = "") -> str:
    """The options of `command`, group by group, with what they mean; those that fit `protocol`, if that is said."""
    parts = []
    for group, title in GROUPS.items():
        rows = [row for row in rows_of(command) if row.group == group and _fits(row, protocol)]
        if rows:
            parts.append("\n".join([f"{title}:", *(_entry(row, command) for row in rows)]))
    return "\n\n".join(parts) + "\n"


def rows_for(protocol: str) -> list[Row]:
    """The options of the shorthand of a protocol."""
    return [row for row in rows_of("cat") if _fits(row, protocol)]


def _fits(row: Row, protocol: str) -> bool:
    return not protocol or (row.group != "protocol" and (not row.fits or protocol in row.fits.split()))


def _entry(row: Row, command: str) -> str:
    names = f"  {invocation(row, command)}"
    indent = " " * COLUMN
    lines = textwrap.wrap(row.help, WIDTH - COLUMN, break_on_hyphens=False)
    if len(names) < COLUMN - 1:
        return names.ljust(COLUMN) + f"\n{indent}".join(lines)
    return f"\n{indent}".join([names, *lines])


EXAMPLES = {
    "cat": "nngkit cat --sub tcp://host:5556 --subscribe weather. --quoted",
    "pub": "nngkit pub --listen tcp://*:5556 --wait-peers 1 --file news.txt --lines",
    "sub": "nngkit sub tcp://host:5556 --subscribe weather. --json",
    "push": "tail -f log | nngkit push tcp://host:5555 --wait-peers 1",
    "pull": "nngkit pull --listen tcp://*:5555 --format-string '{time} {peer} {body:quoted}\\n'",
    "req": "nngkit req tcp://host:5557 --data question --recv-timeout 500ms",
    "rep": "nngkit rep --listen tcp://*:5557 --exec 'tr a-z A-Z'",
    "survey": "nngkit survey --listen tcp://*:5558 --wait-peers 3 --data 'who is there?' --expect 3",
    "respond": "nngkit respond tcp://host:5558 --exec hostname",
    "bus": "nngkit bus tcp://host:5559 --lines",
    "pair": "nngkit pair tcp://host:5560 --lines",
}


def cat_help(name: str) -> str:
    """What `nngkit cat --help` and the shorthands' print."""
    protocol = "PROTOCOL " if name == "cat" else ""
    groups = sections("cat", SHORTHANDS.get(name, ""))
    return (
        f"usage: nngkit {name} {protocol}[OPTIONS] URL ...\n\n"
        "Connects to each URL, listens at those of --listen. Options come in any order; a long one may be cut short,\n"
        "and takes its value as --name value or --name=value. Times are seconds, or have a unit: 20ms, 1.5s, 2m.\n"
        "Sent is what --data or --file says, or standard input line by line. Printed is one message a line.\n\n"
        f"{groups}\nexample: {EXAMPLES[name]}\n\n"
        "Exit codes: 0 ok, 1 less came than was expected, 2 usage, 3 cannot connect or listen, 4 timeout."
    )


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
