"""The parser of a command, for the entry point, for help, and for man pages. Loads nothing but argparse."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, Final

from nngkit.cli import options
from nngkit.cli.commands import COMMANDS, DAEMONS, module_of

META: Final = ("help", "config", "check", "print_config")  # about the configuration, and not in it
LEVELS: Final = ("debug", "info", "warning", "error")


def parser_of(command: str) -> options.Parser:
    """Return the parser of a command, with all its options."""
    module = import_module(module_of(command))
    parser = options.parser_for(command, COMMANDS[command], module.EPILOG)
    module.add_arguments(parser)
    for name in DAEMONS:
        if name.split()[0] == command:
            _add_config(daemon_parser(parser, name))
    return parser


def daemon_parser(parser: options.Parser, name: str) -> argparse.ArgumentParser:
    """Return the parser that has the options of the daemon `name`: that of its action, for "doc serve"."""
    _, _, action = name.partition(" ")
    if not action:
        return parser
    (actions,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    found: argparse.ArgumentParser = actions.choices[action]
    return found


def daemon_named(command: str, arguments: list[str]) -> str | None:
    """Return the daemon that the command line names; None for another command."""
    names = (command, " ".join([command, *arguments[:1]]))
    return next((name for name in names if name in DAEMONS), None)


def flags_of(name: str, words: list[str]) -> dict[str, Any]:
    """Return what the command line of the daemon `name` gives, as text, by dest: `words` after its command.

    Ends the program after --help, and for unknown options.
    """
    command = name.split(maxsplit=1)[0]
    whole = parser_of(command)
    reader = daemon_parser(whole, name)
    vars(reader)["format_help"] = daemon_parser(parser_of(command), name).format_help  # of unchanged declarations
    for action in reader._actions:
        action.required, action.type, action.default = False, None, argparse.SUPPRESS
        if action.dest not in META:
            action.choices = None
    given: argparse.Namespace = whole.parse_args(words)
    return vars(given)


def _add_config(parser: argparse.ArgumentParser) -> None:
    for action in list(parser._actions):
        if options.is_secret(action):
            flag = f"{action.option_strings[-1]}-file"
            text = f"file with the {flag[2:-5]}: `ps` shows what is on the command line"
            added = parser.add_argument(flag, metavar="FILE", help=text)
            options.declare(added, *(f"{name}_FILE" for name in options.variables_of(action)))
    text = "TOML file of settings; options and variables take precedence; read again at SIGHUP"
    parser.add_argument("--config", metavar="FILE", help=text)
    parser.add_argument("--log-level", choices=LEVELS, default="warning", help="least level logged (default: warning)")
    options.add(parser, "log-format")
    options.add_flag(parser, "--check", "print each setting and where it comes from, and end: 0, or 2 if one is wrong")
    options.add_flag(parser, "--print-config", "print a commented file for --config with all settings, and end")
