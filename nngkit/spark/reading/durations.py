"""Lengths of time as people write them: ``5m``, ``10 minutes``, ``1h 30m``. Pure.

>>> spark_text("5m"), seconds_of("1 hour 30 minutes")
('5 minutes', 5400.0)
"""

from __future__ import annotations

import re
from typing import Final

from nngkit.errors import ConfigError

UNITS: Final = {  # Spark's word: seconds, and other words for it
    "week": (604_800.0, ("w", "weeks")),
    "day": (86_400.0, ("d", "days")),
    "hour": (3600.0, ("h", "hours", "hr", "hrs")),
    "minute": (60.0, ("m", "min", "mins", "minutes")),
    "second": (1.0, ("s", "sec", "secs", "seconds")),
    "millisecond": (1e-3, ("ms", "milliseconds")),
}
WORDS: Final = {word: unit for unit, (_, others) in UNITS.items() for word in (unit, *others)}
PART: Final = re.compile(r"(\d+)\s*([a-z]+)\s*")


def _parts(text: str, what: str) -> list[tuple[int, str]]:
    found, rest = [], text.strip().lower()
    rest = rest.removeprefix("interval ")
    while (part := PART.match(rest)) is not None and part[2] in WORDS:
        found.append((int(part[1]), WORDS[part[2]]))
        rest = rest[part.end() :]
    if rest or not found or not any(number for number, _ in found):
        raise ConfigError(what, f"{text!r} is not a length of time such as 5m or '10 minutes'", text)
    return found


def spark_text(text: str, what: str = "duration") -> str:
    """Return the length in Spark's words. Raises ConfigError, which names `what`, unless it is over 0."""
    return " ".join(f"{number} {unit}{'' if number == 1 else 's'}" for number, unit in _parts(text, what))


def seconds_of(text: str, what: str = "duration") -> float:
    """Return the length in seconds. Raises ConfigError as `spark_text`."""
    return sum(number * UNITS[unit][0] for number, unit in _parts(text, what))
