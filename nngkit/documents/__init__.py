"""Documents that peers edit at once, and that all hold the same of: a CRDT over BUS, repair over REQ/REP."""

from __future__ import annotations

from nngkit.documents.changes import MISSING, ArrayChange, Change, Delete, Insert, Keep, MapChange, TextChange
from nngkit.documents.document import Document, Saved
from nngkit.documents.shared import Array, Map, Text
from nngkit.documents.undo import Undo

__all__ = [
    "MISSING",
    "Array",
    "ArrayChange",
    "Change",
    "Delete",
    "Document",
    "Insert",
    "Keep",
    "Map",
    "MapChange",
    "Saved",
    "Text",
    "TextChange",
    "Undo",
]
