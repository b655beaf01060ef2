"""Compaction of documents in a worker: packed updates in (packing.py), a snapshot of each document out.

A partition has all updates of its documents (documents.py). They are taken apart by column (columns.py), and nearly all
documents have them in an applicable order (recorded_order.py): what is left in Python for these is to hand them to the
engine, in one transaction a document. The others go the general way (causal.py), row by row.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from nngkit import envelope
from nngkit.documents.versions import ORIGIN, STREAMS, EditStream, Versions, from_wire, prune, to_wire
from nngkit.spark.jobs.causal import Update, in_order

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from nngkit.spark.jobs.columns import Vectors

    Int64s = npt.NDArray[np.int64]

TOGETHER: Final = 1000  # documents, or
TOGETHER_BYTES: Final = 16 << 20  # bytes of snapshots, in one batch of the result
LARGE: Final = 1 << 30  # bytes of a partition from which offsets into its columns have 64 bits


def snapshots(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield snapshots (documents.SNAPSHOT) of the documents in packed rows, which are all that there are of these."""
    import pyarrow as pa

    from nngkit.spark.jobs.packing import unpacked

    table = unpacked(batches)
    if not table.num_rows:
        return
    if table.nbytes > LARGE:
        place = table.schema.get_field_index("value")
        table = table.set_column(place, "value", table.column("value").cast(pa.large_binary()))
    was_on = gc.isenabled()
    gc.disable()  # millions of objects without a cycle: looking for one would take as long as the work
    try:
        rows = _Rows(table.combine_chunks())
        del table
        result = _Result()
        for number in range(len(rows.names)):
            result.add(rows, number)
            if result.is_full():
                yield result.take()
        if result.rows["doc"]:
            yield result.take()
    finally:
        if was_on:
            gc.enable()


class _Rows:
    """Columns of a partition's updates, by document and in the order of the journal; other rows are left out.

    Document `n` has the rows from ``edges[n]`` to ``edges[n + 1]``.
    """

    def __init__(self, table: pa.Table) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from nngkit.spark.jobs.columns import headers_of, numbers, read_vectors

        names = _chunk(table.column("key")).dictionary_encode()
        by_name = names.indices.to_numpy()
        self._headers = _chunk(table.column("headers"))
        origin, epoch, seq, deps, versions = headers_of(self._headers, "origin", "epoch", "seq", "deps", "versions")
        epochs, number = numbers(epoch), numbers(seq)
        is_update = np.asarray(pc.is_valid(versions))
        is_update |= np.asarray(pc.is_valid(origin)) & (epochs >= 0) & (number >= 0)
        order = _order(_chunk(table.column("partition")).to_numpy(), _chunk(table.column("offset")).to_numpy())
        order = order[is_update[order]]
        order = order[np.argsort(by_name[order], kind="stable")]

        self._place = order  # of each row in `table`
        chosen = pa.array(order)
        self.update = _chunk(table.column("value")).take(chosen)
        self.origin, self.deps, self.versions = (each.take(chosen) for each in (origin, deps, versions))
        self.epoch, self.number = epochs[order], number[order]
        change = np.diff(by_name[order], prepend=-1) != 0
        starts = np.flatnonzero(change)
        self.names: list[str] = names.dictionary.take(pa.array(by_name[order][starts])).cast(pa.string()).to_pylist()
        self.edges: list[int] = [*starts.tolist(), len(order)]
        at = _chunk(table.column("timestamp")).cast(pa.int64()).to_numpy()[order]
        self.at: list[int] = np.maximum.reduceat(at, starts).tolist() if len(starts) else []
        self._find(np.cumsum(change) - 1, read_vectors(self.deps), read_vectors(self.versions))

    def _find(self, doc: Int64s, deps: Vectors, versions: Vectors) -> None:
        """Find the documents in order, with the updates to apply and the version vectors."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from nngkit.spark.jobs.columns import eights
        from nngkit.spark.jobs.recorded_order import Edits, Entries, find

        is_merge = np.asarray(pc.is_valid(self.versions))
        origin, is_right = eights(self.origin)
        codes, self._streams = _streams(
            (origin, self.epoch), (deps.origin, deps.epoch), (versions.origin, versions.epoch)
        )
        of_rows, of_deps, of_versions = codes
        refused = deps.refused | versions.refused | ~(is_merge | is_right)
        edits = Edits(doc, np.where(is_merge, -1, of_rows), self.number, refused)
        found = find(
            edits,
            len(self.names),
            Entries(deps.row, of_deps, deps.seq),
            Entries(versions.row, of_versions, versions.seq),
        )
        self.in_order: list[bool] = found.in_order.tolist()
        numbers = np.arange(len(self.names) + 1)
        self._last = list(zip(found.stream.tolist(), found.last.tolist(), strict=True))
        self._last_edges: list[int] = np.searchsorted(found.doc, numbers).tolist()
        # An update that peers rejected is recorded as empty.
        applied = found.applied & (np.asarray(pc.binary_length(self.update)) > 0)
        self._applied: list[bytes] = self.update.filter(pa.array(applied)).to_pylist()
        self._applied_edges: list[int] = np.searchsorted(doc[applied], numbers).tolist()

    def applied(self, number: int) -> list[bytes]:
        """Return the updates to apply of a document in order."""
        return self._applied[self._applied_edges[number] : self._applied_edges[number + 1]]

    def last(self, number: int) -> Versions:
        """Return the version vector of a document in order."""
        entries = self._last[self._last_edges[number] : self._last_edges[number + 1]]
        return {self._streams[code]: last for code, last in entries}

    def as_recorded(self, at: int) -> dict[str, Any]:
        """Return the update and the headers of a row."""
        return {"update": self.update[at].as_py(), "headers": self._headers[int(self._place[at])].as_py()}

    def row(self, at: int) -> Update:
        """Return a row for the general way."""
        deps = _decoded(self.deps[at].as_py(), "deps")
        update = self.update[at].as_py()
        if (versions := self.versions[at].as_py()) is not None:
            return Update(None, 0, 0, deps, update, _decoded(versions, "versions"))
        number = int(self.number[at])
        return Update(EditStream(self.origin[at].as_py(), int(self.epoch[at])), number, number, deps, update)


class _Result:
    """Rows of the result that are not yielded yet."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = _no_rows()
        self.bytes = 0

    def is_full(self) -> bool:
        return len(self.rows["doc"]) >= TOGETHER or self.bytes >= TOGETHER_BYTES

    def add(self, rows: _Rows, number: int) -> None:
        """Add the snapshot of a document."""
        snapshot, versions, held = (
            _in_recorded_order(rows, number) if rows.in_order[number] else _in_causal_order(rows, number)
        )
        updates = sum(versions.values())
        if len(versions) > STREAMS:  # more than a version vector may list; each page load is a stream
            prune(versions)
        out = self.rows
        out["doc"].append(rows.names[number])
        out["snapshot"].append(snapshot)
        out["versions"].append(envelope.encode(to_wire(versions)))
        out["updates"].append(updates)
        out["at"].append(rows.at[number])
        out["held"].append([rows.as_recorded(at) for at in held])
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


def _in_recorded_order(rows: _Rows, number: int) -> tuple[bytes, Versions, list[int]]:
    """Apply the updates of a document as they were recorded."""
    from pycrdt import Doc

    doc: Doc[Any] = Doc()
    with doc.transaction():
        for update in rows.applied(number):
            doc.apply_update(update)
    return doc.get_update(), rows.last(number), []


def _in_causal_order(rows: _Rows, number: int) -> tuple[bytes, Versions, list[int]]:
    """Apply the updates of a document, each once its dependencies are; return those too that wait for others."""
    from pycrdt import Doc

    given = [(rows.row(at), at) for at in range(rows.edges[number], rows.edges[number + 1])]
    ordered = in_order((update for update, _ in given), {})
    doc: Doc[Any] = Doc()
    with doc.transaction():
        for each in ordered.ready:
            if each.update:
                doc.apply_update(each.update)
    waiting = {id(each) for each in ordered.held}
    return doc.get_update(), ordered.versions, [at for update, at in given if id(update) in waiting]


def _decoded(data: bytes | None, what: str) -> Versions:
    return from_wire(envelope.decode(data, what=what), what=what) if data else {}


def _streams(*columns: tuple[npt.NDArray[np.uint64], Int64s]) -> tuple[list[Int64s], list[EditStream]]:
    """Return the streams in columns of origins and epochs, and each column as places in their list."""
    import numpy as np
    import pyarrow as pa

    origins, epochs = (pa.array(np.concatenate(each)).dictionary_encode() for each in zip(*columns, strict=True))
    several = max(1, len(epochs.dictionary))
    both = pa.array(
        origins.indices.to_numpy().astype(np.int64) * several + epochs.indices.to_numpy()
    ).dictionary_encode()
    used = both.dictionary.to_numpy()
    names = [each.to_bytes(ORIGIN, "big") for each in origins.dictionary.to_pylist()]
    numbers = epochs.dictionary.to_pylist()
    streams = [EditStream(names[each // several], numbers[each % several]) for each in used.tolist()]
    edges = np.cumsum([len(origin) for origin, _ in columns])[:-1]
    return np.split(both.indices.to_numpy().astype(np.int64), edges), streams


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _order(partitions: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return the rows in the order of partition and offset; both are ascending runs already, which sort quickly."""
    import numpy as np

    order = np.argsort(offsets, kind="stable")
    if len(partitions) and (partitions[0] != partitions).any():
        order = order[np.argsort(partitions[order], kind="stable")]
    return order
