"""Documents into a journal: a peer that hears every edit, keeps it as a record, and edits nothing.

::

    async with Recorder("journal") as recorder:
        async with DocumentRecorder(recorder, only="minutes/*", dial="tcp://host:4711"):
            ...

Where the two rooms meet: the journal knows no documents, and they know no journal.
"""

from __future__ import annotations

from nngkit.recording.documents import DocumentRecorder, DocumentRecorderStats
from nngkit.recording.edits import BadRecord, Kept, parse

__all__ = ["BadRecord", "DocumentRecorder", "DocumentRecorderStats", "Kept", "parse"]
