"""Documents on disk: one SQLite file for all documents of a peer. Knows no socket and no CRDT."""

from __future__ import annotations

from nngkit.documents.records import Compacted, Entry, Loaded, Merge, Record, Saved
from nngkit.documents.store.recovery import Recovered, Report, recover
from nngkit.documents.store.sqlite import Store

__all__ = [
    "Compacted",
    "Entry",
    "Loaded",
    "Merge",
    "Record",
    "Recovered",
    "Report",
    "Saved",
    "Store",
    "recover",
]
