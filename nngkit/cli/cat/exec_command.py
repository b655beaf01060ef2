"""`--exec CMD`: replies made by a shell command. The message is its standard input, the reply its standard output.

NNGKIT_PROTOCOL and NNGKIT_PEER are in its environment. If it fails, there is no reply, and a line on standard error.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from nngkit.cli.cat.plan import Received

__all__ = ["answer_by"]


def answer_by(script: str, protocol: str, say: Callable[[str], None]) -> Callable[[Received], bytes | None]:
    """Return a function that runs `script` on a message and returns the reply, or None if it failed."""

    def answer(received: Received) -> bytes | None:
        peer = "" if received.pipe is None else received.pipe.address
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            input=received.body,
            stdout=subprocess.PIPE,
            env={**os.environ, "NNGKIT_PROTOCOL": protocol, "NNGKIT_PEER": peer},
            check=False,
        )
        if done.returncode:
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
            say(f"--exec: {script}: {how}, no reply sent")
            return None
        return done.stdout

    return answer
