"""Documents that peers edit concurrently: a CRDT over BUS, with repair over REQ/REP."""

from __future__ import annotations

from nngkit.documents.changes import MISSING, ArrayChange, Change, Delete, Insert, Keep, MapChange, TextChange
from nngkit.documents.document import Document
from nngkit.documents.peer import DocumentPeer
from nngkit.documents.peer_info import PeerInfo, PeerStats, Refusal
from nngkit.documents.records import Saved
from nngkit.documents.shared import Array, Map, Text
from nngkit.documents.sync.faults import NetworkFaults
from nngkit.documents.sync.replica import Settings
from nngkit.documents.undo import Undo
from nngkit.documents.versions import EditStream

__all__ = [
    "MISSING",
    "Array",
    "ArrayChange",
    "Change",
    "Delete",
    "Document",
    "DocumentPeer",
    "EditStream",
    "Insert",
    "Keep",
    "Map",
    "MapChange",
    "NetworkFaults",
    "PeerInfo",
    "PeerStats",
    "Refusal",
    "Saved",
    "Settings",
    "Text",
    "TextChange",
    "Undo",
]
