"""Types of the fields of `stats`: what a metric of each of them is. Imports no other module of nngkit.

::

    @dataclass(frozen=True, slots=True)
    class CacheStats:
        hits: Total = 0
        \"\"\"Lookups that found a value.\"\"\"
        size: Bytes = 0
        \"\"\"Memory of the values.\"\"\"

To type checkers they are int, float and so on, at run time they cost nothing. `nngkit.telemetry` makes metrics of them:
their names are those of the class and the field, their help texts the docstrings of the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from nngkit.histogram import Distribution


@dataclass(frozen=True, slots=True)
class Instrument:
    """Kind of a field. `unit`: "bytes" or "seconds", as Prometheus writes it; `label`: of the keys of a mapping."""

    kind: Literal["counter", "gauge", "histogram", "label"]
    unit: str = ""
    label: str = ""


Total = Annotated[int, Instrument("counter")]
BytesTotal = Annotated[int, Instrument("counter", "bytes")]
Gauge = Annotated[int, Instrument("gauge")]
Real = Annotated[float, Instrument("gauge")]
Bytes = Annotated[int, Instrument("gauge", "bytes")]
Seconds = Annotated[float | None, Instrument("gauge", "seconds")]
Spread = Annotated[Distribution, Instrument("histogram", "seconds")]
Label = Annotated[str, Instrument("label")]
Problem = Annotated[str | None, Instrument("gauge")]
"""A text while something is wrong, else None: 1 and 0."""
ByCode = Annotated[Mapping[str, int], Instrument("counter", label="code")]
ByKind = Annotated[Mapping[str, int], Instrument("counter", label="kind")]
