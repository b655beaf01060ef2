"""Exit codes, and the one for each error. Pure.

======  ================================================================================
code    meaning
======  ================================================================================
0       success
1       failure, among them a name that is not found
2       usage: a wrong option, address or environment variable
3       cannot connect or listen
4       timed out with nothing received
130     interrupted (SIGINT); 143 terminated (SIGTERM); 141 the reader of the output has gone
======  ================================================================================
"""

from __future__ import annotations

from typing import Final

from nngkit.errors import ConfigError, NngkitError, TimedOut, Unreachable

BROKEN_PIPE: Final = 141
INTERRUPTED: Final = 130


def exit_code(error: NngkitError) -> int:
    """Return the exit code for `error`."""
    match error:
        case ConfigError():
            return 2
        case Unreachable():
            return 3
        case TimedOut():
            return 4
        case _:
            return 1


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
