"""Good-bye on SIGTERM, for programs that leave that signal alone.

A program that handles SIGTERM itself leaves its `async with Service(...)` in its own way, and the service says good-bye
there. One that does not is ended by the kernel, in mid-sentence. For the latter a handler is put where Python's default
is, and only there: it has every service in this process say good-bye, and then lets the signal do what it would have
done. A second SIGTERM does that at once.

Only the main thread may set handlers: a service under trio in another thread is covered once the main thread has called
`install` (nngkit.blocking does). May not know: what a good-bye is.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["covered", "gone", "install", "on_sigterm"]

_leaving: dict[object, Callable[[], None]] = {}  # who has to be told, and how; the calls must be quick and never wait
_received = False


def on_sigterm(call: Callable[[], None]) -> object:
    """Have `call` run, in the main thread, when SIGTERM comes; `gone` with what is returned ends that."""
    key = object()
    _leaving[key] = call
    install()
    return key


def gone(key: object) -> None:
    """It has said good-bye, or needs not. After the last one the process ends, if SIGTERM came."""
    if _leaving.pop(key, None) is None or _leaving:
        return
    if _received:
        os.kill(os.getpid(), signal.SIGTERM)
    elif _in_main_thread() and signal.getsignal(signal.SIGTERM) is _handle:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def install() -> None:
    """Take SIGTERM over, if this is the main thread and nobody else has."""
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _handle)


def covered() -> bool:
    """Whether SIGTERM is ours at the moment."""
    return signal.getsignal(signal.SIGTERM) is _handle


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handle(number: int, frame: FrameType | None) -> None:
    global _received
    _received = True
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for call in list(_leaving.values()):
        call()
    if not _leaving:
        os.kill(os.getpid(), signal.SIGTERM)
