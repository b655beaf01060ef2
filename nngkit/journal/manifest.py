"""Manifest of a partition: its segments, the first retained offset, and lost ranges.

A small JSON file, written by the partition's only recorder and replaced atomically, so a reader sees a consistent
state; older segments are listed in blocks, files that never change (segments.py). A segment is on disk before it is
listed, a block before the manifest names it, and both are removed a minute after they are unlisted (`RETIRE`), merged
segments after an hour. Readers therefore need nothing but the manifest to know what is sealed, and delete nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from nngkit.errors import ConfigError, Damaged
from nngkit.file_modes import make_folder
from nngkit.journal.files import JOURNAL, MANIFEST, SCRATCH, Changed, Storage, folder_of
from nngkit.journal.record import VERSION
from nngkit.journal.segments import Block, Segment, Segments, decode_entries, encode_block, entry

FORMAT: Final = "nngkit journal"
BLOCKS: Final = 2  # version of a manifest with blocks; one without is of version 1, which older nngkits read
RETIRE: Final = 60.0  # seconds for readers to finish with an unlisted file
LOADED: Final = 16  # blocks kept in memory, of some hundred KB


@dataclass(frozen=True, slots=True)
class Lost:
    """Range of records, `first` to `end` - 1, known to be lost."""

    first: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class Retired:
    """Segment or block unlisted; to be deleted `RETIRE` seconds after `at`, seconds since 1970."""

    file: str
    at: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """State of a partition: offsets from `start` are retained, those below `end` are in `segments` or `lost`."""

    partition: int
    owner: str
    start: int = 0
    end: int = 0
    segments: Segments = field(default_factory=Segments)
    lost: tuple[Lost, ...] = ()
    retired: tuple[Retired, ...] = ()
    tag: str | None = field(default=None, compare=False)  # the version of the file, if its storage has versions

    def encode(self) -> bytes:
        """Return the manifest as JSON, with a line for each block and recent segment."""
        blocks, recent = self.segments.blocks, self.segments.recent
        lines = {
            "format": json.dumps(FORMAT),
            "version": json.dumps(BLOCKS if blocks else VERSION),
            "partition": json.dumps(self.partition),
            "owner": json.dumps(self.owner, ensure_ascii=False),
            "start": json.dumps(self.start),
            "end": json.dumps(self.end),
            **({"blocks": _lines([entry(each) for each in blocks])} if blocks else {}),
            "segments": _lines([entry(each) for each in recent]),
            "lost": _lines([json.dumps(asdict(each), ensure_ascii=False) for each in self.lost]),
            "retired": _lines([json.dumps(asdict(each), ensure_ascii=False) for each in self.retired]),
        }
        return ("{\n" + ",\n".join(f' "{name}": {text}' for name, text in lines.items()) + "\n}\n").encode()

    @classmethod
    def decode(cls, data: bytes, shown: str) -> Manifest:
        """Parse JSON. `shown` names the file. Raises Damaged; ConfigError for another format version."""
        fields = _fields(data, shown, newest=BLOCKS)
        try:
            start = int(fields["start"])
            recent = tuple(Segment(**each) for each in fields["segments"])
            blocks = tuple(Block(**each) for each in fields.get("blocks", ()))
            manifest = cls(
                int(fields["partition"]),
                str(fields["owner"]),
                start,
                int(fields["end"]),
                Segments(recent, blocks, start),
                tuple(Lost(**each) for each in fields["lost"]),
                tuple(Retired(**each) for each in fields["retired"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(shown, f"{type(error).__name__}: {error}", advice=ADVICE) from error
        listed: tuple[Block | Segment, ...] = (*blocks, *recent)
        if any(before.end > after.first for before, after in pairwise(listed)):
            raise Damaged(shown, "segments overlap", advice=ADVICE)
        return manifest

    def sealed(self, segment: Segment) -> Manifest:
        """Return a copy with one more segment."""
        return replace(self, end=segment.end, segments=self.segments.added(segment))

    def retained(self, now: float, *, age: float | None, size: int | None) -> Manifest:
        """Return a copy without the oldest segments: those beyond `size` bytes, and those older than `age` seconds."""
        if age is None and size is None:
            return self
        gone: list[Segment] = []
        left = self.segments.bytes if size is not None else 0
        for each in self.segments:
            if not ((age is not None and each.max_time < (now - age) * 1e6) or (size is not None and left > size)):
                break
            gone.append(each)
            left -= each.bytes
        if not gone:
            return self
        start = gone[-1].end
        return replace(
            self.listing(self.segments.since(start), now),
            start=start,
            lost=tuple(lost for lost in self.lost if lost.end > start),
        ).retiring([each.file for each in gone], now)

    def listing(self, segments: Segments, now: float) -> Manifest:
        """Return a copy with these segments; blocks that are in it no more are retired."""
        kept = {each.file for each in segments.blocks}
        gone = [each.file for each in self.segments.blocks if each.file not in kept]
        # A block that is listed again has the same content: it must not be deleted.
        again = replace(self, retired=tuple(each for each in self.retired if each.file not in kept))
        return replace(again, segments=segments).retiring(gone, now)

    def retiring(self, files: Sequence[str], now: float, stay: float = RETIRE) -> Manifest:
        """Return a copy in which these files are due for deletion after `stay` seconds."""
        at = now + stay - RETIRE
        return replace(self, retired=(*self.retired, *(Retired(file, at) for file in files)))

    def within(self, first: int, stop: int) -> Manifest:
        """Return the part that covers offsets `first` to `stop` - 1."""
        lost = tuple(each for each in self.lost if each.first < stop and first < each.end)
        return replace(self, segments=self.segments.within(first, stop), lost=lost, retired=())


ADVICE: Final = "restore it from a backup, or rebuild it from the segments: nngkit journal rebuild-manifest"


def _lines(entries: Sequence[str]) -> str:
    return "[\n  " + ",\n  ".join(entries) + "\n ]" if entries else "[]"


def _fields(data: bytes, shown: str, newest: int = VERSION) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise Damaged(shown, f"not JSON: {error}", advice=ADVICE) from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise Damaged(shown, f"not in the format {FORMAT!r}", advice=ADVICE)
    version = fields.get("version")
    if not (isinstance(version, int) and VERSION <= version <= newest):
        known = f"version {VERSION}" if newest == VERSION else f"versions {VERSION} to {newest}"
        raise ConfigError(
            "journal",
            f"{shown}: format version {version}; this nngkit reads {known}; "
            "use the nngkit that wrote it, or a newer one",
            version,
        )
    return fields


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Loader of a partition's blocks, with a cache: they never change."""

    _storage: Storage
    _folder: str

    def __call__(self, block: Block) -> tuple[Segment, ...]:
        return _entries(self, block)

    def read(self, block: Block) -> tuple[Segment, ...]:
        name = f"{self._folder}/{block.file}"
        try:
            return decode_entries(self._storage.read(name)[0], block)
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, error.strerror, self._storage.shown(name)) from error
        except (TypeError, ValueError) as error:
            raise Damaged(self._storage.shown(name), str(error), offset=block.first, advice=ADVICE) from error


@lru_cache(maxsize=LOADED)
def _entries(blocks: _Blocks, block: Block) -> tuple[Segment, ...]:
    return blocks.read(block)


def load_manifest(storage: Storage, partition: int) -> Manifest | None:
    """Return the manifest; None if there is none yet. Raises Damaged, ConfigError, OSError."""
    name = f"{folder_of(partition)}/{MANIFEST}"
    try:
        data, tag = storage.read(name)
    except FileNotFoundError:
        return None
    return attached(storage, replace(Manifest.decode(data, storage.shown(name)), tag=tag))


def attached(storage: Storage, manifest: Manifest) -> Manifest:
    """Return the manifest with a loader of its blocks; it has none after it was pickled."""
    return replace(manifest, segments=manifest.segments.attached(_Blocks(storage, folder_of(manifest.partition))))


def save_manifest(storage: Storage, manifest: Manifest) -> Manifest:
    """Replace the manifest atomically; return it as written, with older segments in blocks.

    Raises OSError; ConfigError if the partition has got another owner.
    """
    folder = folder_of(manifest.partition)
    manifest = attached(storage, manifest)
    packed = manifest.segments.packed(lambda entries: save_block(storage, manifest.partition, entries))
    manifest = manifest.listing(packed, time.time())
    name, data = f"{folder}/{MANIFEST}", manifest.encode()
    try:
        tag = storage.replace(name, data, manifest.tag)
    except Changed as error:
        there = load_manifest(storage, manifest.partition)
        if there is None or there.owner != manifest.owner:
            why = f"belongs to {there.owner} now" if there else "was removed"
            raise ConfigError(
                "partition",
                f"{storage.shown(name)}: {why}; {manifest.owner} wrote nothing. Stop one of them, or give it another "
                "partition (--partition)",
                manifest.partition,
            ) from error
        # What this owner has written before, and got no answer to: it knows more now.
        tag = storage.replace(name, data, there.tag)
    return replace(manifest, tag=tag)


def save_block(storage: Storage, partition: int, entries: Sequence[Segment]) -> Block:
    """Write a block of these segments. Raises OSError."""
    block, data = encode_block(entries)
    storage.replace(f"{folder_of(partition)}/{block.file}", data)
    return block


def check_journal(storage: Storage, *, make: bool = False) -> None:
    """Check that `storage` holds a journal of this version; `make` one if it is empty. Raises ConfigError, Damaged."""
    shown = storage.shown(JOURNAL)
    try:
        _fields(storage.read(JOURNAL)[0], shown)
    except FileNotFoundError as missing:
        if not make:
            raise ConfigError("journal", f"{shown}: not found; `nngkit record` creates a journal", shown) from missing
        if set(storage.names("")) - {JOURNAL + SCRATCH}:  # left by a recorder killed while it created the journal
            raise ConfigError(
                "journal",
                f"{storage.shown('')}: neither empty nor a journal (no {JOURNAL}); choose another folder",
                shown,
            ) from None
        try:
            if storage.folder is not None:
                make_folder(storage.folder)
            storage.replace(JOURNAL, json.dumps({"format": FORMAT, "version": VERSION}).encode() + b"\n")
        except OSError as error:
            raise ConfigError("journal", f"{shown}: {error.strerror or error}", shown) from error
    except OSError as error:
        raise ConfigError("journal", f"{shown}: {error.strerror or error}", shown) from error
