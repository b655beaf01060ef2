"""Refusals that stand: listeners that refuse this process, or that it refuses, by the address that it dials.

::

    standing.note(refusal)                  # a dialer, at each refusal
    standing.forget("tls+tcp://hub:5556")   # ... once it is connected, or nothing listens there
    standing.told(addresses)                # "; tls+tcp://hub:5556 refuses desk.ada: right: ..." for an error, or ""

They belong to the process, as an error may be raised, and a command end, after the socket that was refused is closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nngkit.log_lines import LogLines
from nngkit.trust.refusals import advice, code_of

log = logging.getLogger("nngkit.trust")

MOST: Final = 256  # addresses that are remembered; the oldest goes first
NAMED: Final = 3  # refusals that one error names
STALE: Final = 60.0  # seconds after which an address that was not dialed again counts as refused anew
MOMENT: Final = 10.0  # seconds within which a refusal is not logged: it may pass, and the error of a call tells it


@dataclass(frozen=True, slots=True)
class Refusal:
    """Of a dialed ``address``. ``me``: name of the pass that was shown, "" for none; ``theirs``: the listener's."""

    address: str
    me: str
    reason: str
    theirs: bool

    def __str__(self) -> str:
        me = self.me or "this process"
        first, second = (self.address, me) if self.theirs else (me, self.address)
        code = code_of(self.reason)
        named = self.reason if self.reason.startswith(f"{code}: ") else f"{code}: {self.reason}"
        helps = advice(self.reason, self.address, shown=bool(self.me), theirs=self.theirs)
        return f"{first} refuses {second}: {named}{f': {helps}' if helps else ''}"


@dataclass(slots=True)
class _Standing:
    refusal: Refusal
    since: float
    last: float


_lock = threading.Lock()
_standing: dict[str, _Standing] = {}
_lines = LogLines()


def note(refusal: Refusal, *, anew: bool = False) -> float:
    """Remember a refusal, and log one that has stood a while.

    Return since when its address is refused, by time.monotonic(). ``anew``: since now, as what was shown is new.
    """
    now = time.monotonic()
    with _lock:
        before = _standing.pop(refusal.address, None)
        while len(_standing) >= MOST:
            del _standing[next(iter(_standing))]
        since = now if anew or before is None or now - before.last > STALE else before.since
        _standing[refusal.address] = _Standing(refusal, since, now)
        line = _lines.add(text := str(refusal), now, text) if now - since >= MOMENT else None
    if line is not None:
        log.warning("%s", line, extra={"code": code_of(refusal.reason), "peer": refusal.address})
    return since


def forget(address: str) -> None:
    """Forget the refusal of an address."""
    with _lock:
        _standing.pop(address, None)


def standing(addresses: Iterable[str] | None = None) -> tuple[Refusal, ...]:
    """Return the refusals of these addresses, or of all, the oldest first."""
    with _lock:
        found = tuple(each.refusal for each in _standing.values())
    if addresses is None:
        return found
    wanted = set(addresses)
    return tuple(each for each in found if each.address in wanted)


def told(addresses: Iterable[str] | None = None) -> str:
    """Return what an error about these addresses, or about any, adds to its text: "" if none is refused."""
    found = standing(addresses)
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return "".join(f"; {each}" for each in found[:NAMED]) + more
