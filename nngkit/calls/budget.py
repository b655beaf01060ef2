"""Budget of a client's retries and hedges: they add a share to the requests of a failing service, not a multiple. Pure.

Each call adds `share` of a retry, kept for WINDOW seconds; beside that, `per_second` retries accrue, up to those of one
second. So a client of few calls can retry, and one of many adds at most a fifth to what its providers have to do. The
rules are those of Finagle's RetryBudget, whose reserve is that of ten seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from nngkit.errors import ConfigError

WINDOW: Final = 10.0  # seconds, Finagle's


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """Further attempts that a client may make. Raises ConfigError for an unusable value.

    share       of its calls; 0.2: one for five calls of the last ten seconds
    per_second  in addition, whatever the number of its calls
    """

    share: float = 0.2
    per_second: float = 10.0

    def __post_init__(self) -> None:
        for name in ("share", "per_second"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
                raise ConfigError("retry_budget", f"{name}={value!r} is not a number, 0 or more", value)


class Balance:
    """Retries that are left of a budget. `now`: seconds on one monotonic clock. Not thread-safe: one lock owns it.

    But a call that comes before `until` may be added to `calls` without that lock, in one step of the interpreter.
    """

    def __init__(self, budget: RetryBudget, now: float) -> None:
        self._share = budget.share
        self._rate = self._reserve = budget.per_second
        self._at = now
        self._earned: deque[list[float]] = deque()  # [second in which they were earned, retries]
        self._sum = 0.0
        self.calls = 0  # of the second before `until`, which have not earned yet
        self.until = 0.0

    def call(self, now: float) -> None:
        """Note a call."""
        if now >= self.until:
            self._gather()
            self._expire(now)
            self.until = now // 1 + 1.0
        self.calls += 1

    def put_back(self, now: float, retries: float = 1.0) -> None:
        """Add retries: those that were taken, and not needed."""
        self._gather()
        self._add(now // 1, retries)
        self._expire(now)

    def take(self, now: float) -> bool:
        """Take one retry; return False if there is none."""
        self._gather()
        self._expire(now)
        self._reserve = min(self._rate, self._reserve + (now - self._at) * self._rate)
        self._at = now
        if self._sum + self._reserve < 1.0:
            return False
        left = 1.0
        while left > 0 and self._earned:  # the oldest first: they expire first
            taken = min(left, self._earned[0][1])
            self._earned[0][1] -= taken
            self._sum -= taken
            left -= taken
            if self._earned[0][1] <= 0:
                self._earned.popleft()
        self._reserve = max(0.0, self._reserve - left)
        return True

    def _gather(self) -> None:
        """Add what the counted calls have earned."""
        calls, self.calls = self.calls, 0
        if calls:
            self._add(self.until - 1.0, calls * self._share)

    def _add(self, second: float, retries: float) -> None:
        earned = self._earned
        if earned and earned[-1][0] == second:
            earned[-1][1] += retries
        else:
            earned.append([second, retries])
        self._sum += retries

    def _expire(self, now: float) -> None:
        while self._earned and self._earned[0][0] < now - WINDOW:
            self._sum -= self._earned.popleft()[1]
        if not self._earned:
            self._sum = 0.0  # without the rounding errors
