"""Processes that end with the one that started them, even if that is killed: Linux's PR_SET_PDEATHSIG."""

from __future__ import annotations

import ctypes
import os
import signal

TIED = ("setpriv", "--pdeathsig", "KILL")  # words before those of a program; setpriv is of util-linux, and execs it
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
_libc = ctypes.CDLL(None, use_errno=True)


def tie() -> None:
    """Have the kernel kill this process, which was just forked, when the thread that forked it ends."""
    if _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() == 1:  # it has ended already
        os._exit(1)
