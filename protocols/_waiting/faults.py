"""Errors of our own code in NNG's callbacks, in nngkit's threads and in a caller's thread, told from those of others.

They end one connection, or one try to connect, and are logged once with their traceback; the socket goes on. An
exception that a signal handler raises in the main thread looks the same where it is caught, and must reach the caller.

May not know: sockets, connections, NNG.
"""

from __future__ import annotations

import threading

from nngkit.errors import Broken


def check_ours(error: Exception) -> None:
    """Raise ``error`` again if a signal handler has raised it.

    The interpreter calls a handler with the frame that it interrupted, and that frame is the previous one in the
    traceback. Handlers written in C have no frame and are not recognized.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    interrupted, trace = None, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        for value in frame.f_locals.values():
            for argument in value if type(value) is tuple else (value,):
                if interrupted is not None and argument is interrupted:
                    raise error
        interrupted, trace = frame, trace.tb_next


def internal(error: Exception) -> Broken:
    """Return the reason for which a connection ends after ``error``."""
    return Broken(f"internal error: {type(error).__name__}: {error}")
