"""A measurement of the demo and its bound. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """A measurement and its bound; ``measured`` is None if it never happened."""

    name: str
    measured: float | None
    bound: float
    unit: str = ""
    least: bool = False  # the bound is a minimum

    @property
    def ok(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.bound if self.least else self.measured <= self.bound

    def as_dict(self) -> dict[str, Any]:
        measured = None if self.measured is None else round(self.measured, 4)
        kind = "least" if self.least else "most"
        return {"name": self.name, "ok": self.ok, "measured": measured, kind: self.bound, "unit": self.unit}
