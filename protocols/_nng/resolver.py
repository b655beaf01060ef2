"""Names looked up by the system's resolver, in a few daemon threads that nothing waits for at exit.

A name without an answer from its DNS server keeps a thread for as long as the system's resolver tries (10 s and more).
So lookups of one name are shared while they last; there are at most ``MOST`` threads; and names whose last lookup was
slow get at most ``SLOW`` of them, after all others. If all are busy, further names wait for the first that ends.
Numbers and ``localhost`` need no lookup (``_names.py``). Nothing is cached.

May not know: NNG, sockets, dialers.
"""

from __future__ import annotations

import logging
import socket as sockets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Protocol
from weakref import ref

from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.names import Number, found, known
from nngkit.protocols._nng.process import block_signals
from nngkit.protocols._waiting.alarm import Alarm

log = logging.getLogger("nngkit.protocols")

MOST: Final = 16  # threads
SLOW: Final = 8  # of them, for names whose last lookup was slow
PATIENCE: Final = 1.0  # seconds: servers answer in milliseconds, and the resolver asks again after 5 s
IDLE: Final = 10.0  # seconds until an idle thread ends
REMEMBERED: Final = 1024  # slow names, the latest ones

Key = tuple[str, int]  # host; IP version, 0 for both


class Requester(Protocol):
    """An object that wants the addresses of a name, until it is ``closed``."""

    @property
    def closed(self) -> bool: ...

    def found(self, numbers: tuple[Number, ...], reason: str) -> None:
        """Take the answer, on a thread of the resolver. Without numbers, the reason says why."""


class _Lookup:
    """A lookup in progress or in a queue, and its requesters."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.requesters: list[ref[Requester]] = []

    def wanted_by(self) -> list[Requester]:
        """Return the requesters that still want the answer."""
        return [requester for each in self.requesters if (requester := each()) is not None and not requester.closed]


_condition = threading.Condition()
_lookups: dict[Key, _Lookup] = {}
_waiting: tuple[deque[_Lookup], deque[_Lookup]] = (deque(), deque())  # quick and slow names
_slow_names: OrderedDict[Key, None] = OrderedDict()
_threads = _idle = _slow = 0  # threads; those without a lookup; those with one of a slow name


def lookup(host: str, version: int, requester: Requester) -> None:
    """Look up a name for ``requester``, which is not kept alive. Does not wait.

    ``version``: 4, 6, or 0 for both. Called on the alarm thread, where no signal handler interrupts it.
    """
    global _threads
    key = host, version
    with _condition:
        if (going := _lookups.get(key)) is None:
            going = _lookups[key] = _Lookup(key)
            _waiting[key in _slow_names].append(going)
        going.requesters.append(ref(requester))
        _condition.notify()
        # an idle thread that was notified has not taken its lookup yet
        if sum(map(len, _waiting)) > _idle and _threads < MOST:
            threading.Thread(target=_run, name="nngkit-resolver", daemon=True).start()
            _threads += 1


def _run() -> None:
    global _slow
    block_signals()
    while (taken := _next()) is not None:
        going, slow = taken
        began = time.monotonic()
        numbers, reason = _ask(going.key)
        with _condition:
            _lookups.pop(going.key)
            _slow_names.pop(going.key, None)
            if time.monotonic() - began > PATIENCE:
                _slow_names[going.key] = None
                if len(_slow_names) > REMEMBERED:
                    _slow_names.popitem(last=False)
            if slow:
                _slow -= 1
                _condition.notify()
        for requester in going.wanted_by():
            try:
                requester.found(numbers, reason)
            except Exception:
                log.exception("the user of a lookup failed")


def _next() -> tuple[_Lookup, bool] | None:
    """Wait for the next lookup; return it, and whether its name was slow. None: this thread is no longer needed."""
    global _idle, _slow, _threads
    quick_names, slow_names = _waiting
    woken = True
    with _condition:
        while True:
            while quick_names or (slow_names and _slow < SLOW):
                slow = not quick_names
                going = (slow_names if slow else quick_names).popleft()
                if going.wanted_by():
                    _slow += slow
                    return going, slow
                del _lookups[going.key]
            if not woken:
                _threads -= 1
                return None
            _idle += 1
            woken = _condition.wait(IDLE)
            _idle -= 1


def _ask(key: Key) -> tuple[tuple[Number, ...], str]:
    host, version = key
    family = {0: sockets.AF_UNSPEC, 4: sockets.AF_INET, 6: sockets.AF_INET6}[version]
    try:
        numbers = found(sockets.getaddrinfo(host, None, family, sockets.SOCK_STREAM))
    except sockets.gaierror as error:
        return (), f"{host} has no address: {error.strerror}"
    except (OSError, UnicodeError) as error:
        return (), f"{host} has no address: {error}"
    return numbers, "" if numbers else f"{host} has no address"


class Question:
    """The addresses of the host in ``address``, which is dialed or listened at.

    ``answered()`` is called when ``numbers`` are there, or the ``reason`` why there are none. If the host needs no
    lookup, that is at once. ``close`` ends the question. Raises ConfigError.
    """

    def __init__(self, what: str, address: Address, answered: Callable[[], None]) -> None:
        self.host = address.host
        self._version = address.version
        self._answered = answered
        self.closed = False
        self.numbers = known(what, address) or ()
        self.reason = f"{self.host}: no answer from the resolver"
        if self.numbers:
            self.found(self.numbers, "")
        else:
            self._alarm = Alarm(self._ask)
            self._alarm.now()

    def _ask(self) -> None:
        lookup(self.host, self._version, self)

    def found(self, numbers: tuple[Number, ...], reason: str) -> None:
        """Take the answer."""
        self.numbers, self.reason = numbers, reason
        self.closed = True
        self._answered()

    def close(self) -> None:
        """No longer want the answer."""
        self.closed = True
