"""Dialers: connect to an address, and reconnect. Independent of SP, messages and nngkit's sockets.

::

    look up the name (`_resolver.py`) -> attempts at its addresses (`_race.py`) -> connected, or a pause and a new try

A dialer that is refused pauses as long as it has been refused already, less a random part. So it is not refused for
longer than twice the time for which it would have to be, and a stranger asks 3 times a minute at last. It tries at once
when what it shows has changed, and soon where the listener's pass has ended.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from nngkit.errors import Closed, NngkitError
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.attempt import Attempt
from nngkit.protocols._nng.library import strerror
from nngkit.protocols._nng.listener import Listener
from nngkit.protocols._nng.names import Number, known
from nngkit.protocols._nng.resolver import lookup
from nngkit.protocols._nng.streams import close
from nngkit.protocols._nng.tls import Security, contexts
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._wire.race import Race, interleaved, limit_of
from nngkit.trust import standing
from nngkit.trust.refusals import ends_with_a_pass
from nngkit.trust.standing import Refusal

log = logging.getLogger("nngkit.protocols")

SHORTEST: Final = 0.05  # seconds between the first two tries of a dialer
REASONS: Final = 4  # failed addresses that ``problem`` names
REFUSED: Final = 30.0  # seconds between two tries of a dialer that is refused, at most ...
# ... and of one that refuses the listener, as its pass has ended: it has no peers that tries would disturb
RENEWED: Final = 2.0
LOOK: Final = 0.5  # seconds between two looks whether its certificate or its policy is another one meanwhile


class Dialer:
    """Connect to ``address``, again and again until it succeeds, and again after ``lost``.

    Each try looks up a name anew, so it finds one that has moved. ``connected(stream, descriptor, dialer, link)`` is
    called on an NNG thread (inproc, shm: the alarm thread) and owns the stream; ``descriptor`` is None if unknown, and
    ``link`` is None but for shm. ``longest``: seconds between two tries at most. ``meet`` connects in place of NNG and
    returns stream, descriptor and link. Raises ConfigError for an unusable address.
    """

    def __init__(
        self,
        address: Address,
        tls: Security | None,
        longest: float,
        connected: Callable[[Any, int | None, Dialer, Any], None],
        priority: int,
        meet: Callable[[Address], tuple[Any, int | None, Any]] | None = None,
    ) -> None:
        self.address = address
        self.priority = priority
        self.problem = ""  # why the last try has failed
        self._connected = connected
        self._meet = _meet if address.scheme == "inproc" else meet
        self._longest = longest
        self._pause = min(SHORTEST, longest)
        self._lock = threading.Lock()
        self._closed = False
        self.refusal: Refusal | None = None  # that stands
        self._shows_anew = False  # what the present try shows was not refused yet
        self._refused_with: object = None  # OpenSSL's settings: others if files have changed
        self._due = 0.0  # time of the next try
        self._numbers = known("dial", address) if address.ported else None
        self._tries = 0  # since it was last connected
        self._race: Race | None = None
        self._racers: Sequence[Number | None] = ()  # its addresses
        self._racing: dict[int, Attempt] = {}  # its attempts in progress, by index
        self._failures: list[str] = []  # its failed attempts
        self._attempts: list[Attempt] = []  # all that are not freed
        self.contexts = contexts(tls, address, "dial")
        self._alarm = Alarm(self._begin)

    @property
    def closed(self) -> bool:
        """True once ``close`` has begun."""
        return self._closed

    @property
    def numbers(self) -> list[int]:
        """Numbers of the owners whose end a close waits for."""
        return [attempt.number for attempt in self._attempts]

    def start(self) -> None:
        """Make the first try."""
        self._alarm.now()

    # ------------------------------------------------------------------ a try

    def _begin(self) -> None:
        """Begin a try. On the alarm thread."""
        if self._closed:
            return
        self._tries += 1
        if self.refusal is not None and (shown := self._shown()) is not self._refused_with:
            self._shows_anew, self._refused_with = self._refused_with is not None, shown
        if self._meet is not None:
            self._connect(self._meet)
        elif not self.address.ported:
            self._run((None,))
        elif self._numbers is not None:
            self._run(self._numbers)
        else:
            self.problem = self.problem or f"{self.address.host} is being looked up"
            lookup(self.address.host, self.address.version, self)

    def found(self, numbers: Sequence[Number], reason: str) -> None:
        """Continue with the answer of a lookup, on its thread."""
        if numbers:
            self._run(interleaved(numbers, attrgetter("version")))
        else:
            self.problem = reason
            self._retry()

    def _run(self, numbers: Sequence[Number | None]) -> None:
        """Begin a race between addresses; None is one that is no number."""
        with self._lock:
            self._failures.clear()
            self._attempts = [attempt for attempt in self._attempts if not attempt.freed]
            self._racers = numbers
            self._race = Race(len(numbers), time.monotonic(), limit_of(self._tries))
        self._step()

    def _step(self) -> None:
        """Start and stop attempts."""
        with self._lock:
            race, now = self._race, time.monotonic()
            if race is None or self._closed:
                return
            step = race.step(now)
            for index in step.stop:
                self._failed(index, f"no answer in {race.limit:g} s")
                self._racing.pop(index).stop()
            for index in step.start:
                try:
                    attempt = Attempt(self.address, self._racers[index], index, self._completed)
                except Exception as error:
                    if not isinstance(error, NngkitError | OSError):
                        log.exception("%s: an attempt failed", self.address.url)
                    race.failed(index, now)
                    self._failed(index, str(error))
                else:
                    self._attempts.append(attempt)
                    self._racing[index] = attempt
                    attempt.start()
            if not race.over:
                self._schedule(self._step, race.due - now)
                return
            self._race = None
            self.problem = "; ".join(self._failures[:REASONS])
        self.no_refusal()
        self._retry()

    def _failed(self, index: int, reason: str) -> None:
        number = self._racers[index]
        named = number is not None and str(number) != self.address.host
        self._failures.append(f"{number}: {reason}" if named else reason)

    def _completed(self, attempt: Attempt, code: int, stream: Any) -> None:
        """Take the outcome of an attempt, on an NNG thread."""
        won = False
        with self._lock:
            race, index = self._race, attempt.index
            ours = self._racing.get(index) is attempt
            if ours:
                del self._racing[index]
            if ours and race is not None and not self._closed:
                if stream is None:
                    race.failed(index, time.monotonic())
                    self._failed(index, strerror(code))
                    self._schedule(self._step, 0.0)
                else:
                    won = True
                    for each in race.connected(index):
                        self._racing.pop(each).stop()
                    self._race = None
                    self._tries = 0
                    self.problem = ""
                    self._alarm.close()
        if won:
            self._connected(stream, attempt.descriptor(stream), self, None)
        elif stream is not None:
            close(stream)

    def _connect(self, meet: Callable[[Address], tuple[Any, int | None, Any]]) -> None:
        try:
            stream, descriptor, link = meet(self.address)
        except (NngkitError, OSError):
            self.problem = "no listener"
            self.no_refusal()
            self._retry()
        else:
            self.problem = ""
            self._connected(stream, descriptor, self, link)

    # ------------------------------------------------------------------ between tries

    def _schedule(self, what: Callable[[], None], seconds: float) -> None:
        """Call ``what`` in ``seconds``, and not what was scheduled before."""
        self._alarm.close()
        self._alarm = Alarm(what)
        self._alarm.set(seconds)

    def _retry(self) -> None:
        # random, so that peers that lost the same listener do not return all at once
        pause = self._pause * random.uniform(0.5, 1.0)
        self._pause = min(self._pause * 2, self._longest)
        with self._lock:
            if not self._closed:
                self._schedule(self._begin, pause)

    def lost(self, *, joined: bool, refusal: Refusal | None = None) -> None:
        """Try again, as the connection has ended. ``joined``: it had joined, so the pauses start from the shortest."""
        if joined:
            self._pause = min(SHORTEST, self._longest)
        if refusal is None:
            self._retry()
            return
        now = time.monotonic()
        since = standing.note(refusal, anew=self._shows_anew)
        self.refusal, self._shows_anew = refusal, False
        longest = RENEWED if ends_with_a_pass(refusal.reason) else REFUSED
        pause = min(longest, max(SHORTEST, now - since)) * random.uniform(0.5, 1.0)
        self._due = now + pause
        with self._lock:
            if not self._closed:
                self._schedule(self._begin_if_due, min(pause, LOOK))

    def no_refusal(self) -> None:
        """Note that no refusal stands: a connection has joined, or nothing listens."""
        if self.refusal is not None:
            self.refusal = None
            standing.forget(self.address.url)

    def _begin_if_due(self) -> None:
        """Begin the try after a refusal, or wait on. On the alarm thread."""
        left = self._due - time.monotonic()
        if left > 0.0 and self._shown() is self._refused_with:
            with self._lock:
                if not self._closed:
                    self._schedule(self._begin_if_due, min(left, LOOK))
            return
        self._begin()

    def _shown(self) -> object:
        """Return the settings by which a connection shows a certificate now, None without TLS. Reads files."""
        return None if self.contexts is None else self.contexts.now()

    def close(self) -> None:
        """Stop trying. Called again, it continues where a signal handler that raised interrupted it."""
        with self._lock:
            self._closed = True
            self._alarm.close()
            for attempt in self._racing.values():  # they leave it when they are completed
                attempt.stop()


def _meet(address: Address) -> tuple[Any, int | None, Any]:
    """Connect to the inproc listener there. Raises Closed, OSError."""
    listener = Listener.inproc.get(address.url)
    if listener is None:
        raise Closed(address.url)
    return *listener.meet(), None
