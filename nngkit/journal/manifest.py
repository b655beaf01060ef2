"""Manifest of a partition: its segments, the first retained offset, and lost ranges.

One JSON file, written by the partition's only recorder and replaced atomically, so a reader sees a consistent state.
A segment is on disk before it is listed, and is removed a minute after it is unlisted (`RETIRE`). Readers therefore
need nothing but the manifest to know what is sealed, and delete nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from nngkit.errors import ConfigError, Damaged
from nngkit.journal.files import JOURNAL, MANIFEST, SCRATCH, Storage, folder_of
from nngkit.journal.record import VERSION

__all__ = ["ADVICE", "FORMAT", "Lost", "Manifest", "Retired", "Segment", "check_journal", "load_manifest"]

FORMAT: Final = "nngkit journal"
RETIRE: Final = 60.0  # seconds for readers to finish with an unlisted segment


@dataclass(frozen=True, slots=True)
class Segment:
    """Parquet file with the records `first` to `end` - 1: `rows` of them, fewer after damage.

    Times are microseconds since 1970. `topics`: rows by topic. `crc32c`: checksum of the file.
    """

    file: str
    first: int
    end: int
    rows: int
    bytes: int
    crc32c: int
    min_time: int
    max_time: int
    topics: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lost:
    """Range of records, `first` to `end` - 1, known to be lost."""

    first: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class Retired:
    """Segment unlisted at `at`, seconds since 1970."""

    file: str
    at: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """State of a partition: offsets from `start` are retained, those below `end` are in `segments` or `lost`."""

    partition: int
    owner: str
    start: int = 0
    end: int = 0
    segments: tuple[Segment, ...] = ()
    lost: tuple[Lost, ...] = ()
    retired: tuple[Retired, ...] = ()

    def encode(self) -> bytes:
        """Return the manifest as JSON."""
        fields = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(fields, ensure_ascii=False, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, shown: str) -> Manifest:
        """Parse JSON. `shown` names the file. Raises Damaged; ConfigError for another format version."""
        fields = _fields(data, shown)
        try:
            manifest = cls(
                int(fields["partition"]),
                str(fields["owner"]),
                int(fields["start"]),
                int(fields["end"]),
                tuple(Segment(**each) for each in fields["segments"]),
                tuple(Lost(**each) for each in fields["lost"]),
                tuple(Retired(**each) for each in fields["retired"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(shown, f"{type(error).__name__}: {error}", advice=ADVICE) from error
        if any(
            before.end > after.first for before, after in zip(manifest.segments, manifest.segments[1:], strict=False)
        ):
            raise Damaged(shown, "segments overlap", advice=ADVICE)
        return manifest

    def sealed(self, segment: Segment) -> Manifest:
        """Return a copy with one more segment."""
        return replace(self, end=segment.end, segments=(*self.segments, segment))

    def retained(self, now: float, *, age: float | None, size: int | None) -> Manifest:
        """Return a copy without the oldest segments: those beyond `size` bytes, and those older than `age` seconds."""
        kept = list(self.segments)
        while kept and (
            (age is not None and kept[0].max_time < (now - age) * 1e6)
            or (size is not None and sum(segment.bytes for segment in kept) > size)
        ):
            kept.pop(0)
        gone = self.segments[: len(self.segments) - len(kept)]
        start = gone[-1].end if gone else self.start
        return replace(
            self,
            start=start,
            segments=tuple(kept),
            lost=tuple(lost for lost in self.lost if lost.end > start),
            retired=(*self.retired, *(Retired(segment.file, now) for segment in gone)),
        )


ADVICE: Final = "restore it from a backup, or rebuild it from the segments: nngkit journal rebuild-manifest"


def _fields(data: bytes, shown: str) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise Damaged(shown, f"not JSON: {error}", advice=ADVICE) from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise Damaged(shown, f"not in the format {FORMAT!r}", advice=ADVICE)
    version = fields.get("version")
    if version != VERSION:
        raise ConfigError(
            "journal",
            f"{shown}: format version {version}; this nngkit reads version {VERSION}; "
            "use the nngkit that wrote it, or a newer one",
            version,
        )
    return fields


def load_manifest(storage: Storage, partition: int) -> Manifest | None:
    """Return the manifest; None if there is none yet. Raises Damaged, ConfigError, OSError."""
    name = f"{folder_of(partition)}/{MANIFEST}"
    try:
        data = storage.read(name)
    except FileNotFoundError:
        return None
    return Manifest.decode(data, storage.shown(name))


def save_manifest(storage: Storage, manifest: Manifest) -> None:
    """Replace the manifest atomically. Raises OSError."""
    storage.replace(f"{folder_of(manifest.partition)}/{MANIFEST}", manifest.encode())


def check_journal(storage: Storage, *, make: bool = False) -> None:
    """Check that `storage` holds a journal of this version; `make` one if it is empty. Raises ConfigError, Damaged."""
    shown = storage.shown(JOURNAL)
    try:
        _fields(storage.read(JOURNAL), shown)
    except FileNotFoundError:
        if not make:
            raise ConfigError("journal", f"{shown}: not found; `nngkit record` creates a journal", shown) from None
        if set(storage.names("")) - {JOURNAL + SCRATCH}:  # left by a recorder killed while it created the journal
            raise ConfigError(
                "journal",
                f"{storage.shown('')}: neither empty nor a journal (no {JOURNAL}); choose another folder",
                shown,
            ) from None
        try:
            if storage.folder is not None:
                storage.folder.mkdir(parents=True, exist_ok=True)
            storage.replace(JOURNAL, json.dumps({"format": FORMAT, "version": VERSION}).encode() + b"\n")
        except OSError as error:
            raise ConfigError("journal", f"{shown}: {error.strerror or error}", shown) from error
    except OSError as error:
        raise ConfigError("journal", f"{shown}: {error.strerror or error}", shown) from error
