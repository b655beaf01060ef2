"""The settings of a daemon, from its command line on."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from nngkit.cli.config import showing
from nngkit.cli.config.command_parser import daemon_parser, parser_of
from nngkit.cli.config.reloading import Reload
from nngkit.cli.config.resolution import Resolution, resolve
from nngkit.cli.config.settings import settings_of, variable_of
from nngkit.cli.config.toml_file import read
from nngkit.cli.streams.log_lines import log_to_stderr
from nngkit.cli.streams.output import columns, json_line, out


def started(
    name: str, flags: Mapping[str, Any], check: Callable[[argparse.Namespace], object]
) -> argparse.Namespace | None:
    """Return the arguments of the daemon `name`, given `flags_of` it; None if it only had to print.

    `check` raises ConfigError for what each setting alone does not show. `reload` of the arguments is what SIGHUP does.
    """
    parser = daemon_parser(parser_of(name.split(maxsplit=1)[0]), name)
    settings = settings_of(name, parser)
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
    as_json = held.arguments.log_format == "json"
    log_to_stderr(f"nngkit {name}", "nngkit", held.arguments.log_level.upper(), as_json=as_json)
    held.arguments.reload = reload = Reload(f"nngkit {name}", resolved, held)
    reload.on("log_level", lambda level: logging.getLogger("nngkit").setLevel(level.upper()))
    if path:
        reload.start()
    return held.arguments


def _print(rows: Any, *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            out(json_line(row))
    else:
        out(columns(("SETTING", "VALUE", "FROM"), [tuple(row.values()) for row in rows]))
