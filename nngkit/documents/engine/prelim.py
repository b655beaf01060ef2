"""A shared type before it is in a document: what it will begin with. Pure; the engine makes it.

>>> Prelim("map", {"notes": Prelim("text", "hello")}).kind
'map'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nngkit.documents.engine.interface import Kind

__all__ = ["Prelim"]


@dataclass(frozen=True, slots=True)
class Prelim:
    """`value`: a str, or a dict or list of plain values and more of these."""

    kind: Kind
    value: Any
