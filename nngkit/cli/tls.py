"""TLS on the command line: the options that every command which opens sockets takes, and the setting they make.

The names are nngcat's. They hold for both ends a command has; one that needs none pays for none.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nngkit.cli import options
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.protocols import TLS

__all__ = ["add_tls", "check_tls", "tls_of"]


def add_tls(parser: argparse.ArgumentParser) -> None:
    """The options."""
    options.add(parser, "cacert", "cert", "key", "server-name", "insecure")


def tls_of(arguments: argparse.Namespace, *addresses: str) -> TLS | None:
    """What the options say, for sockets at `addresses`. Raises ConfigError, naming the option, if they do not do."""
    if not check_tls(arguments, *addresses):
        return None
    from nngkit.protocols import TLS

    return TLS(
        ca=arguments.cacert,
        cert=arguments.cert,
        key=arguments.key,
        server_name=arguments.server_name,
        verify=not arguments.insecure,
    )


def check_tls(arguments: argparse.Namespace, *addresses: str) -> bool:
    """Whether there is TLS at `addresses`. Raises ConfigError as `tls_of`, and loads nothing."""
    given: dict[str, Any] = {
        "--cacert": arguments.cacert,
        "--cert": arguments.cert,
        "--key": arguments.key,
        "--server-name": arguments.server_name,
        "--insecure": arguments.insecure or None,
    }
    if not any(address.startswith(("tls+", "wss")) for address in addresses):
        for option, value in given.items():
            if value is not None:
                raise ConfigError(option, "is for tls+tcp:// and wss:// addresses, and there is none")
        return False
    for option in ("--cacert", "--cert", "--key"):
        if (path := given[option]) is not None:
            try:
                with open(path, "rb") as file:
                    if b"-----BEGIN" not in file.read(1 << 20):
                        raise ConfigError(option, f"{path}: not PEM text", path)
            except OSError as error:
                raise ConfigError(option, f"{path}: {error.strerror}", path) from error
    if (arguments.cert is None) != (arguments.key is None):
        raise ConfigError("--cert", "goes together with --key")
    return True
