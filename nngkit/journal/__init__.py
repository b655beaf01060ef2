"""Journal: received messages on disk, read back by offset and time.

::

    async with Recorder("journal") as recorder:                     # recorder.py: sockets to disk
        await recorder.record(Sub(dial=..., topics="weather."), "weather")
    for record in read("journal", topics="weather"): ...            # reader.py
    await replay("journal", pub, speed=1.0)                         # replaying.py

Requires the extra: `pip install 'nngkit[journal]'`; without it, importing this package raises ConfigError.
docs/journal.md states the delivery guarantee of each input.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nngkit.errors import ConfigError
from nngkit.lazy import lazily

if TYPE_CHECKING:
    from nngkit.journal.ingest import IngestRequest, Stored, encode_request, parse_reply
    from nngkit.journal.manifest import Lost, Manifest
    from nngkit.journal.reader import Bounds, Journal, open_journal, read
    from nngkit.journal.record import Record
    from nngkit.journal.recorder import Recorder, RecorderStats, StreamStats
    from nngkit.journal.replaying import Replayed, replay
    from nngkit.journal.segments import Segment
    from nngkit.journal.selection import Skipped
    from nngkit.journal.writing.merging import Compacted, compact
    from nngkit.journal.writing.partition import Retention
    from nngkit.journal.writing.rebuild import Rebuilt, rebuild_manifest

__all__ = [
    "Bounds",
    "Compacted",
    "IngestRequest",
    "Journal",
    "Lost",
    "Manifest",
    "Rebuilt",
    "Record",
    "Recorder",
    "RecorderStats",
    "Replayed",
    "Retention",
    "Segment",
    "Skipped",
    "Stored",
    "StreamStats",
    "compact",
    "encode_request",
    "open_journal",
    "parse_reply",
    "read",
    "rebuild_manifest",
    "replay",
]


for _package in ("google_crc32c", "pyarrow"):  # located, not imported: importing pyarrow takes 0.1 s
    if find_spec(_package) is None:
        raise ConfigError("journal", f"{_package} is not installed: pip install 'nngkit[journal]'")

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "ingest": "IngestRequest Stored encode_request parse_reply",
            "manifest": "Lost Manifest",
            "reader": "Bounds Journal open_journal read",
            "record": "Record",
            "recorder": "Recorder RecorderStats StreamStats",
            "replaying": "Replayed replay",
            "segments": "Segment",
            "selection": "Skipped",
            "writing.merging": "Compacted compact",
            "writing.partition": "Retention",
            "writing.rebuild": "Rebuilt rebuild_manifest",
        },
    )
