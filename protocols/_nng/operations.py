"""NNG operations (aios) and their owners: started here, completed on NNG's threads, freed after the last callback.

Three rules keep memory valid; docs/nng.md has the findings behind them:

* An operation is posted only while none is in progress on the same aio. A second one aborts the process.
* An aio is freed by ``nng_aio_reap`` when its last callback has come, never inside that callback.
* A dialer or listener is freed by a thread of ours (``apart``): that waits for NNG's threads, which run the callbacks.

So an owner of aios stays in ``_ending`` from its close until it is freed. May not know: streams, messages.
"""

from __future__ import annotations

import itertools
import logging
import operator
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final

from nngkit.protocols._nng.library import ffi, lib, new_aio
from nngkit.protocols._nng.process import block_signals

log = logging.getLogger("nngkit.protocols")

CALLBACKS: Final = 5.0  # seconds that a close waits for NNG's callbacks; they come at once unless the machine stalls

_numbers = itertools.count(1)
_owners: dict[int, Owner] = {}
_ending: dict[int, Owner] = {}  # closed, with callbacks still to come
_some_ended = threading.Condition()


def _failed(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    log.error("error in a completion callback", exc_info=error)


# an owner handles its errors; what it does not is logged, as cffi would only print it
@ffi.callback("void (*)(void *)", onerror=_failed)  # type: ignore[untyped-decorator]
def _completed(argument: Any) -> None:
    number = int(ffi.cast("uintptr_t", argument))
    owner = _owners.get(number >> 2)
    if owner is not None:
        owner.completed(number & 3)


def atomically(*calls: tuple[Any, ...]) -> None:
    """Make the calls, each (function, *arguments) into C; no signal handler runs between them."""
    deque(itertools.starmap(operator.call, calls), 0)


_apart: SimpleQueue[Callable[[], None]] = SimpleQueue()
_starting = threading.Lock()
_thread: threading.Thread | None = None


def apart(call: Callable[[], None]) -> None:
    """Make ``call`` on the freeing thread, after all earlier ones. On any thread; does not wait."""
    _apart.put(call)


def _run_apart() -> None:
    block_signals()
    while True:
        try:
            _apart.get()()
        except Exception:
            log.exception("an object of NNG was not freed")


def _start() -> None:
    global _thread
    with _starting:
        if _thread is None:
            # daemon: the close of a socket waits for what it has to free
            _thread = threading.Thread(target=_run_apart, name="nngkit-freeing", daemon=True)
            _thread.start()


class Owner:
    """Owner of operations in progress, kept alive until it is closed. ``number`` is unique in the process."""

    def __init__(self) -> None:
        if _thread is None:
            _start()
        self.number = next(_numbers)
        _owners[self.number] = self

    def aio(self, which: int) -> Any:
        """Return a new aio whose completions call ``completed(which)``; ``which`` is 0 to 3."""
        return new_aio(_completed, ffi.cast("void *", self.number << 2 | which))

    def completed(self, which: int) -> None:
        """Handle the end of an operation. Called on an NNG thread."""
        raise NotImplementedError

    def ending(self) -> None:
        """Stay alive until ``ended``: callbacks are pending. No effect after it."""
        if not self.freed:
            _ending[self.number] = self

    @property
    def freed(self) -> bool:
        """True after ``ended``."""
        return self.number not in _owners

    def ended(self, *aios: Any, frees: Sequence[tuple[Any, ...]] = ()) -> None:
        """Free the aios: no callback is pending, except one that may be calling this. Idempotent.

        ``frees``: calls made before that, in the same step.
        """
        if self.freed:
            return
        reaps = [(lib.nng_aio_reap, aio) for aio in aios]
        atomically(*frees, *reaps, (_owners.pop, self.number, None), (_ending.pop, self.number, None))
        with _some_ended:
            _some_ended.notify_all()


def wait_until_ended(numbers: list[int], timeout: float) -> list[Owner]:
    """Block until the owners with those numbers have had their last callback; return the others.

    NNG has ended their operations already, so only its threads' scheduling is waited for, for ``timeout`` seconds.
    """
    if any(number in _ending for number in numbers):
        with _some_ended:
            _some_ended.wait_for(lambda: not any(number in _ending for number in numbers), timeout)
    return [owner for number in numbers if (owner := _ending.get(number)) is not None]
