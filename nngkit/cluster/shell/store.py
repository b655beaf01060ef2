"""A voter on disk: term, vote, known epochs, log, snapshot. One folder for one voter; it blocks, so use a thread.

::

    store = VoterStore("voter-a")
    voter = Voter(..., restored=store.open(), durable=True)
    store.write(effects.persist)                 # one write and one sync; then voter.persisted(token, now)
    store.close()

    voter.log   = magic:8  version:u16  zero:u16  crc:u32  mark:8  record*
    record      = mark:8  length:u32  crc:u32  step*
    step        = 0  size:u32  CBOR [term, vote, [[voter, epoch]*]]
                | 1  first:u64  term:u64  count:u32  size:u32*  entry*
                | 2  index:u64  term:u64  keep:u8  size:u32  state

Integers are big-endian; the CRC is CRC32C and continues from the mark, which is random for each file: no entry can look
like a record. Each `write` is one record, and the next begins only after its sync. So a crash can leave at most the
last record incomplete, which is removed at `open`, as its sync was not reported. A bad record with an intact one behind
it is damage. A snapshot makes a new file, which replaces the old one by rename. A process that was killed may have left
a record, a new file or a new folder that is not synced: `open` syncs what it returns.

The folder's file ``owner`` has the name of the cluster and the id of the voter, a line each: another voter that was
given the folder by mistake would vote as if it had not voted, and take over jobs of another cluster.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import Struct
from struct import error as struct_error
from typing import Annotated, Final

from google_crc32c import extend as crc32c
from msgspec import Meta

from nngkit.cluster.election.log import ElectionLog, Snapshot
from nngkit.cluster.election.messages import Epochs
from nngkit.cluster.election.values import Persist, Restored, SaveEntries, SaveMeta, SaveSnapshot
from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage, Closed, ConfigError, Damaged, TooLarge
from nngkit.file_modes import make_file, make_folder, mode
from nngkit.journal.files import sync_file, sync_folder
from nngkit.mesh.wire import MOST_ORIGIN
from nngkit.messages import Natural, Row, Rows

_MAGIC: Final = b"NNGKITV\n"
_VERSION: Final = 1
_HEAD: Final = Struct(">8sHHI8s")
_RECORD: Final = Struct(">8sII")
_META: Final = Struct(">BI")
_ENTRIES: Final = Struct(">BQQI")
_SNAPSHOT: Final = Struct(">BQQBI")
_SIZE: Final = Struct(">I")
_NAME: Final = "voter.log"
_OWNER: Final = "owner"
_ADVICE: Final = "remove the folder only if a majority of the other voters has its state: this voter forgets its votes"


class VoterMeta(Row, frozen=True, tag=0):
    """Term, vote and epochs in a step; the step says the kind."""

    term: Natural
    vote: Annotated[str, Meta(max_length=MOST_ORIGIN)] | None
    epochs: Epochs


_METAS: Final = Rows[VoterMeta]("voter's term and vote", VoterMeta)


class VoterStore:
    """Folder of one voter, created if it is missing. `owner`: its cluster and id; None: not checked.

    The entries stay in memory as well, shared with the voter's log: a snapshot needs those after it for the new file.
    """

    def __init__(self, path: str | os.PathLike[str], owner: tuple[str, str] | None = None) -> None:
        self.path = Path(path)
        self._owner = owner
        self.size = 0
        self.syncs = 0
        self._meta = SaveMeta(0, 0, None, ())
        self._log = ElectionLog()
        self._mark = b""
        self._file = -1
        self._lock = -1

    def open(self) -> Restored | None:
        """Return the stored state; None for a new voter.

        Raises:
            Damaged: The file is not as written.
            ConfigError: Another process uses the folder, or it is another voter's.
            OSError: The disk failed.
        """
        self._meta, self._log = SaveMeta(0, 0, None, ()), ElectionLog()  # an earlier use may have failed in a write
        _make_folder(self.path)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode())
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise ConfigError("store", f"{self.path} is used by another process", str(self.path)) from error
        try:
            self._check_owner()
            name = self.path / _NAME
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name.with_suffix(".new"))
            try:
                data = name.read_bytes()
            except FileNotFoundError:  # not `exists`, for which any error of the disk is an answer since Python 3.14
                self._replace()
                return None
            return self._read(name, data)
        except BaseException:
            self.close()
            raise

    def write(self, steps: Sequence[Persist]) -> int:
        """Store the steps, all or none of them after a crash; return the last token.

        After an error nothing more can be written: the disk may have anything of it.

        Raises:
            OSError: The disk failed.
            Closed: The store is not open, or has failed.
        """
        if self._file < 0:
            raise Closed(f"{self.path} is not open")
        if not steps:
            return 0
        try:
            for step in steps:
                self._apply(step)
            if any(isinstance(step, SaveSnapshot) for step in steps):
                self._replace()
            else:
                record = self._record(map(_step_bytes, steps))
                _write_all(self._file, record)
                os.fdatasync(self._file)
                self.size += len(record)
                self.syncs += 1
        except BaseException:
            self.close()
            raise
        return max(step.token for step in steps)

    def close(self) -> None:
        """Close the files. Idempotent."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    # ---- content

    def _apply(self, step: Persist) -> None:
        log = self._log
        match step:
            case SaveMeta():
                self._meta = step
            case SaveEntries():
                if not log.base < step.first <= log.last + 1:
                    raise ValueError(f"entry {step.first} does not follow {log.last}")
                log.truncate(step.first)
                log.append(step.term, step.entries)
            case SaveSnapshot():
                if step.keep and log.term_at(step.snapshot.index) == step.snapshot.term:
                    log.install(step.snapshot)
                else:
                    self._log = ElectionLog(step.snapshot if step.snapshot.index else None)

    def _steps(self) -> list[Persist]:
        """Return steps that lead to the present content."""
        log, first = self._log, self._log.base + 1
        found: list[Persist] = [self._meta]
        if log.snapshot is not None:
            found.append(SaveSnapshot(0, log.snapshot, False))
        while first <= log.last:
            term, entries = log.batch(first, 64 << 20)
            found.append(SaveEntries(0, first, term, entries))
            first += len(entries)
        return found

    def _record(self, parts: Iterable[bytes]) -> bytes:
        body = b"".join(parts)
        return _RECORD.pack(self._mark, len(body), crc32c(crc32c(0, self._mark), body)) + body

    # ---- files

    def _check_owner(self) -> None:
        """Note whose folder it is, if that is not known. Raises ConfigError."""
        if self._owner is None:
            return
        name = self.path / _OWNER
        text = "".join(f"{line}\n" for line in self._owner)  # both are printable
        try:
            found = name.read_bytes().decode(errors="replace")
        except FileNotFoundError:
            found = ""
        if not found:  # new, or of an nngkit that did not write it
            scratch = name.with_suffix(".new")
            make_file(scratch)
            scratch.write_text(text, encoding="utf-8")
            sync_file(scratch)
            os.rename(scratch, name)
            sync_folder(self.path)
        elif found != text:
            cluster, _, voter = found.rstrip("\n").partition("\n")
            why = f"{self.path} is the store of {voter!r} of the cluster {cluster!r}"
            raise ConfigError("store", f"{why}, not of {self._owner[1]!r} of {self._owner[0]!r}", str(self.path))

    def _replace(self) -> None:
        """Write the content to a new file in place of the old one."""
        self._mark = os.urandom(8)
        start = _HEAD.pack(_MAGIC, _VERSION, 0, crc32c(0, self._mark), self._mark)
        data = start + self._record(map(_step_bytes, self._steps()))
        name = self.path / _NAME
        scratch = name.with_suffix(".new")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        file = os.open(scratch, flags, mode())
        try:
            _write_all(file, data)
            os.fsync(file)
            os.rename(scratch, name)
            sync_folder(self.path)
        except BaseException:
            os.close(file)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self.size = file, len(data)
        self.syncs += 1

    def _read(self, name: Path, data: bytes) -> Restored | None:
        if len(data) < _HEAD.size:
            raise Damaged(str(name), "the header is incomplete", position=0, advice=_ADVICE)
        magic, version, _, crc, self._mark = _HEAD.unpack_from(data)
        if magic != _MAGIC or crc32c(0, self._mark) != crc:
            raise Damaged(str(name), "the header is not that of a voter", position=0, advice=_ADVICE)
        if version != _VERSION:
            raise Damaged(str(name), f"format version {version}; this nngkit reads version {_VERSION}", position=8)
        at, salt = _HEAD.size, crc32c(0, self._mark)
        while at < len(data) or at == _HEAD.size:
            end = self._intact(data, at, salt)
            if end is None:
                behind = data.find(self._mark, at + 1)
                while behind >= 0 and self._intact(data, behind, salt) is None:
                    behind = data.find(self._mark, behind + 1)
                if behind >= 0 or at == _HEAD.size:  # the first record came with the file: it is never torn
                    raise Damaged(str(name), "a record is not as written", position=at, advice=_ADVICE)
                break
            try:
                for step in _read_steps(data[at + _RECORD.size : end]):
                    self._apply(step)
            except (ValueError, struct_error, BadMessage, TooLarge) as error:
                raise Damaged(str(name), str(error), position=at, advice=_ADVICE) from error
            at = end
        self._file = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        if at < len(data):
            os.ftruncate(self._file, at)
        os.fsync(self._file)  # a run that was killed between a write and its sync left a record only in memory
        sync_folder(self.path)  # or between the rename of a new file and its sync
        self.size = at
        log, meta = self._log, self._meta
        first = log.base + 1
        entries = tuple((log.term_at(index) or 0, log.entry(index)) for index in range(first, log.last + 1))
        found = Restored(meta.term, meta.vote, meta.epochs, log.snapshot, entries)
        return None if found == Restored() else found

    def _intact(self, data: bytes, at: int, salt: int) -> int | None:
        """Return the end of the record at `at`; None if it is not intact."""
        if at + _RECORD.size > len(data):
            return None
        mark, length, crc = _RECORD.unpack_from(data, at)
        end: int = at + _RECORD.size + length
        if mark != self._mark or end > len(data) or crc32c(salt, data[at + _RECORD.size : end]) != crc:
            return None
        return end


def _make_folder(path: Path) -> None:
    """Create a folder that is still there after a power failure: a voter whose folder is gone forgets its votes.

    The innermost folder that exists is synced as well: a run that was killed may have made it. A folder in one that
    this user may not read was made by another.
    """
    if path.is_dir():
        with contextlib.suppress(PermissionError):
            sync_folder(path.parent)
        return
    _make_folder(path.parent)
    make_folder(path)
    sync_folder(path.parent)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _step_bytes(step: Persist) -> bytes:
    match step:
        case SaveMeta():
            body = encode(_METAS.pack(VoterMeta(step.term, step.vote, step.epochs))[1:])
            return _META.pack(0, len(body)) + body
        case SaveEntries():
            sizes = b"".join(_SIZE.pack(len(entry)) for entry in step.entries)
            return b"".join((_ENTRIES.pack(1, step.first, step.term, len(step.entries)), sizes, *step.entries))
        case SaveSnapshot():
            index, term, state = step.snapshot
            return _SNAPSHOT.pack(2, index, term, step.keep, len(state)) + state


def _read_steps(data: bytes) -> Iterable[Persist]:
    """Yield the steps of a record. Raises ValueError, struct.error, BadMessage, TooLarge."""
    at = 0
    while at < len(data):
        if data[at] == 0:
            _, size = _META.unpack_from(data, at)
            at += _META.size
            row = decode(data[at : at + size], what=_METAS.what)
            meta = _METAS.parse([0, *row] if type(row) is list else row)
            assert meta is not None  # it has a kind that is known
            yield SaveMeta(0, meta.term, meta.vote, meta.epochs)
            at += size
        elif data[at] == 1:
            _, first, term, count = _ENTRIES.unpack_from(data, at)
            at += _ENTRIES.size
            start, entries = at + _SIZE.size * count, []
            if start > len(data):
                raise ValueError("sizes are missing")
            for number in range(count):
                size = _SIZE.unpack_from(data, at + _SIZE.size * number)[0]
                entries.append(data[start : start + size])
                start += size
            at = start
            yield SaveEntries(0, first, term, tuple(entries))
        elif data[at] == 2:
            _, index, term, keep, size = _SNAPSHOT.unpack_from(data, at)
            at += _SNAPSHOT.size
            yield SaveSnapshot(0, Snapshot(index, term, data[at : at + size]), bool(keep))
            at += size
        else:
            raise ValueError(f"step of an unknown kind {data[at]}")
    if at != len(data):
        raise ValueError("a step is longer than its record")
