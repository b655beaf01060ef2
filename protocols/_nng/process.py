"""NNG's four hazards to the process, handled once for all sockets.

NNG aborts a process that uses it before and after a fork; an interpreter that exits with open sockets may hang in NNG's
own clean-up; NNG's threads take signals that Python's main thread waits for; and a dialer that is freed while its
lookup completes aborts the process.

May not know: messages, event loops.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import Any, Final, Protocol

import pynng

from nngkit.errors import Forked
from nngkit.protocols._nng.library import lib, new_aio


def _cpus() -> int:
    """Return the number of CPUs of this process, or of the machine if the system has no affinity (macOS, Windows)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return os.cpu_count() or 1 if affinity is None else len(affinity(0))


# NNG starts two callback threads per CPU, at most 16. More threads than CPUs only wait for each other's locks
# (docs/benchmarks.md has both). NNG starts them with its first object, so the number is set here. It has no effect if
# another user of pynng was first.
lib.nng_init_set_parameter(lib.NNG_INIT_NUM_TASK_THREADS, max(2, min(16, _cpus())))
# Python runs signal handlers in the main thread, and the signal itself interrupts its read() or lock. The kernel
# delivers a signal to any thread that does not block it, often to one that is just starting: Ctrl-C is then noted but
# not handled until the wait ends (109 of 600 programs interrupted as they began to listen, six of them per CPU). So
# NNG's threads block all signals but faults; blocking those would end the process without faulthandler's report.
_FAULTS = {getattr(signal, f"SIG{name}", None) for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP")}
EXIT_SECONDS = 2.0  # seconds to close all open sockets at interpreter exit: noticeable, but not a hang
# Seconds between the close of a dialer that dials and its free: NNG's threads may still be completing its lookup, which
# is not waited for (docs/nng/stream_dialer_free.py). That takes microseconds, and longer only on a machine that stalls.
BEFORE_FREE: Final = 5.0
BEFORE_FREE_AT_EXIT: Final = 0.05  # of the last one: NNG's clean-up aborts the process if a lookup is not over


class Closeable(Protocol):
    """Part of a socket that this module uses."""

    linger: float | None

    def close(self, linger: float | None) -> None: ...

    def _forked(self, error: Forked) -> None: ...


_open: weakref.WeakSet[Any] = weakref.WeakSet()
_in_use = False  # at the last fork: NNG was running
_child_of_user = False  # True in a child forked after NNG was used: using it again would abort the process
_starting = threading.Lock()
_started = False
_dialers: deque[tuple[float, Any]] = deque()  # closed and not freed, with the times


def register(socket: Closeable) -> None:
    """Close ``socket``, which is about to be opened, at exit, and notify it of a fork; block signals in NNG's threads.

    Raises Forked in a child that must not use NNG.
    """
    if _child_of_user:
        raise Forked("NNG was used before fork(): start this process with the 'spawn' method instead")
    with _starting:
        if not _started:
            # in a thread: a signal handler that raises could prevent this thread from restoring its mask
            thread = threading.Thread(target=_start, name="nngkit-start", daemon=True)
            thread.start()
            thread.join()
    _open.add(socket)


def block_signals() -> None:
    """Block all signals but faults in the calling thread, which is ours or NNG's."""
    if hasattr(signal, "pthread_sigmask"):  # Windows has neither it nor signals to a thread
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals().difference(_FAULTS))


def _start() -> None:
    """Make NNG start its threads, which inherit this thread's signal mask. No effect if NNG was used before."""
    global _started
    block_signals()
    lib.nng_aio_free(new_aio())  # NNG starts all of its threads with its first object
    _started = True


def free_later(dialer: Any) -> None:
    """Free a dialer whose close has ended its dial, when a later one comes or at exit. On the freeing thread."""
    _dialers.append((time.monotonic(), dialer))
    _free_dialers(BEFORE_FREE)


def _free_dialers(age: float) -> None:
    while _dialers and _dialers[0][0] + age <= time.monotonic():
        lib.nng_stream_dialer_free(_dialers.popleft()[1])


def unregister(socket: Closeable) -> None:
    """Forget a closed socket."""
    _open.discard(socket)


def _is_running() -> bool:
    """Return True if NNG runs in this process, started by us or by another user of pynng; True if that is not known."""
    if _started or sys.platform != "linux":
        return True
    for thread in Path("/proc/self/task").iterdir():
        try:
            if thread.joinpath("comm").read_bytes().startswith(b"nng:"):
                return True
        except OSError:  # this thread has just ended
            continue
    return False


def _before_fork() -> None:
    global _in_use
    _in_use = _starting.locked() or _is_running()


def _after_fork() -> None:
    global _child_of_user
    if not (_in_use or _child_of_user):  # NNG was loaded and not used: the child may use it
        return
    _child_of_user = True
    reason = Forked(
        "this socket was opened before fork(), which NNG does not survive: open a new one in a spawned process"
    )
    for socket in list(_open):
        socket._forked(reason)
    _open.clear()
    _dialers.clear()
    # NNG's clean-up at exit would wait for threads that do not exist in the child
    atexit.unregister(lib.nng_fini)
    if (hook := getattr(pynng.nng, "_pynng_atexit", None)) is not None:
        atexit.unregister(hook)


def _close_all() -> None:
    end = time.monotonic() + EXIT_SECONDS
    for socket in list(_open):
        left = max(0.0, end - time.monotonic())
        socket.close(linger=left if socket.linger is None else min(socket.linger, left))
    if _dialers:  # the freeing thread is idle now
        time.sleep(BEFORE_FREE_AT_EXIT)
        _free_dialers(0.0)


# Registered after pynng's hook, so it runs before it: NNG may be torn down only after all sockets are closed.
atexit.register(_close_all)
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
