"""Rebuild a lost or unreadable manifest from a partition's segments.

The caller must not have a recorder running: `rebuild_manifest` takes the partition's lock.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from nngkit.errors import ConfigError, Damaged
from nngkit.journal.files import MANIFEST, folder_of
from nngkit.journal.manifest import Lost, Manifest, check_journal, load_manifest, save_manifest
from nngkit.journal.segments import Block, Segment, Segments
from nngkit.journal.storage import open_storage
from nngkit.journal.writing.adoption import plan_adoption, without
from nngkit.journal.writing.ownership import lock_partition, owner_of
from nngkit.journal.writing.partition import in_order


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Result of `rebuild_manifest`.

    `adopted`: segments that were not listed. `orphans`: (file, reason). `missing`: listed segments without a file.
    `lost`: newly found ranges without a record. `replaced`: new name of the old manifest; None: there was none.
    """

    manifest: Manifest
    adopted: tuple[str, ...]
    orphans: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    lost: tuple[Lost, ...]
    replaced: str | None


def rebuild_manifest(
    journal: str | os.PathLike[str], partition: int = 0, *, spool: str | os.PathLike[str] | None = None
) -> Rebuilt:
    """Create a partition's manifest from its segments. The old file is kept, renamed to `.replaced`.

    Also if blocks of the manifest are lost or unreadable: their segments are found again.

    Retention and lost ranges of the old manifest are kept if it is readable. Offsets in no segment and no log are
    listed as lost. Raises ConfigError if a recorder is running, Damaged, OSError.
    """
    storage = open_storage(journal)
    check_journal(storage)
    folder = (storage.folder or Path(os.fspath(spool or ""))).absolute() / folder_of(partition)
    if storage.folder is None and spool is None:
        raise ConfigError("spool", f"{storage.shown('')} is shared storage: its logs need a local folder", spool)
    if not folder.is_dir():
        raise ConfigError("partition", f"{folder}: there is no partition {partition}", partition)
    lock = lock_partition(folder)
    try:
        owner = owner_of(folder, partition, shared=storage.folder is None)
        name = f"{folder_of(partition)}/{MANIFEST}"
        old: Manifest | None = None
        with contextlib.suppress(Damaged, ConfigError):
            old = load_manifest(storage, partition)
        if old is not None and storage.folder is None and old.owner != owner:
            raise ConfigError(
                "partition", f"{storage.shown(name)}: belongs to {old.owner}, and this spool is {owner}", owner
            )
        here = set(storage.names(folder_of(partition)))
        known: Manifest | None = None
        missing: tuple[Segment, ...] = ()
        unknown: tuple[Block, ...] = ()
        if old is not None:
            listed, unknown = _readable(old.segments)
            missing = tuple(each for each in listed if each.file not in here)
            known = replace(old, segments=Segments((each for each in listed if each.file in here), start=old.start))
        there = plan_adoption(storage, folder, known, Manifest(partition, owner), orphans=True)
        manifest = there.manifest
        lost = [*there.gaps]
        for each in missing:
            lost += _uncovered(each.first, each.end, manifest, "its segment is missing")
        for block in unknown:
            lost += _uncovered(max(block.first, manifest.start), block.end, manifest, "no segment has them")
        if not manifest.segments and old is None:
            manifest = replace(manifest, end=manifest.start)
        lost = list(in_order(tuple(lost)))
        manifest = replace(manifest, lost=in_order((*manifest.lost, *lost)))
        kept = None
        if MANIFEST in here:
            kept = f"{MANIFEST}.{int(time.time() * 1e6)}.replaced"
            storage.replace(f"{folder_of(partition)}/{kept}", storage.read(name)[0])
        there.apply(storage)
        manifest = save_manifest(storage, manifest)
        files = tuple(each.file for each in missing if each.file not in {one.file for one in manifest.segments})
        return Rebuilt(manifest, tuple(name for _, name in there.adopted), there.orphans, files, tuple(lost), kept)
    finally:
        os.close(lock)


def _readable(segments: Segments) -> tuple[list[Segment], tuple[Block, ...]]:
    """Return the listed segments, and the blocks that cannot be read."""
    found: list[Segment] = []
    unknown: list[Block] = []
    for block in segments.blocks:
        try:
            found += segments.entries(block)
        except (Damaged, OSError):
            unknown.append(block)
    return [each for each in (*found, *segments.recent) if each.end > segments.start], tuple(unknown)


def _uncovered(first: int, end: int, manifest: Manifest, why: str) -> list[Lost]:
    """Return the ranges of `first` to `end` - 1 that are in no segment and not listed as lost."""
    left = [Lost(first, end, why)]
    have: list[Segment | Lost] = [*manifest.segments, *manifest.lost]
    for each in have:
        left = list(without(left, each.first, each.end))
    return left
