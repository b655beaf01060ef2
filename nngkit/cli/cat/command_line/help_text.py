"""The --help texts of the cat commands, made of the table of options. Pure."""

from __future__ import annotations

import textwrap

from nngkit.cli.cat.command_line.option_table import GROUPS, CatOption, options_of
from nngkit.cli.commands import SHORTHANDS

COLUMN = 32  # where the descriptions begin
WIDTH = 100


def invocation(option: CatOption, command: str) -> str:
    """Return the names of an option and its value: `--delay, -d SECS`."""
    return f"{', '.join(option.names(command))} {option.takes}".rstrip()


def sections(command: str, protocol: str = "") -> str:
    """Describe the options of `command` by group; with `protocol`, only those that apply to it."""
    parts = []
    for group, title in GROUPS.items():
        options = [option for option in options_of(command) if option.group == group and _fits(option, protocol)]
        if options:
            parts.append("\n".join([f"{title}:", *(_entry(option, command) for option in options)]))
    return "\n\n".join(parts) + "\n"


def options_for(protocol: str) -> list[CatOption]:
    """Return the options of the shorthand for a protocol."""
    return [option for option in options_of("cat") if _fits(option, protocol)]


def _fits(option: CatOption, protocol: str) -> bool:
    return not protocol or (option.group != "protocol" and (not option.fits or protocol in option.fits.split()))


def _entry(option: CatOption, command: str) -> str:
    names = f"  {invocation(option, command)}"
    indent = " " * COLUMN
    lines = textwrap.wrap(option.help, WIDTH - COLUMN, break_on_hyphens=False)
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
    "survey": "nngkit survey --listen tcp://*:5558 --wait-peers 3 --data 'ready?' --expect 3",
    "respond": "nngkit respond tcp://host:5558 --exec hostname",
    "bus": "nngkit bus tcp://host:5559 --lines",
    "pair": "nngkit pair tcp://host:5560 --lines",
}


def cat_help(name: str) -> str:
    """Return the help of `nngkit cat` or a shorthand."""
    protocol = "PROTOCOL " if name == "cat" else ""
    groups = sections("cat", SHORTHANDS.get(name, ""))
    return (
        f"usage: nngkit {name} {protocol}[OPTIONS] URL ...\n\n"
        "Dials each URL, listens at those of --listen. Options come in any order; a long one may be abbreviated,\n"
        "and takes its value as --name value or --name=value. Times are seconds, or have a unit: 20ms, 1.5s, 2m.\n"
        "Sends --data, --file, or standard input line by line. Prints received messages, one a line.\n\n"
        f"{groups}\nexample: {EXAMPLES[name]}\n\n"
        "Exit codes: 0 ok, 1 fewer messages than expected, 2 usage, 3 cannot connect or listen, 4 timeout."
    )


def nngcat_help() -> str:
    """Return the help of `nngkit nngcat`."""
    return (
        "Usage: nngcat <proto> <addr>... [<fmt>] [<opts>...] [<src>]\n\n"
        "Exchanges messages by one of the scalability protocols, as nngcat does. Times are whole seconds.\n"
        "A long option takes its value as --name value, --name=value or --name:value, and may be abbreviated.\n\n"
        + sections("nngcat")
    )


def nanocat_help(program: str) -> str:
    """Return the help of `nngkit nanocat` or a link."""
    return (
        f"Usage: {program} <protocol> <address>... [<option>...]\n\n"
        "Exchanges messages by one of the scalability protocols, as nanocat does. Times are seconds, with\n"
        "fractions. A long option takes its value as --name value or --name=value, and may be abbreviated.\n\n"
        + sections("nanocat")
    )
