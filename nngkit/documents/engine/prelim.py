"""Initial content of a shared type that is not in a document yet; the engine creates the type from it. Pure.

>>> Prelim("map", {"notes": Prelim("text", "hello")}).kind
'map'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nngkit.documents.engine.interface import Kind


@dataclass(frozen=True, slots=True)
class Prelim:
    """`value`: a str; or a dict or list of plain values and nested Prelims."""

    kind: Kind
    value: Any
