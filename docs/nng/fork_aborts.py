"""In a forked child of a process that has used NNG, any call aborts the process.

pynng 0.9.0 (NNG 1.11.0). NNG does not support fork; opening a new socket in the child aborts as well.
Expected: an error code.
Observed: the child ends by SIGABRT, and one that calls nothing hangs in NNG's atexit hook.
"""

import os
import signal
import sys
import time

import pynng
from _harness import done

pair = pynng.Pair0(listen="tcp://127.0.0.1:0")


def ends(what):
    """Run `what` in a forked child; return how it ended within 3 s."""
    if not (forked := os.fork()):
        os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
        what()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        pid, status = os.waitpid(forked, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)
    return "hang"


def close():
    pair.close()
    os._exit(0)


def open_another():
    pynng.Pair0()
    os._exit(0)


found = {"close": ends(close), "a new socket": ends(open_another), "sys.exit": ends(sys.exit)}
endings = ", ".join(f"{what}: {code}" for what, code in found.items())
done(f"in the child: {endings}", found["a new socket"] == -signal.SIGABRT)
