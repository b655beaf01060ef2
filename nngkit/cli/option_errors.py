"""Errors of a socket's settings, renamed to the options of the command. Pure."""

from __future__ import annotations

from nngkit.errors import ConfigError


def named(error: ConfigError, url: str, side: str = "") -> ConfigError:
    """Return the error with the name of the option: `url` for the address, `side` for TLS options of one side."""
    dashes = f"--{side}-" if side else "--"
    match error.what:
        case "listen" | "dial":
            return ConfigError(url, error.why, error.value)
        case "tls" if error.why.startswith("a listener"):
            return ConfigError(f"{dashes}cert", f"a listener over TLS needs it, and {dashes}key")
        case "tls" if error.why.startswith("a dialer"):
            return ConfigError(f"{dashes}cacert", f"a dialer over TLS needs it, or {dashes}insecure")
        case _:
            return error
