"""The journal: all that was received, on the disk, to be read again by offset and time.

::

    async with Recorder("journal") as recorder:                     # recorder.py: what comes in by sockets
        recorder.record(Sub(dial=..., topics="weather."), "weather")
    for record in read("journal", topics="weather"): ...            # reader.py
    await replay("journal", pub, speed=1.0)                         # replaying.py

Needs the extra: `pip install 'nngkit[journal]'`; without it, importing this raises ConfigError.
docs/journal.md says what each way in promises.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.journal.ingest import Ingest, Stored, encode_request, parse_reply
    from nngkit.journal.manifest import Lost, Manifest, Segment
    from nngkit.journal.partition import Rebuilt, Retention, rebuild_manifest
    from nngkit.journal.reader import Bounds, Journal, open_journal, read
    from nngkit.journal.record import Record
    from nngkit.journal.recorder import Recorder, RecorderStats, Stream
    from nngkit.journal.replaying import Replayed, replay
    from nngkit.journal.selection import Skipped

__all__ = [
    "Bounds",
    "Ingest",
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
    "Stream",
    "encode_request",
    "open_journal",
    "parse_reply",
    "read",
    "rebuild_manifest",
    "replay",
]

_LATE = {  # name -> its module: a reader needs no event loop, a recorder no Parquet until it seals
    **dict.fromkeys(("Ingest", "Stored", "encode_request", "parse_reply"), "ingest"),
    **dict.fromkeys(("Lost", "Manifest", "Segment"), "manifest"),
    **dict.fromkeys(("Bounds", "Journal", "open_journal", "read"), "reader"),
    "Record": "record",
    "Skipped": "selection",
    **dict.fromkeys(("Recorder", "RecorderStats", "Stream"), "recorder"),
    **dict.fromkeys(("Replayed", "replay"), "replaying"),
    **dict.fromkeys(("Rebuilt", "Retention", "rebuild_manifest"), "partition"),
}

for _package in ("google_crc32c", "pyarrow"):  # looked for and not imported: pyarrow alone takes 0.1 s
    if find_spec(_package) is None:
        raise ConfigError("journal", f"{_package} is not installed: pip install 'nngkit[journal]'")


if not TYPE_CHECKING:  # a type checker that sees it takes every name for one of ours

    def __getattr__(name: str) -> object:
        """Bring in one of the names."""
        room = _LATE.get(name)
        if room is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{__name__}.{room}"), name)
        globals()[name] = found
        return found
