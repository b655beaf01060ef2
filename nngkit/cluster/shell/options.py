"""Checks of an endpoint's options as it is made: ConfigError names the option. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from nngkit.cluster.containing import is_async
from nngkit.cluster.frames import check_id
from nngkit.discovery.provider import check_address
from nngkit.errors import ConfigError
from nngkit.file_modes import checked_path
from nngkit.messages import MOST_NUMBER

MOST_VOTERS: Final = 7


def check_number(name: str, value: Any, least: int, most: int = MOST_NUMBER) -> int:
    """Return a whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        limits = f"from {least}" if most == MOST_NUMBER else f"from {least} to {most}"
        raise ConfigError(name, f"{value!r} is not a whole number {limits}", value)
    return value


def check_function(name: str, value: Any) -> None:
    """Check a function that is called where nothing may wait; None is none."""
    if value is None:
        return
    if not callable(value):
        raise ConfigError(name, f"{value!r} is not a function", value)
    if is_async(value):
        raise ConfigError(name, "it must be a plain function: its result is needed at once", value)


def check_methods(name: str, value: Any, *methods: str) -> None:
    """Check an object of the program's by the methods that it must have; None is none."""
    missing = [] if value is None else [each for each in methods if not callable(getattr(value, each, None))]
    if missing:
        raise ConfigError(name, f"{value!r} has no {', '.join(missing)}", value)


def check_shared_object(value: Any) -> None:
    """Check an object of the program's that is to be shared: it is called where nothing may wait."""
    methods = ("update", "full_state", "load")
    if value is None:
        raise ConfigError("shared object", f"None has no {', '.join(methods)}", value)
    check_methods("shared object", value, *methods)
    for method in methods:
        if is_async(getattr(value, method)):
            raise ConfigError("shared object", f"{method} of {value!r} is async: it is called, and not awaited", value)


def check_store(value: Any) -> None:
    """Check the path of a store."""
    if value is not None and (not isinstance(value, (str, os.PathLike)) or not os.fspath(value)):
        raise ConfigError("store", f"{value!r} is not the path of a folder", value)
    if value is not None:
        checked_path("store", value)


def check_addresses(name: str, value: Any) -> tuple[str, ...]:
    """Return one address or several, as a tuple."""
    if not isinstance(value, str) and not isinstance(value, Iterable):
        raise ConfigError(name, f"{value!r} is neither an address nor several", value)
    addresses = (value,) if isinstance(value, str) else tuple(value)
    for address in addresses:
        _check_address(name, address)
    return addresses


def _check_address(name: str, address: Any) -> None:
    try:
        check_address(address)
    except ValueError as error:
        raise ConfigError(name, f"{address!r}: {error}", address) from None


def check_voters(voters: Mapping[str, str] | None, id: str) -> None:
    """Check the voters' addresses by id: an odd number, as one more would survive no more deaths."""
    if voters is None:
        return
    if not isinstance(voters, Mapping):
        raise ConfigError("voters", f"{voters!r} is not a mapping from ids to addresses", voters)
    if id not in voters:
        raise ConfigError("voters", f"{id!r} is not among them: {', '.join(map(str, voters)) or 'none'}", id)
    if len(voters) % 2 == 0 or len(voters) > MOST_VOTERS:
        raise ConfigError("voters", f"{len(voters)} of them, instead of 1, 3, 5 or {MOST_VOTERS}", voters)
    for each, address in voters.items():
        check_id(each)
        _check_address("voters", address)
    if len(set(voters.values())) < len(voters):
        raise ConfigError("voters", "two of them have one address", voters)
