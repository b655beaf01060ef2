"""Errors of a socket's settings, under the names of the options they were given by. Pure."""

from __future__ import annotations

from nngkit.errors import ConfigError

__all__ = ["named"]


def named(error: ConfigError, url: str, side: str = "") -> ConfigError:
    """The error, about an option: `url` is what gave the address; `side`: whose TLS options, if there are two."""
    dashes = f"--{side}-" if side else "--"
    match error.what:
        case "listen" | "dial":
            return ConfigError(url, error.why, error.value)
        case "tls" if error.why.startswith("a listener"):
            return ConfigError(f"{dashes}cert", f"a listener over TLS needs it, and {dashes}key")
        case "tls" if error.why.startswith("a dialer"):
            return ConfigError(f"{dashes}cacert", f"a dialler over TLS needs it, or {dashes}insecure")
        case _:
            return error
