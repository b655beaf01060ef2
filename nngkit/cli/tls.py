"""TLS and trust on the command line: options for every command that opens sockets, and what is made of them.

The names are nngcat's. They apply to all sockets of a command. A command with two sides (device) also has them for each
side, `--front-cert` and so on, which override the common ones. The discovery commands fall back to NNGKIT_CACERT,
NNGKIT_CERT and NNGKIT_KEY. Without TLS addresses nothing of TLS is loaded.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Final, Literal

from nngkit.cli import options
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.discovery.settings import Certificates
    from nngkit.protocols import TLS

NAMES: Final = ("cacert", "cert", "key", "server-name", "insecure", "tls12")

Given = dict[str, tuple[str, Any]]  # by name in NAMES: the option or variable it came from, and its value


def add_tls(parser: argparse.ArgumentParser, *sides: str, trust: bool = True, variables: bool = False) -> None:
    """Add the options, and those of each side. `trust`: --trust too; `variables`: for `tls_or_variables`."""
    options.add(parser, *NAMES, *(("trust",) if trust else ()))
    if variables:
        for action in parser._actions:
            if action.dest in ("cacert", "cert", "key"):
                options.declare(action, f"NNGKIT_{action.dest.upper()}")
    for side in sides:
        options.add_for(parser, side, *NAMES)


def tls_of(arguments: argparse.Namespace, *addresses: str, side: str = "") -> TLS | None:
    """Return the TLS setting for sockets at `addresses`, None without TLS. Raises ConfigError that names the option."""
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
        tls12=values.get("tls12", False),
    )


def tls_or_variables(
    arguments: argparse.Namespace, variables: Certificates, role: Literal["listen", "dial"], *addresses: str
) -> TLS | None:
    """Return `tls_of` for a command that also reads variables. Raises ConfigError that names what `role` lacks."""
    given = check_tls(arguments, *addresses, variables=variables)
    if given is None:
        return None
    if role == "listen" and "cert" not in given:
        raise ConfigError("--cert", "a listener over TLS needs it, and --key (or NNGKIT_CERT and NNGKIT_KEY)")
    if role == "dial" and not given.keys() & {"cacert", "insecure"}:
        raise ConfigError("--cacert", "a dialer over TLS needs it, or --insecure (or NNGKIT_CACERT)")
    return _made(given)


def check_tls(
    arguments: argparse.Namespace, *addresses: str, side: str = "", variables: Certificates | None = None
) -> Given | None:
    """Return the values given, None if no address has TLS. Raises ConfigError as `tls_of` does; loads no NNG."""
    given = _given(arguments, side, variables)
    if has_trust(arguments, given):
        return None
    if not any(address.startswith(("tls+", "wss")) for address in addresses):
        for option, _ in given.values():
            if option.startswith(f"--{side}-" if side else "--"):  # a common option may be for the other side
                where = f" at the {side}" if side else ""
                raise ConfigError(option, f"is for tls+tcp:// and wss:// addresses; there is none{where}")
        return None
    _check_files(given)
    return given


def _check_files(given: Given) -> None:
    for one, other in (("cert", "key"), ("key", "cert")):
        if one in given and other not in given:
            option = given[one][0]
            raise ConfigError(option, f"requires {option.removesuffix(one)}{other}")
    from nngkit.cli.pem import File, check

    check(*(File(*given[name]) if name in given else None for name in ("cacert", "cert", "key")))


def certificate_of(arguments: argparse.Namespace) -> TLS | None:
    """Return the certificate of --cert and --key alone, None without. Raises ConfigError."""
    given: Given = {name: (f"--{name}", value) for name in ("cert", "key") if (value := getattr(arguments, name))}
    if not given:
        return None
    _check_files(given)
    return _made(given)


def has_trust(arguments: argparse.Namespace, given: Given) -> bool:
    """Return True if a pass is used, in place of certificates: that of --trust, which the process has from now on."""
    named = getattr(arguments, "trust", None)
    if named is None and (given or not os.environ.get("NNGKIT_TRUST")):
        return False
    from nngkit.trust import OPEN, choice

    if named is None:
        return choice.chosen(None) is not OPEN
    if choice.use(choice.read(named, "--trust")) is OPEN:
        return False
    for option, _ in given.values():
        if option.startswith("--"):
            raise ConfigError(option, "is given by the pass of --trust")
    return True


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
        if "cert" in own or "key" in own:  # never pair a side's certificate with a common key
            found.pop("cert", None)
            found.pop("key", None)
        found |= own
    return found
