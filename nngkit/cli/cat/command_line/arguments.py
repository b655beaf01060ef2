"""Parse the arguments of `nngkit cat`, one by one, and their values.

::

    for use in scan(["--pull", "-L", "5555", "--recv-timeout", "20ms"]): ...      # Use, or an address
    seconds(use)                                                                  # 0.02; ConfigError names the option

Options come in any order, as unique prefixes, `--o v`, `--o=v`, `--o:v`, `-L1234`; short ones may be clustered.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from nngkit.cli.cat.command_line.option_table import OPTIONS, CatOption
from nngkit.cli.cat.command_line.plan import LARGEST
from nngkit.cli.cat.command_line.scanning import words
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.protocols import Pattern

NAMES: Final = {name: option for option in OPTIONS for name in option.names("cat")}
UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
MOST_SECONDS: Final = 1e6


class Use(NamedTuple):
    """An option as given: the name that was typed, and its value."""

    option: CatOption
    typed: str
    value: str

    def fail(self, why: str) -> NoReturn:
        """Raise ConfigError about this option."""
        raise ConfigError(self.typed, why, self.value)


def scan(arguments: Sequence[str]) -> Iterator[Use | str]:
    """Yield options and addresses in order. Raises ConfigError."""
    for kind, given, rest in words(arguments):
        match kind:
            case "long":
                yield _long(given, rest)
            case "short":
                yield from _short(given, rest)
            case _:
                yield given


def _long(given: str, rest: list[str]) -> Use:
    typed, separator, value = given, "", ""
    if cut := re.search("[=:]", given):
        typed, separator, value = given[: cut.start()], cut[0], given[cut.end() :]
    found = {option.key: option for name, option in NAMES.items() if name.startswith(typed) and name.startswith("--")}
    option = NAMES.get(typed)
    if option is None:
        if len(found) > 1:
            names = sorted({name for name in NAMES if name.startswith(typed)})
            raise ConfigError(typed, f"may be {', '.join(names)}", given)
        option = next(iter(found.values()), None)
    if option is None:
        from nngkit.cli.suggestions import did_you_mean

        raise ConfigError(typed, f"no such option{did_you_mean(typed, NAMES)}", given)
    if not option.takes:
        if separator:
            raise ConfigError(typed, "takes no value", given)
    elif not separator:
        value = _next(typed, rest)
    return Use(option, typed, value)


def _short(given: str, rest: list[str]) -> Iterator[Use]:
    letters = given[1:]
    while letters:
        typed, letters = f"-{letters[0]}", letters[1:]
        option = NAMES.get(typed)
        if option is None:
            raise ConfigError(typed, "no such option", given)
        if option.takes:
            yield Use(option, typed, letters or _next(typed, rest))
            return
        yield Use(option, typed, "")


def _next(typed: str, rest: list[str]) -> str:
    if not rest:
        raise ConfigError(typed, "needs a value")
    return rest.pop(0)


# ---- values ----------------------------------------------------------------------------------------------------------


def seconds(use: Use) -> float:
    """Parse a length of time: 1.5, 20ms, 2m."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)(us|ms|s|m|h|d|)", use.value)
    if match is None or (number := float(match[1]) * UNITS[match[2]]) > MOST_SECONDS:
        use.fail(f"{use.value!r} is not a time like 1.5, 20ms or 2m")
    return number


def whole(use: Use, least: int = 1) -> int:
    """Parse a whole number."""
    if not re.fullmatch("[0-9]{1,10}", use.value) or int(use.value) < least:
        use.fail(f"{use.value!r} is not a whole number of at least {least}")
    return int(use.value)


def size(use: Use) -> int:
    """Parse a number of bytes: 512, 64k, 10M. 0 is the largest, 1 GiB."""
    match = re.fullmatch("([0-9]{1,10})([kmg]?)", use.value.lower())
    if match is None or (number := int(match[1]) * SIZES[match[2]]) > LARGEST:
        use.fail(f"{use.value!r} is not a size like 512, 64k or 10M, of 1 GiB at most")
    return number or LARGEST


def mode(use: Use) -> int:
    """Parse permissions in octal."""
    if not re.fullmatch("0?[0-7]{3}", use.value):
        use.fail(f"{use.value!r} is not permissions in octal, like 600")
    return int(use.value, 8)


def url(use: Use) -> str:
    """Return a URL."""
    if "://" not in use.value:
        use.fail(f"{use.value!r} is not an address like tcp://host:port")
    return use.value


def port(use: Use) -> str:
    """Return the URL of a port of this machine."""
    if not re.fullmatch("[0-9]{1,5}", use.value) or int(use.value) > 65535:
        use.fail(f"{use.value!r} is not a port from 0 to 65535")
    return f"tcp://127.0.0.1:{int(use.value)}"


def raw_bytes(use: Use) -> bytes:
    """Return the argument as bytes."""
    return use.value.encode("utf-8", "surrogateescape")


def pattern(use: Use) -> Pattern:
    """Return a pattern of topics."""
    from nngkit.protocols import Pattern

    try:
        return Pattern(raw_bytes(use))
    except ConfigError as error:
        use.fail(str(error).partition(": ")[2])


def content(use: Use) -> bytes:
    """Read the whole file; `-` is standard input."""
    try:
        if use.value == "-":
            return sys.stdin.buffer.read()
        with open(use.value, "rb") as file:
            return file.read()
    except OSError as error:
        use.fail(f"{use.value}: {error.strerror}")
