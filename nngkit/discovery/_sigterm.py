"""Goodbyes on SIGTERM, for programs that leave that signal at its default.

A program that handles SIGTERM itself leaves its `async with Service(...)`, and the service says goodbye there. Without
a handler the kernel ends the process at once. For that case a handler is installed where Python's default stands, and
only there: every service of the process says goodbye, then the signal takes its default effect. A second SIGTERM takes
it immediately.

Only the main thread may set handlers: a service under trio in another thread is covered once the main thread has called
`install` (nngkit.blocking does). Knows nothing about the content of a goodbye.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_callbacks: dict[object, Callable[[], None]] = {}  # one for each service; they must be quick and never wait
_received = False


def on_sigterm(call: Callable[[], None]) -> object:
    """Register `call` to run in the main thread on SIGTERM; return the key for `gone`."""
    key = object()
    _callbacks[key] = call
    install()
    return key


def gone(key: object) -> None:
    """Unregister a callback, done or not needed. After a SIGTERM, the last one ends the process."""
    if _callbacks.pop(key, None) is None or _callbacks:
        return
    if _received:
        os.kill(os.getpid(), signal.SIGTERM)
    elif _in_main_thread() and signal.getsignal(signal.SIGTERM) is _handle:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def install() -> None:
    """Install the handler, if this is the main thread and SIGTERM is at its default."""
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _handle)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handle(number: int, frame: FrameType | None) -> None:
    global _received
    _received = True
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for call in list(_callbacks.values()):
        call()
    if not _callbacks:
        os.kill(os.getpid(), signal.SIGTERM)
