"""The settings of a daemon, from its command line on."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from typing import Any

from nngkit.cli.config import showing
from nngkit.cli.config.command_parser import daemon_parser, parser_of
from nngkit.cli.config.reloading import Reload
from nngkit.cli.config.resolution import Resolution, resolve
from nngkit.cli.config.settings import META, settings_of, variable_of
from nngkit.cli.config.toml_file import read
from nngkit.cli.streams.log_lines import log_to_stderr
from nngkit.cli.streams.output import columns, json_line, out


def started(name: str, words: list[str], check: Callable[[argparse.Namespace], object]) -> argparse.Namespace | None:
    """Return the arguments of the daemon `name`, given `words` after its command; None if it only had to print.

    `check` raises ConfigError for what each setting alone does not show. `reload` of the arguments is what SIGHUP does.
    """
    whole = parser_of(name.split(maxsplit=1)[0])
    parser = daemon_parser(whole, name)
    settings = settings_of(name, parser)
    flags = _flags(name, parser, words)
    if flags.get("print_config"):
        out(showing.file_text(name, settings))
        return None
    variable = variable_of(name, "config")
    path = flags.get("config") or os.environ.get(variable, "").strip()
    what = "--config" if flags.get("config") else variable

    def resolved() -> Resolution:
        file = read(path, what, settings) if path else None
        found = resolve(parser, settings, flags, os.environ, file)
        if " " in name:
            found.arguments.action = name.partition(" ")[2]
        return found

    held = resolved()
    if flags.get("check"):
        check(held.arguments)
        _print(showing.rows(settings, held.found), as_json=bool(getattr(held.arguments, "json", False)))
        return None
    log_to_stderr(f"nngkit {name}", "nngkit", held.arguments.log_level.upper())
    held.arguments.reload = reload = Reload(f"nngkit {name}", resolved, held)
    reload.on("log_level", lambda level: logging.getLogger("nngkit").setLevel(level.upper()))
    if path:
        reload.start()
    return held.arguments


def _flags(name: str, parser: argparse.ArgumentParser, words: list[str]) -> dict[str, Any]:
    """Return what the command line gives, as text, by dest. Ends the program after --help, and for unknown options."""
    whole = parser_of(name.split(maxsplit=1)[0])
    reader = daemon_parser(whole, name)
    vars(reader)["format_help"] = parser.format_help  # of declarations that are not changed as these are
    for action in reader._actions:
        action.required, action.type, action.default = False, None, argparse.SUPPRESS
        if action.dest not in META:
            action.choices = None
    given: argparse.Namespace = whole.parse_args(words)
    return vars(given)


def _print(rows: Any, *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            out(json_line(row))
    else:
        out(columns(("SETTING", "VALUE", "FROM"), [tuple(row.values()) for row in rows]))
