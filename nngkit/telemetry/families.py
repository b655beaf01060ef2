"""Samples of one metric, by their labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from nngkit.histogram import Distribution
from nngkit.telemetry.declared import Metric

OTHER: Final = "(other)"

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Family:
    """Samples of one metric, by their labels."""

    metric: Metric
    samples: dict[Labels, float | Distribution] = field(default_factory=dict)

    def add(self, labels: Labels, value: float | Distribution, most: int) -> None:
        """Add a sample to that of equal labels."""
        if labels not in self.samples and len(self.samples) >= most:
            labels = tuple((name, OTHER) for name, _ in labels)
        before: Any = self.samples.get(labels)
        self.samples[labels] = value if before is None else before + value
