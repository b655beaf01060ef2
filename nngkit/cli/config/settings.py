"""A setting: one option under its three names, all from its declaration.

::

    --max-size                  on the command line; an argument without dashes is named by its place: NAME
    NNGKIT_SERVE_MAX_SIZE       in the environment; or, of settings that several programs have, the declared NNGKIT_ZONE
    max_size                    in a file

Declared variables are read by what they belong to (as nngkit.discovery.settings), with its units. Here counts only that
one is set, as it takes precedence over a file.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nngkit.cli import options
from nngkit.cli.config.command_parser import META
from nngkit.discovery.settings import VARIABLES

YES: Final = ("yes",)
NO: Final = ("no",)
_ARTICLE: Final = {row.name: row.article for row in VARIABLES if row.article}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a daemon. `own`: its variable, "" if those `declared` are read by what they belong to."""

    key: str
    action: argparse.Action
    flag: str
    own: str
    declared: tuple[str, ...]
    secret: bool

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables, the first that is set counts."""
        return (self.own,) if self.own else self.declared

    @property
    def repeats(self) -> bool:
        """True if it is a list."""
        return isinstance(self.action, argparse._AppendAction)

    @property
    def is_switch(self) -> bool:
        """True if it is yes or no."""
        return isinstance(self.action, argparse._StoreTrueAction)

    def set_variable(self, environ: Mapping[str, str]) -> str:
        """Return the variable that counts, "" if none is set; an empty one counts as unset."""
        return next((name for name in self.variables if environ.get(name, "").strip()), "")


def settings_of(name: str, parser: argparse.ArgumentParser) -> dict[str, Setting]:
    """Return the settings of the daemon `name`, by key, in the order of its help."""
    found = {}
    for action in parser._actions:
        if action.dest in META:
            continue
        flag = next((each for each in action.option_strings if each.startswith("--")), str(action.metavar))
        key = flag.lstrip("-").lower().replace("-", "_")
        declared = tuple(
            each for variable in options.variables_of(action) for each in (variable, _ARTICLE.get(variable, "")) if each
        )
        own = "" if declared else variable_of(name, key)
        found[key] = Setting(key, action, flag, own, declared, options.is_secret(action))
    return found


def variable_of(name: str, key: str) -> str:
    """Return the variable of a setting of the daemon `name`.

    >>> variable_of("doc serve", "max_pipes")
    'NNGKIT_DOC_SERVE_MAX_PIPES'
    """
    return f"NNGKIT_{name}_{key}".upper().replace(" ", "_")
