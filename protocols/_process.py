"""NNG's three hazards to the process, answered once for every socket of ours.

NNG aborts a process that forks after first use and touches it in the child; an interpreter that exits with sockets open
may hang in NNG's own clean-up; and NNG's threads take signals that Python's main thread waits for.

May not know: what a socket does, event loops.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import weakref
from typing import Any, Protocol

import pynng

from nngkit.errors import Forked

from ._nng import lib, new_aio


def _cpus() -> int:
    """Return the number of CPUs of this process; all of the machine where the system knows no less (macOS, Windows)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return os.cpu_count() or 1 if affinity is None else len(affinity(0))


# NNG starts two threads a CPU for its callbacks, at most 16. More of them than CPUs only wait for each other's locks:
# docs/benchmarks.md has both. NNG starts them with its first socket, so this is said now; where another user of pynng
# was first, it has no effect.
lib.nng_init_set_parameter(lib.NNG_INIT_NUM_TASK_THREADS, max(2, min(16, _cpus())))
# Python runs signal handlers in the main thread, and what gets that out of read() or a lock is the signal itself. The
# kernel gives it to any thread that does not block it, and often to one that is just starting: Ctrl-C is then noted,
# and nobody looks until the wait is over (109 of 600 programs interrupted as they began to listen, six of them a CPU).
# So NNG's threads block all but faults, which would kill without a word of faulthandler's.
_FAULTS = {getattr(signal, f"SIG{name}", None) for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP")}
EXIT_SECONDS = 2.0  # what all open sockets together may take at interpreter exit: noticed, but not a hang


class Closeable(Protocol):
    """Part of a socket that the hazards use."""

    linger: float | None

    def close(self, linger: float | None) -> None: ...

    def _forked(self, error: Forked) -> None: ...


_open: weakref.WeakSet[Any] = weakref.WeakSet()
_child_of_user = False  # True in a child forked after NNG was used: NNG would abort the process
_starting = threading.Lock()
_started = False


def register(socket: Closeable) -> None:
    """Have ``socket``, still to be opened, closed at exit and told of a fork; block signals in NNG's threads.

    Raises Forked in a child that must not use NNG.
    """
    if _child_of_user:
        raise Forked("NNG was used before fork(): start this process with the 'spawn' method instead")
    with _starting:
        if not _started:
            # in a thread, as a mask that is to be put back can be left behind by a signal handler that raises
            thread = threading.Thread(target=_start, name="nngkit-start", daemon=True)
            thread.start()
            thread.join()
    _open.add(socket)


def block_signals() -> None:
    """Leave signals to other threads than this one, which is ours or NNG's."""
    if hasattr(signal, "pthread_sigmask"):  # Windows lacks it, and signals that go to a thread
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals().difference(_FAULTS))


def _start() -> None:
    """Have NNG start its threads: they inherit the signals this one blocks. No effect if NNG was in use before."""
    global _started
    block_signals()
    lib.nng_aio_free(new_aio())  # NNG starts all of its threads with the first thing it makes
    _started = True


def unregister(socket: Closeable) -> None:
    """The socket is closed: nothing to do for it any more."""
    _open.discard(socket)


def _after_fork() -> None:
    global _child_of_user
    _child_of_user = True
    reason = Forked("this socket was opened before fork(); NNG does not survive fork(): open it in the child's own run")
    for socket in list(_open):
        socket._forked(reason)
    _open.clear()
    # NNG's own clean-up at exit would wait for threads that did not come along
    atexit.unregister(lib.nng_fini)
    if (hook := getattr(pynng.nng, "_pynng_atexit", None)) is not None:
        atexit.unregister(hook)


def _close_all() -> None:
    end = time.monotonic() + EXIT_SECONDS
    for socket in list(_open):
        left = max(0.0, end - time.monotonic())
        socket.close(linger=left if socket.linger is None else min(socket.linger, left))


# Registered after pynng's own hook, so that it runs before it: NNG may only be torn down once nothing is open.
atexit.register(_close_all)
if hasattr(os, "register_at_fork"):  # Windows lacks it, and fork
    os.register_at_fork(after_in_child=_after_fork)
