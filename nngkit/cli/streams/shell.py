"""Shell commands that the program runs, in a process group of their own, which is killed whole at the end.

A command may leave children behind that hold its pipes open; killing the group ends them too. A Ctrl-C in a terminal
does not reach the group: the program decides. If the program is killed, the group is as well (tether.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from nngkit.cli.streams.tether import Tether

STDERR_KEPT: Final = 16 * 1024  # bytes at the end of a command's diagnostics; those before are dropped


@dataclass(frozen=True, slots=True)
class Ran:
    """End of a command: exit code (negative: killed by that signal), output, and how it was ended early, if it was."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    too_large: bool = False

    def failure(self) -> str:
        """Say how it failed; empty if it did not."""
        if self.timed_out:
            return "killed: it took too long"
        if self.too_large:
            return "killed: its output is too large"
        if self.code < 0:
            return f"ended by signal {-self.code}"
        return f"exit code {self.code}" if self.code else ""


def shell_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with these variables."""
    return {**os.environ, **variables}


async def kill_group(process: trio.Process) -> None:
    """Kill a process that was started in a session of its own, and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def run_shell(
    script: str,
    body: bytes,
    environment: Mapping[str, str],
    timeout: float,
    *,
    most: int | None = None,
    pass_fds: Sequence[int] = (),
) -> Ran:
    """Run `script` by /bin/sh with `body` as standard input, for at most `timeout` seconds.

    With `most`, standard output and errors are captured, up to that many bytes of output; else they are this
    process's. It has the descriptors `pass_fds`, too. The group is killed at the timeout, if cancelled, and if the
    output is too large.
    """
    captured = subprocess.PIPE if most is not None else None
    output, errors = bytearray(), bytearray()
    too_large = timed_out = False
    with Tether(script) as tether:
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    tether.command,
                    stdin=body,
                    stdout=captured,
                    stderr=captured,
                    check=False,
                    env=environment,
                    start_new_session=True,
                    pass_fds=(*pass_fds, *tether.pass_fds),
                    deliver_cancel=kill_group,
                )
            )

            tether.started(process.pid)

            async def read_errors() -> None:
                assert process.stderr is not None
                async for some in process.stderr:
                    errors.extend(some)
                    del errors[:-STDERR_KEPT]

            with trio.move_on_after(timeout) as limit:
                if most is not None:
                    assert process.stdout is not None
                    nursery.start_soon(read_errors)
                    async for some in process.stdout:
                        output.extend(some)
                        if len(output) > most:
                            too_large = True
                            break
                if not too_large:
                    await process.wait()
            timed_out = limit.cancelled_caught
            if timed_out or too_large:
                nursery.cancel_scope.cancel()
    assert process.returncode is not None
    return Ran(process.returncode, bytes(output), bytes(errors), timed_out, too_large)
