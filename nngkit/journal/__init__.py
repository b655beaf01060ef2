"""Journal: received messages on disk, read back by offset and time.

::

    async with Recorder("journal") as recorder:                     # recorder.py: sockets to disk
        await recorder.record(Sub(dial=..., topics="weather."), "weather")
    for record in read("journal", topics="weather"): ...            # reader.py
    await replay("journal", pub, speed=1.0)                         # replaying.py

Requires the extra: `pip install 'nngkit[journal]'`; without it, importing this package raises ConfigError.
docs/journal.md states the delivery guarantee of each input.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.journal.ingest import IngestRequest, Stored, encode_request, parse_reply
    from nngkit.journal.manifest import Lost, Manifest
    from nngkit.journal.merging import Compacted, compact
    from nngkit.journal.partition import Retention
    from nngkit.journal.reader import Bounds, Journal, open_journal, read
    from nngkit.journal.rebuild import Rebuilt, rebuild_manifest
    from nngkit.journal.record import Record
    from nngkit.journal.recorder import Recorder, RecorderStats, StreamStats
    from nngkit.journal.replaying import Replayed, replay
    from nngkit.journal.segments import Segment
    from nngkit.journal.selection import Skipped

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

_LATE = {  # name -> module: a reader loads no event loop, a recorder no Parquet until it seals
    **dict.fromkeys(("IngestRequest", "Stored", "encode_request", "parse_reply"), "ingest"),
    **dict.fromkeys(("Lost", "Manifest"), "manifest"),
    "Segment": "segments",
    **dict.fromkeys(("Compacted", "compact"), "merging"),
    **dict.fromkeys(("Bounds", "Journal", "open_journal", "read"), "reader"),
    "Record": "record",
    "Skipped": "selection",
    **dict.fromkeys(("Recorder", "RecorderStats", "StreamStats"), "recorder"),
    **dict.fromkeys(("Replayed", "replay"), "replaying"),
    "Retention": "partition",
    **dict.fromkeys(("Rebuilt", "rebuild_manifest"), "rebuild"),
}

for _package in ("google_crc32c", "pyarrow"):  # located, not imported: importing pyarrow takes 0.1 s
    if find_spec(_package) is None:
        raise ConfigError("journal", f"{_package} is not installed: pip install 'nngkit[journal]'")


if not TYPE_CHECKING:  # a type checker that sees `__getattr__` accepts any name

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        module = _LATE.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = found
        return found
