"""The manifest of a partition: which segments there are, from which offset on they are kept, what was lost.

One JSON file, written by the partition's one recorder and replaced whole; whoever reads it sees one moment. What it
lists is there, complete, with these offsets: a segment is on the disk before it is listed, and unlisted a minute before
it is removed (`RETIRE`). So readers look at nothing else to know what is sealed, and delete nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from nngkit.errors import ConfigError, Damaged
from nngkit.journal.files import JOURNAL, MANIFEST, SCRATCH, Place, folder_of
from nngkit.journal.record import VERSION

__all__ = ["FORMAT", "Lost", "Manifest", "Retired", "Segment", "check_journal", "load_manifest"]

FORMAT: Final = "nngkit journal"
RETIRE: Final = 60.0  # seconds that a reader has to finish with a segment that is listed no more


@dataclass(frozen=True, slots=True)
class Segment:
    """A Parquet file with the records `first` to `end` - 1: `rows` of them, fewer where damage took some.

    Times are microseconds since 1970; `topics` counts rows; `crc32c` is of the whole file.
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
    """The records `first` to `end` - 1 are lost, and that is known."""

    first: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class Retired:
    """A segment that is listed no more since `at`, seconds since 1970."""

    file: str
    at: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """One state of a partition: offsets from `start` are kept, those below `end` are in `segments` or in `lost`."""

    partition: int
    owner: str
    start: int = 0
    end: int = 0
    segments: tuple[Segment, ...] = ()
    lost: tuple[Lost, ...] = ()
    retired: tuple[Retired, ...] = ()

    def encode(self) -> bytes:
        """As JSON."""
        fields = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(fields, ensure_ascii=False, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, shown: str) -> Manifest:
        """Raises Damaged, and ConfigError for another version of the format. `shown` names the file."""
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
            raise Damaged(shown, f"{type(error).__name__}: {error}", advice=_ADVICE) from error
        if any(
            before.end > after.first for before, after in zip(manifest.segments, manifest.segments[1:], strict=False)
        ):
            raise Damaged(shown, "segments that overlap", advice=_ADVICE)
        return manifest

    def sealed(self, segment: Segment) -> Manifest:
        """With one segment more."""
        return replace(self, end=segment.end, segments=(*self.segments, segment))

    def retained(self, now: float, *, age: float | None, size: int | None) -> Manifest:
        """Without the oldest segments: those whose newest record is over `age` seconds old, and those over `size`."""
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


_ADVICE: Final = "restore it from a copy, or make one from the segments: nngkit journal rebuild-manifest"


def _fields(data: bytes, shown: str) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise Damaged(shown, f"not JSON: {error}", advice=_ADVICE) from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise Damaged(shown, f"not a file of the format {FORMAT!r}", advice=_ADVICE)
    version = fields.get("version")
    if version != VERSION:
        raise ConfigError(
            "journal",
            f"{shown}: version {version} of the format, and this nngkit reads version {VERSION}; use the nngkit that "
            "wrote it, or a newer one",
            version,
        )
    return fields


def load_manifest(place: Place, partition: int) -> Manifest | None:
    """The manifest; None where there is none yet. Raises Damaged, ConfigError, OSError."""
    name = f"{folder_of(partition)}/{MANIFEST}"
    try:
        data = place.read(name)
    except FileNotFoundError:
        return None
    return Manifest.decode(data, place.shown(name))


def save_manifest(place: Place, manifest: Manifest) -> None:
    """Replace it. Raises OSError."""
    place.replace(f"{folder_of(manifest.partition)}/{MANIFEST}", manifest.encode())


def check_journal(place: Place, *, make: bool = False) -> None:
    """See that `place` is a journal of our version; `make` one where there is nothing. Raises ConfigError, Damaged."""
    shown = place.shown(JOURNAL)
    try:
        _fields(place.read(JOURNAL), shown)
    except FileNotFoundError:
        if not make:
            raise ConfigError("journal", f"{shown}: there is none; `nngkit record` makes one", shown) from None
        if set(place.names("")) - {JOURNAL + SCRATCH}:  # that one is left by who was killed while making a journal
            raise ConfigError(
                "journal", f"{place.shown('')}: neither empty nor a journal (no {JOURNAL}); name another", shown
            ) from None
        try:
            if place.folder is not None:
                place.folder.mkdir(parents=True, exist_ok=True)
            place.replace(JOURNAL, json.dumps({"format": FORMAT, "version": VERSION}).encode() + b"\n")
        except OSError as error:
            raise ConfigError("journal", f"{shown}: {error.strerror or error}", shown) from error
    except OSError as error:
        raise ConfigError("journal", f"{shown}: {error.strerror or error}", shown) from error
