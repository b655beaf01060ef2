"""Errors of commands with what refusals add: which address refuses which name, by which code, and what helps."""

from __future__ import annotations

import sys

from nngkit.errors import AccessDenied, ConfigError, EditRefused, NngkitError, RemoteError


def explained(error: NngkitError) -> str:
    """Return the text of an error, with refusals of this process that stand, and the line that a policy lacks."""
    text = str(error)
    standing = sys.modules.get("nngkit.trust.standing")  # without it nothing was dialed
    if standing is None or isinstance(error, ConfigError):
        return text
    if isinstance(error, AccessDenied | EditRefused | RemoteError):
        from nngkit.trust.refusals import missing_line

        line = missing_line(text)
        return f"{text}: {line}" if line and line not in text else text
    return text + "".join(f"; {each}" for each in standing.standing() if each.reason not in text)
