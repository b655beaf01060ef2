"""Compaction of CRDT updates into snapshots: by Spark, and by one process that applies them; the results are compared.

Each document has two alternating authors; its updates are spread over the journal, as in real traffic.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _spark import Entry, clock, journal, made, spark
from pycrdt import Doc, Text

from _child import report
from nngkit import envelope
from nngkit.documents.versions import EditStream, to_wire
from nngkit.journal.record import encode_headers, encode_origin

TEMPLATES = 64  # generated conversations; each document uses one of them, under streams of its own
SCATTER = 50_000  # rows within which updates of different documents are mixed


def conversation(updates: int, seed: int) -> list[tuple[int, int, dict[int, int], bytes]]:
    """Return (author, seq, seen updates of the other author, update) in causal order."""
    rng = random.Random(seed)
    docs: list[Doc[Any]] = [Doc(client_id=2 * seed + 1), Doc(client_id=2 * seed + 2)]
    texts = [doc.get("body", type=Text) for doc in docs]
    seq, seen, found, missed = [0, 0], [0, 0], [], [list[bytes](), list[bytes]()]
    for _ in range(updates):
        me = rng.randrange(2)
        other = 1 - me
        if rng.random() < 0.5:  # it receives the other's updates
            for update in missed[me]:
                docs[me].apply_update(update)
            missed[me].clear()
            seen[me] = seq[other]
        state = docs[me].get_state()
        length = len(str(texts[me]))
        if length > 40 and rng.random() < 0.2:
            at = rng.randrange(length - 4)
            del texts[me][at : at + 3]
        else:
            texts[me].insert(rng.randint(0, length), rng.choice(("word ", "other ", "x")))
        seq[me] += 1
        update = docs[me].get_update(state)
        missed[other].append(update)
        found.append((me, seq[me], {other: seen[me]} if seen[me] else {}, update))
    return found


def entries(documents: int, updates: int) -> Iterator[Entry]:
    """Yield the journal's records: some thousand documents at a time, each in order, all mixed."""
    origin = encode_origin("documents", "bus", "tcp://10.0.0.1:4000")
    templates = [conversation(updates, number) for number in range(min(TEMPLATES, documents))]
    rng = random.Random(2)
    at = 1_700_000_000_000_000
    together = max(1, SCATTER // updates)
    for begin in range(0, documents, together):
        waiting = [
            (number, iter(templates[number % len(templates)]))
            for number in range(begin, min(begin + together, documents))
        ]
        while waiting:
            place = rng.randrange(len(waiting))
            number, rest = waiting[place]
            item = next(rest, None)
            if item is None:
                waiting[place] = waiting[-1]
                waiting.pop()
                continue
            author, seq, deps, update = item
            stream = _stream(number, author)
            headers = [("origin", stream.origin), ("epoch", _eight(1)), ("seq", _eight(seq))]
            if deps:
                had = {_stream(number, other): count for other, count in deps.items()}
                headers.append(("deps", envelope.encode(to_wire(had))))
            at += 100
            yield f"doc-{number}".encode(), update, origin, encode_headers(headers), at


def _stream(document: int, author: int) -> EditStream:
    return EditStream(_eight(2 * document + author), 1)


def _eight(number: int) -> bytes:
    return number.to_bytes(8, "big")


def recorded(task: dict[str, Any]) -> Path:
    documents, updates = task["documents"], task["updates"]
    return made(f"documents-{documents}-{updates}", lambda draft: journal(draft, entries(documents, updates)))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:8]


def compaction(task: dict[str, Any]) -> None:
    """Compact with Spark; then run incrementally over a hundredth of the documents, and count those touched."""
    from pyspark.sql.functions import lit, pmod, xxhash64

    from nngkit.spark.jobs.documents import compact, updates

    folder = recorded(task)
    out = f"{folder}.snapshots"
    begun = time.perf_counter()
    with spark(task) as session:
        rows = (
            session.read.format("nng").option("includeHeaders", "true").option("minPartitions", "4").load(str(folder))
        )
        with clock() as took:
            compact(updates(rows)).write.mode("overwrite").parquet(out)
        with_start = time.perf_counter() - begun
        few = updates(rows).where(pmod(xxhash64("doc"), lit(100)) == 0)
        with clock() as again:
            compact(few, session.read.parquet(out)).write.mode("overwrite").parquet(f"{out}.more")
        touched = session.read.parquet(f"{out}.more").count()
    total = task["documents"] * task["updates"]
    report(
        seconds=took[0], with_start=with_start, per_second=total / took[0], again_seconds=again[0], again_times=touched
    )


def sequential(task: dict[str, Any]) -> None:
    """Compact in one process, in journal order; end the benchmark if Spark's snapshots differ."""
    from pyarrow import parquet

    from nngkit.journal import open_journal

    folder = recorded(task)
    begun = time.perf_counter()
    docs: dict[bytes, Doc[Any]] = {}
    for batch in open_journal(folder).read_batches(0, columns=["key", "value"]):
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            doc = docs.get(key)
            if doc is None:
                doc = docs[key] = Doc()
            doc.apply_update(value)
    snapshots = {key: doc.get_update() for key, doc in docs.items()}
    took = time.perf_counter() - begun
    expected = {key.decode(): _digest(str(doc.get("body", type=Text))) for key, doc in docs.items()}
    assert len(snapshots) == len(expected) == task["documents"]
    for path in sorted(Path(f"{folder}.snapshots").glob("*.parquet")):
        for row in parquet.read_table(path, columns=["doc", "snapshot", "held"]).to_pylist():
            doc = Doc()
            doc.apply_update(row["snapshot"])
            if row["held"] or _digest(str(doc.get("body", type=Text))) != expected.pop(row["doc"], b""):
                raise AssertionError(f"{row['doc']}: Spark's snapshot differs from the updates applied in order")
    if expected:
        raise AssertionError(f"{len(expected)} documents have no snapshot")
    report(seconds=took, with_start=took, per_second=task["documents"] * task["updates"] / took)
