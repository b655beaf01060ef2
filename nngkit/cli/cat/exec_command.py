"""`--exec CMD`: replies made by a shell command. The message is its standard input, the reply its standard output.

NNGKIT_PROTOCOL and NNGKIT_PEER are in its environment. If it fails, there is no reply, and a line on standard error.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from nngkit.cli.cat.command_line.plan import Received
from nngkit.cli.streams.tether import Tether


def answer_by(script: str, protocol: str, say: Callable[[str], None]) -> Callable[[Received], bytes | None]:
    """Return a function that runs `script` on a message and returns the reply, or None if it failed."""

    def answer(received: Received) -> bytes | None:
        peer = "" if received.pipe is None else received.pipe.address
        environment = {**os.environ, "NNGKIT_PROTOCOL": protocol, "NNGKIT_PEER": peer}
        with (
            Tether(script) as tether,
            subprocess.Popen(
                tether.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                pass_fds=tether.pass_fds,
                process_group=0,
            ) as process,
        ):
            tether.started(process.pid)
            try:
                reply, _ = process.communicate(received.body)
            except BaseException:  # Ctrl-C, which does not reach its group
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode:
            how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
            say(f"--exec: {script}: {how}, no reply sent")
            return None
        return reply

    return answer
