"""Shell commands that end with this process, however it ends: SIGKILL leaves it no time to end them.

::

    with Tether(script) as tether:
        process = subprocess.Popen(tether.command, start_new_session=True, pass_fds=tether.pass_fds)
        tether.started(process.pid)
        process.wait()

One guard, a shell that this process starts with its first command, reads from a pipe which groups run. At the end of
the pipe this process is dead, and the guard kills what descends from their leaders, also in groups of its own, and the
groups. What has left its tree, as daemons do, stays. A command begins once the guard knows its group: until then it
waits for a line from this process, and ends without one.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

GUARD: Final = """\
while read verb group; do
    case $verb in
        run) eval "group_$group=$group" ;;
        end) unset "group_$group" ;;
    esac
done
below() { for child in $(cat /proc/"$1"/task/*/children 2>&-); do below "$child"; echo "$child"; done; }
for group in $(set | sed -n 's/^group_\\([0-9]*\\)=.*/\\1/p'); do
    kill -9 $(below "$group") -"$group" 2>&-
done
"""
NAME: Final = "nngkit-guard"  # as process lists show it
BEGIN: Final = 'read line <"$1" && exec /bin/sh -c "$0"'


class _Guard:
    """The guard of this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._end)

    def _end(self) -> None:
        if self._process is not None:
            self._process.communicate()  # it has nothing to do, and ends

    def tell(self, verb: str, group: int) -> None:
        """Tell it that a group runs, or has ended. It is started if it does not run."""
        if self._process is None or self._process.poll() is not None:
            null = subprocess.DEVNULL
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, NAME], stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it was killed at this moment
            os.write(self._process.stdin.fileno(), f"{verb} {group}\n".encode())


_GUARD: Final = _Guard()


class Tether:
    """Tie between one command, which needs a process group of its own, and this process."""

    def __init__(self, script: str) -> None:
        self._reading, self._writing = os.pipe()
        self._group: int | None = None
        self.command = ["/bin/sh", "-c", BEGIN, script, f"/dev/fd/{self._reading}"]
        self.pass_fds = (self._reading,)

    def started(self, group: int) -> None:
        """Let the command begin. `group`: its process group, the pid of its leader."""
        self._group = group
        _GUARD.tell("run", group)
        with suppress(BrokenPipeError):  # it was killed
            os.write(self._writing, b"\n")
        self._close()

    def end(self) -> None:
        """Forget the command: it has ended. What it has left behind goes on. Idempotent."""
        self._close()
        if self._group is not None:
            _GUARD.tell("end", self._group)
            self._group = None

    def _close(self) -> None:
        for end in (self._reading, self._writing):
            if end >= 0:
                os.close(end)
        self._reading = self._writing = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
