"""Ejection of providers that fail again and again, and their gradual return. Pure.

::

    healthy --[`failures` in a row]--> ejected --[`shortest` seconds, doubled at each ejection]--> returning --> healthy
                                          ^                                                            |
                                          +------------------------[one failure]----------------------+

A returning provider gets a share of the calls that grows from none to its full one within `ramp` seconds. A failure is
a lost connection with calls in progress, a timeout, or an unintelligible reply; an error that the handler raises is a
reply. The rules are Envoy's outlier detection ("consecutive gateway failure") and slow start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nngkit.errors import ConfigError

MOST_DOUBLED: Final = 16  # an exponent that keeps 2 ** it finite; `longest` is far below


@dataclass(frozen=True, slots=True)
class Ejection:
    """Rules of ejection. Raises ConfigError for an unusable value.

    failures   in a row, after which a provider is ejected
    shortest   seconds of the first ejection; doubled at each further one, forgotten after `longest` seconds of health
    longest    seconds of the longest ejection
    ramp       seconds in which a returning provider gets back its full share
    most       share of the connected providers that may be ejected at a time: more failing at once means that the
               cause is another one, and the rest would be overloaded
    """

    failures: int = 5
    shortest: float = 1.0
    longest: float = 30.0
    ramp: float = 5.0
    most: float = 0.5

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ConfigError("ejection", f"failures={self.failures!r} is not 1 or more", self.failures)
        if not 0 <= self.shortest <= self.longest < 1e6 or not 0 <= self.ramp < 1e6:
            raise ConfigError("ejection", "shortest, longest and ramp are not ordered numbers of seconds", self)
        if not 0 <= self.most <= 1:
            raise ConfigError("ejection", f"most={self.most!r} is not a share from 0 to 1", self.most)


class Health:
    """Record of one provider's failures. `ejections`: those that are not forgotten."""

    __slots__ = ("_rules", "ejections", "failures", "returned", "until")

    def __init__(self, rules: Ejection) -> None:
        self._rules = rules
        self.ejections = 0
        self.failures = 0
        self.until = 0.0  # end of the ejection; 0 if it is not ejected
        self.returned = 0.0  # start of the return; 0 if it has its full share

    def succeeded(self, now: float) -> None:
        """Count a reply."""
        self.failures = 0
        if self.ejections and not self.until and now - self.returned > self._rules.longest:
            self.ejections = 0

    def failed(self) -> bool:
        """Count a failure; return True if the provider should be ejected now."""
        self.failures += 1
        return not self.until and (self.failures >= self._rules.failures or self.returned > 0)

    def eject(self, now: float) -> None:
        """Start an ejection."""
        seconds = self._rules.shortest * 2 ** min(self.ejections, MOST_DOUBLED)
        self.ejections += 1
        self.until = now + min(seconds, self._rules.longest)
        self.returned = 0.0

    def review(self, now: float) -> bool:
        """End an ejection that is over, and a return; return True if it is ejected."""
        if self.until and now >= self.until:
            self.returned, self.until, self.failures = self.until, 0.0, 0
        if self.returned and now - self.returned >= self._rules.ramp:
            self.returned = 0.0
        return self.until > 0

    def share(self, now: float) -> float:
        """Return the share of its calls that it gets, from 0 to 1."""
        if self.until:
            return 0.0
        if not self.returned:
            return 1.0
        return min(1.0, max(0.0, now - self.returned) / self._rules.ramp) if self._rules.ramp else 1.0
