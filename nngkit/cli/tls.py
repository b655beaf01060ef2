"""TLS on the command line: the options that every command which opens sockets takes, and the setting they make.

The names are nngcat's. They hold for all sockets of a command. One with two sides (device) has them for each side as
well, `--front-cert` and so on, which come before the common ones. The commands of discovery read NNGKIT_CACERT,
NNGKIT_CERT and NNGKIT_KEY where the options are left out. One that needs none pays for none.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final, Literal

from nngkit.cli import options
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.discovery.settings import Certificates
    from nngkit.protocols import TLS

__all__ = ["add_tls", "check_tls", "tls_of", "tls_or_variables"]

NAMES: Final = ("cacert", "cert", "key", "server-name", "insecure")

Given = dict[str, tuple[str, Any]]  # by its name in NAMES: the option as it was typed or the variable, and its value


def add_tls(parser: argparse.ArgumentParser, *sides: str) -> None:
    """The options, and those of each side."""
    options.add(parser, *NAMES)
    for side in sides:
        options.add_for(parser, side, *NAMES)


def tls_of(arguments: argparse.Namespace, *addresses: str, side: str = "") -> TLS | None:
    """What the options say, for sockets at `addresses`. Raises ConfigError, naming the option, if they do not do."""
    given = check_tls(arguments, *addresses, side=side)
    return None if given is None else _made(given)


def _made(given: Given) -> TLS:
    from nngkit.protocols import TLS

    values = {name: value for name, (_, value) in given.items()}
    return TLS(
        ca=values.get("cacert"),
        cert=values.get("cert"),
        key=values.get("key"),
        server_name=values.get("server-name"),
        verify=not values.get("insecure", False),
    )


def tls_or_variables(
    arguments: argparse.Namespace, variables: Certificates, role: Literal["listen", "dial"], *addresses: str
) -> TLS | None:
    """`tls_of` of a command that reads variables too. Raises ConfigError, naming what is missing to `role` there."""
    given = check_tls(arguments, *addresses, variables=variables)
    if given is None:
        return None
    if role == "listen" and "cert" not in given:
        raise ConfigError("--cert", "a listener over TLS needs it, and --key (or NNGKIT_CERT and NNGKIT_KEY)")
    if role == "dial" and not given.keys() & {"cacert", "insecure"}:
        raise ConfigError("--cacert", "a dialler over TLS needs it, or --insecure (or NNGKIT_CACERT)")
    return _made(given)


def check_tls(
    arguments: argparse.Namespace, *addresses: str, side: str = "", variables: Certificates | None = None
) -> Given | None:
    """What is given, None if there is no TLS at `addresses`. Raises ConfigError as `tls_of`, and loads no NNG."""
    given = _given(arguments, side, variables)
    if not any(address.startswith(("tls+", "wss")) for address in addresses):
        for option, _ in given.values():
            if option.startswith(f"--{side}-" if side else "--"):  # a common one may be for the other side
                where = f"at the {side}" if side else "there"
                raise ConfigError(option, f"is for tls+tcp:// and wss:// addresses, and {where} is none")
        return None
    for one, other in (("cert", "key"), ("key", "cert")):
        if one in given and other not in given:
            option = given[one][0]
            raise ConfigError(option, f"goes together with {option.removesuffix(one)}{other}")
    from nngkit.cli.pem import File, check

    check(*(File(*given[name]) if name in given else None for name in ("cacert", "cert", "key")))
    return given


def _given(arguments: argparse.Namespace, side: str, variables: Certificates | None) -> Given:
    found: Given = {}
    if variables is not None:
        values = {"cacert": variables.cacert, "cert": variables.cert, "key": variables.key}
        found = {name: (f"NNGKIT_{name.upper()}", value) for name, value in values.items() if value}
    for dashes in ("--", f"--{side}-") if side else ("--",):
        own: Given = {}
        for name in NAMES:
            value = getattr(arguments, f"{dashes[2:]}{name}".replace("-", "_"))
            if value is not None and value is not False:
                own[name] = (f"{dashes}{name}", value)
        if "cert" in own or "key" in own:  # the common ones, or the variables, are no halves of a side's own pair
            found.pop("cert", None)
            found.pop("key", None)
        found |= own
    return found
