"""Messages to a service manager, by sd_notify(3): ready, alive, stopping. Nothing is sent unless NOTIFY_SOCKET is set.

`WATCHDOG=1` comes from the loop itself, twice in each WATCHDOG_USEC: a loop that hangs is restarted by systemd.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Final

from nngkit.cli.streams.stderr import one_line

HALF: Final = 0.5  # of the time after which the manager gives up, as sd_watchdog_enabled(3) advises
_last = 0.0


def ready(status: str) -> None:
    """Tell that the daemon serves, and how: `status` for people. Under trio it tells from now on that its loop runs."""
    if not _send("READY=1", f"STATUS={one_line(status)}") or not _pause():
        return
    import trio

    if trio.lowlevel.in_trio_run():
        trio.lowlevel.spawn_system_task(_say_alive)


def stopping() -> None:
    """Tell that the daemon ends."""
    _send("STOPPING=1")


def alive() -> None:
    """Tell that the loop runs, if it is time to: for a loop that is not trio's."""
    global _last
    if (pause := _pause()) and (now := time.monotonic()) >= _last + pause:
        _last = now
        _send("WATCHDOG=1")


async def _say_alive() -> None:
    import trio

    pause = _pause()
    while True:
        _send("WATCHDOG=1")
        await trio.sleep(pause)


def _pause() -> float:
    """Return the seconds between two messages, 0 if the manager wants none of this process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    return HALF * int(microseconds) / 1e6 if microseconds.isascii() and microseconds.isdigit() else 0.0


def _send(*words: str) -> bool:
    """Send; return False without a manager. One that does not read, or is gone, gets nothing."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        out.sendto("\n".join(words).encode(), f"\0{path[1:]}" if path[0] == "@" else path)
    return True
