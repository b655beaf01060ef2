"""`nngkit man`: print a manual page as roff, or write all of them into a folder.

::

    nngkit man cat | man -l -
    nngkit man --dir ~/.local/share/man/man1
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from nngkit import __version__
from nngkit.cli.commands import COMMANDS
from nngkit.cli.tools.catalogue import actions, choices, help_of, markdown
from nngkit.errors import ConfigError

EPILOG: Final = "nngkit man cat | man -l -"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="command of the page (default: nngkit itself)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dir", metavar="DIR", help="write all pages into DIR: nngkit.1, nngkit-cat.1 and so on")
    what.add_argument("--markdown", action="store_true", help="print the table of options for docs/command.md")


def run(arguments: argparse.Namespace) -> int:
    """Print or write pages; return the exit code."""
    command = arguments.command or ""
    if command and command not in COMMANDS:
        raise ConfigError("COMMAND", f"no command {command!r}", command)
    if arguments.markdown:
        print(markdown())
    elif arguments.dir is None:
        print(page(command), end="")
    else:
        for each in ["", *COMMANDS]:
            name = Path(arguments.dir, f"nngkit{'-' if each else ''}{each}.1")
            try:
                name.parent.mkdir(parents=True, exist_ok=True)
                name.write_text(page(each))
            except OSError as error:
                raise ConfigError("--dir", f"{name}: {error.strerror}", arguments.dir) from error
    return 0


def page(command: str) -> str:
    """Return the manual page of `command`, or of nngkit itself for ""."""
    name = f"nngkit-{command}" if command else "nngkit"
    summary = COMMANDS.get(command, "the scalability protocols of nanomsg and NNG from a shell")
    lines = [
        f'.TH "{name.upper()}" "1" "" "nngkit {__version__}" "nngkit"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(summary)}",
    ]
    if not command:
        lines += [".SH SYNOPSIS", ".B nngkit", "COMMAND ...", ".SH COMMANDS"]
        for each, what in COMMANDS.items():
            lines += [".TP", f".BR nngkit\\-{each} (1)", _text(what)]
        return "\n".join(lines) + "\n"
    usage, _, rest = help_of(command).partition("\n\n")
    lines += [".SH SYNOPSIS", ".nf", *(_text(line) for line in usage.splitlines()), ".fi"]
    about = [part for part in rest.split("\n\n") if part[:1].isupper() and not part.splitlines()[0].endswith(":")]
    named = actions(command)
    own = {f"{what[:1].upper()}{what[1:]}." for what in named.values()}
    about = [part for part in about if part not in own]  # repeated in the list of actions
    lines.append(".SH DESCRIPTION")
    for part in about:
        lines += [".PP", *(_text(line) for line in part.splitlines())]
    if named:
        lines.append(".SH ACTIONS")
        for name, what in named.items():
            lines += [".TP", rf"\fB{_text(name)}\fR", _text(what)]
    lines.append(".SH OPTIONS")
    for choice in choices(command):
        names = ", ".join(rf"\fB{_text(each)}\fR" for each in choice.names)
        lines += [".TP", f"{names} {choice.takes}".rstrip(), _text(choice.help)]
    return "\n".join(lines) + "\n"


def _text(line: str) -> str:
    """Escape a line for roff."""
    escaped = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
