"""Output of `--check` and `--print-config`: each setting, in the order of the help."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nngkit.cli.config.resolution import Found
from nngkit.cli.config.settings import YES, Setting
from nngkit.cli.masking import MASK, masked
from nngkit.discovery.settings import VARIABLES

DEFAULT: Final = "default"
NUMBERS: Final = ("S", "N", "BYTES")  # placeholders of the help
_UNITS: Final = {name: row.unit for row in VARIABLES for name in (row.name, row.article) if row.unit == "ms"}
_TOLD: Final = re.compile(r"\(default: (.*)\)$")


def rows(settings: Mapping[str, Setting], found: Mapping[str, Found]) -> Iterator[dict[str, str]]:
    """Yield each setting: its key, value and where that comes from; docs/schemas/check.json. Secrets are masked."""
    for key, setting in settings.items():
        if (held := found.get(key)) is None:
            yield {"key": key, "value": _default_text(setting), "from": DEFAULT}
        else:
            yield {"key": key, "value": _held_text(setting, held), "from": held.where}


def _held_text(setting: Setting, held: Found) -> str:
    if setting.secret:
        return MASK
    if setting.is_switch and not held.declared:
        return "true" if held.texts == YES else "false"
    texts = list(map(masked, held.texts))
    if held.declared:  # as it is written there, as its unit and place differ
        return f"{held.where}={texts[0]}{' ms' if held.where in _UNITS else ''}"
    return _toml(texts) if setting.repeats else _toml(_plain(texts[0]))


def _plain(text: str) -> Any:
    """Return the number that a text is, else the text."""
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"\d{1,15}\.\d{1,15}", text) else text


def _default_text(setting: Setting) -> str:
    default = setting.action.default
    if setting.is_switch:
        return "false"
    if isinstance(default, str | int | float) and not isinstance(default, bool):
        return _toml(default)
    told = _TOLD.search(setting.action.help or "")
    return told[1] if told else "-"


def file_text(name: str, settings: Mapping[str, Setting]) -> str:
    """Return a file with all settings, as comments: meaning, variable, and the default where it is one value."""
    parts = [f"# Settings of `nngkit {name}`. Each is the default, or an example of what is written there."]
    for key, setting in settings.items():
        told = (setting.action.help or "").replace("%%", "%")
        if setting.action.choices:
            told += f": {', '.join(map(str, setting.action.choices))}"
        lines = textwrap.wrap(told, 100)
        lines.append("Variable: " + ", ".join(setting.variables))
        if setting.action.required:
            lines.append("Required.")
        parts.append("\n".join([*(f"# {line}" for line in lines), f"#{key} = {_example(setting)}"]))
    return "\n\n".join(parts)


def _example(setting: Setting) -> str:
    """Return the default as TOML, or the placeholder of the help where there is none."""
    action, default = setting.action, setting.action.default
    if setting.is_switch:
        return "false"
    if isinstance(default, str | int | float):
        return _toml(default)
    metavar = str(action.metavar or action.dest.upper())
    value: Any = 1 if metavar in NUMBERS else metavar
    told = _TOLD.search(action.help or "")
    if told and callable(action.type) and " " not in told[1]:
        with contextlib.suppress(argparse.ArgumentTypeError):  # it is a word as "never"
            action.type(told[1])
            value = _plain(told[1])
    return _toml([value]) if setting.repeats else _toml(value)


def _toml(value: Any) -> str:
    """Return text, a number or a list of texts as TOML, in which strings are as in JSON, but for DEL."""
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
