"""Exit codes, and the one for each error. Pure.

======  ================================================================================
code    meaning
======  ================================================================================
0       success
1       failure, among them a name or journal that is not found, a lock that another process has, a full disk
2       usage: a wrong option, address or environment variable. Starting it again is of no use
3       cannot connect or listen
4       timed out with nothing received
130     interrupted (SIGINT); 143 terminated (SIGTERM); 141 the reader of the output has gone
======  ================================================================================
"""

from __future__ import annotations

import errno
from typing import Final

from nngkit.errors import ConfigError, NngkitError, TimedOut, Unreachable

BROKEN_PIPE: Final = 141
INTERRUPTED: Final = 130
PASSING: Final = frozenset(
    getattr(errno, f"E{name}")
    for name in ("AGAIN", "BUSY", "DQUOT", "IO", "MFILE", "NFILE", "NOMEM", "NOSPC", "STALE", "TIMEDOUT")
)
"""Errors of the system that a setting meets and does not cause; EAGAIN is a lock that another process has."""
NOT_YET_VALID: Final = 9  # X509_V_ERR_CERT_NOT_YET_VALID of OpenSSL: a clock that is not set yet


def exit_code(error: NngkitError) -> int:
    """Return the exit code for `error`."""
    match error:
        case ConfigError():
            return 1 if _may_pass(error) else 2
        case Unreachable():
            return 3
        case TimedOut():
            return 4
        case _:
            return 1


def _may_pass(error: ConfigError) -> bool:
    """Return True if the same settings may be right later."""
    cause: BaseException | None = error
    while isinstance(cause, ConfigError) and cause.__cause__ is not cause:  # `raise error from error`
        cause = cause.__cause__
    if getattr(cause, "verify_code", 0) == NOT_YET_VALID:
        return True
    if isinstance(cause, FileNotFoundError):
        return error.what == "journal"  # which a recorder makes; other files are the user's
    # an error of OpenSSL, which has a `library`, has a number of its own
    return isinstance(cause, OSError) and not hasattr(cause, "library") and cause.errno in PASSING


def only(error: BaseException) -> NngkitError | None:
    """Return the nngkit error that `error` is or wraps; None if it is or wraps anything else.

    Nurseries wrap errors in groups. Of a group of nngkit errors alone, the first counts.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, BaseExceptionGroup) and all(only(each) for each in error.exceptions):
        error = error.exceptions[0]
        return only(error)
    return error if isinstance(error, NngkitError) else None
