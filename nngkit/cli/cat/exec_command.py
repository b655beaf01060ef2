"""`--exec CMD`: a shell command that answers. Its standard input is the message, its standard output the answer.

NNGKIT_PROTOCOL and NNGKIT_PEER are in its environment. One that fails gives no answer, and is a line on standard error.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from nngkit.cli.cat.plan import Received

__all__ = ["answer_by"]


def answer_by(script: str, protocol: str, say: Callable[[str], None]) -> Callable[[Received], bytes | None]:
    """What makes an answer of a message by running `script`, one at a time; None where it failed."""

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
            say(f"--exec: {script}: {how}, so there is no answer")
            return None
        return done.stdout

    return answer
