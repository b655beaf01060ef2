"""Compaction of documents in a worker: batches of updates in, a snapshot of each document out. See documents.py.

A partition has all updates of its documents. It is taken apart by column, in C: headers, numbers, streams, and the
order of the rows by document and offset. What is left in Python is a loop over the rows that compares numbers and hands
the updates to the engine, in one transaction a document: as the recorder stores updates in the order in which they
came, nearly each is applicable when its turn comes. Dependencies are decoded only if they differ from those before. A
document for which that fails once begins anew on the general way (causal.py), with its own rows only.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from nngkit import envelope
from nngkit.documents.versions import STREAMS, EditStream, Versions, from_wire, merge, prune, to_wire
from nngkit.spark.jobs.causal import Update, in_order

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

__all__ = ["snapshots"]

TOGETHER: Final = 1000  # documents, or
TOGETHER_BYTES: Final = 16 << 20  # bytes of snapshots, in one batch of the result
SIGNED: Final = (1 << 63) - 1
LARGE: Final = 1 << 30  # bytes of a partition from which offsets into its columns have 64 bits


def snapshots(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield snapshots of the documents of a partition: rows of doc, update, headers, partition, offset, at."""
    import pyarrow as pa

    waiting = list(batches)
    if not waiting:
        return
    table = pa.Table.from_batches(waiting)
    waiting.clear()
    if table.nbytes > LARGE:
        place = table.schema.get_field_index("update")
        table = table.set_column(place, "update", table.column("update").cast(pa.large_binary()))
    was_on = gc.isenabled()
    gc.disable()  # millions of objects without a cycle: looking for one would take as long as the work
    try:
        rows = _Rows(table.combine_chunks())
        del table
        result = _Result()
        for at in rows.documents():
            result.add(rows, at)
            if result.is_full():
                yield result.take()
        if result.rows["doc"]:
            yield result.take()
    finally:
        if was_on:
            gc.enable()


class _Rows:
    """Columns of a partition. Rows that are no updates have no place in `documents`."""

    def __init__(self, table: pa.Table) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        headers = _chunk(table.column("headers"))
        origin, epoch, seq, deps, versions = (
            _header(headers, name) for name in ("origin", "epoch", "seq", "deps", "versions")
        )
        self.number = _numbers(seq)
        epochs = _numbers(epoch)
        is_merge = np.asarray(pc.is_valid(versions))
        is_edit = np.asarray(pc.is_valid(origin)) & (epochs >= 0) & (self.number >= 0)
        joined = pc.binary_join_element_wise(origin, epoch, pa.scalar(b"", origin.type)).dictionary_encode()
        self.streams = [_stream(each) for each in joined.dictionary.to_pylist()]
        self.stream: list[int] = joined.indices.fill_null(-1).to_pylist()
        names = _chunk(table.column("doc")).dictionary_encode()
        self.names: list[str] = names.dictionary.to_pylist()
        self.codes = names.indices.to_numpy()
        self.update: list[bytes] = _chunk(table.column("update")).to_pylist()
        self.deps: list[bytes | None] = deps.to_pylist()
        self.versions: list[bytes | None] = versions.to_pylist()
        self.at = _chunk(table.column("at")).cast(pa.int64()).to_numpy()
        self.headers = headers
        order = _order(_chunk(table.column("partition")).to_numpy(), _chunk(table.column("offset")).to_numpy())
        order = order[(is_merge | is_edit)[order]]
        self._order = order[np.argsort(self.codes[order], kind="stable")]

    def documents(self) -> Iterator[list[int]]:
        """Yield the rows of each document, in the order of the journal."""
        import numpy as np

        order = self._order
        ends = np.flatnonzero(np.diff(self.codes[order])) + 1
        for rows in np.split(order, ends):
            if len(rows):
                yield rows.tolist()

    def row(self, at: int) -> Update:
        """Return a row for the general way."""
        deps = _decoded(self.deps[at], "deps")
        if (versions := self.versions[at]) is not None:
            return Update(None, 0, 0, deps, self.update[at], _decoded(versions, "versions"))
        number = int(self.number[at])
        return Update(self.streams[self.stream[at]], number, number, deps, self.update[at])


class _Result:
    """Rows of the result that are not yielded yet."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = _no_rows()
        self.bytes = 0

    def is_full(self) -> bool:
        return len(self.rows["doc"]) >= TOGETHER or self.bytes >= TOGETHER_BYTES

    def add(self, rows: _Rows, places: list[int]) -> None:
        """Add the snapshot of the document with these rows."""
        found = _in_journal_order(rows, places)
        doc, versions, held = found if found is not None else _in_causal_order(rows, places)
        updates = sum(versions.values())
        if len(versions) > STREAMS:  # more than a version vector may list; each page load is a stream
            prune(versions)
        snapshot = doc.get_update()
        out = self.rows
        out["doc"].append(rows.names[rows.codes[places[0]]])
        out["snapshot"].append(snapshot)
        out["versions"].append(envelope.encode(to_wire(versions)))
        out["updates"].append(updates)
        out["at"].append(int(rows.at[places].max()))
        out["held"].append([{"update": rows.update[at], "headers": rows.headers[at].as_py()} for at in held])
        self.bytes += len(snapshot)

    def take(self) -> pa.RecordBatch:
        """Return the rows since the last call."""
        import pyarrow as pa

        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        held = pa.list_(pa.struct([("update", pa.binary()), ("headers", pa.list_(header))]))
        kinds = {
            "doc": pa.string(),
            "snapshot": pa.binary(),
            "versions": pa.binary(),
            "updates": pa.int64(),
            "at": pa.int64(),
            "held": held,
        }
        arrays = {name: pa.array(column, kinds[name]) for name, column in self.rows.items()}
        arrays["at"] = arrays["at"].cast(pa.timestamp("us", tz="UTC"))
        self.rows, self.bytes = _no_rows(), 0
        return pa.RecordBatch.from_pydict(arrays)


def _no_rows() -> dict[str, list[Any]]:
    return {name: [] for name in ("doc", "snapshot", "versions", "updates", "at", "held")}


def _in_journal_order(rows: _Rows, places: Sequence[int]) -> tuple[Any, Versions, list[int]] | None:
    """Apply the updates of a document as they were recorded; None if one of them would have to wait."""
    from pycrdt import Doc

    doc: Doc[Any] = Doc()
    have: Versions = {}
    streams, numbers, updates, deps, merges = rows.streams, rows.number, rows.update, rows.deps, rows.versions
    codes = rows.stream
    checked: tuple[bytes | None, int | None] = (None, None)
    with doc.transaction():
        for at in places:
            needed = deps[at]
            if (versions := merges[at]) is not None:
                if needed and any(have.get(each, 0) < number for each, number in _decoded(needed, "deps").items()):
                    return None
                have = merge(have, _decoded(versions, "versions"))
                if updates[at]:
                    doc.apply_update(updates[at])
                continue
            code = codes[at]
            stream = streams[code]
            number = int(numbers[at])
            here = have.get(stream, 0)
            if number <= here:
                continue  # recorded twice
            if number != here + 1:
                return None
            if needed and (needed, code) != checked:  # what was there once stays
                for each, least in _decoded(needed, "deps").items():
                    if each != stream and have.get(each, 0) < least:
                        return None
                checked = needed, code
            have[stream] = number
            if updates[at]:  # an update rejected by peers is recorded as empty
                doc.apply_update(updates[at])
    return doc, have, []


def _in_causal_order(rows: _Rows, places: Sequence[int]) -> tuple[Any, Versions, list[int]]:
    """Apply the updates of a document, each once its dependencies are; return those too that wait for others."""
    from pycrdt import Doc

    given = [(rows.row(at), at) for at in places]
    ordered = in_order((update for update, _ in given), {})
    doc: Doc[Any] = Doc()
    with doc.transaction():
        for each in ordered.ready:
            if each.update:
                doc.apply_update(each.update)
    waiting = {id(each) for each in ordered.held}
    return doc, ordered.versions, [at for update, at in given if id(update) in waiting]


def _stream(joined: bytes) -> EditStream:
    return EditStream(joined[:-8], int.from_bytes(joined[-8:], "big"))


def _decoded(data: bytes | None, what: str) -> Versions:
    return from_wire(envelope.decode(data, what=what), what=what) if data else {}


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _header(headers: pa.Array, name: str) -> pa.Array:
    """Return the first header of that name of each row, binary; null if there is none."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    entries = headers.flatten()
    is_it = pc.equal(pc.struct_field(entries, 0), name)
    rows = pc.list_parent_indices(headers).filter(is_it).to_numpy()
    values = pc.struct_field(entries, 1).filter(is_it)
    place = np.full(len(headers), -1, dtype=np.int64)
    place[rows[::-1]] = np.arange(len(rows))[::-1]  # the first one is written last
    return values.take(pa.array(place, mask=place < 0))


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return 8 bytes, big-endian, as integers; -1 for null, other lengths, and over 2^63 - 1."""
    import numpy as np
    import pyarrow.compute as pc

    right = np.asarray(pc.fill_null(pc.equal(pc.binary_length(column), 8), False))
    numbers = np.full(len(column), -1, dtype=np.int64)
    if right.any():
        values = column.filter(right)
        first = int.from_bytes(values.buffers()[1][4 * values.offset : 4 * values.offset + 4].to_pybytes(), "little")
        data = np.frombuffer(values.buffers()[2], dtype=np.uint8)[first : first + 8 * len(values)]
        found = data.view(">u8")
        numbers[right] = np.where(found <= SIGNED, found, 0).astype(np.int64) - (found > SIGNED)
    return numbers


def _order(partitions: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return the rows in the order of partition and offset; both are ascending runs already, which sort quickly."""
    import numpy as np

    order = np.argsort(offsets, kind="stable")
    if len(partitions) and (partitions[0] != partitions).any():
        order = order[np.argsort(partitions[order], kind="stable")]
    return order
