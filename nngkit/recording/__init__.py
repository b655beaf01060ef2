"""Record documents in a journal: a peer that receives every edit and stores it as a record, but edits nothing.

::

    async with Recorder("journal") as recorder:
        async with DocumentRecorder(recorder, only="minutes/*", dial="tcp://host:4711"):
            ...

This package connects the two others: the journal knows no documents, and documents know no journal.
"""

from __future__ import annotations

from nngkit.recording.documents import DocumentRecorder, DocumentRecorderStats
from nngkit.recording.edits import BadRecord, DocumentRecord, parse

__all__ = ["BadRecord", "DocumentRecord", "DocumentRecorder", "DocumentRecorderStats", "parse"]
