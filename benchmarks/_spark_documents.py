"""Compaction of CRDT updates into snapshots: by Spark, and by one process that applies them; the results are compared.

Each document has two alternating authors; its updates are spread over the journal, as in real traffic.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
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


Edited = tuple[int, int, dict[int, int], bytes]


def conversation(updates: int, seed: int) -> list[Edited]:
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
    """Yield the journal's records: `updates` of each document, in order, and as many again of a hundredth of them.

    Some thousand documents are mixed at a time.
    """
    templates = [conversation(2 * updates, number) for number in range(min(TEMPLATES, documents))]
    rng = random.Random(2)
    at = 1_700_000_000_000_000
    together = max(1, SCATTER // updates)
    parts = [range(begin, min(begin + together, documents)) for begin in range(0, documents, together)]
    for part in parts:
        yield from _mixed({number: templates[number % len(templates)][:updates] for number in part}, rng, at)
        at += 100 * len(part) * updates
    yield from _mixed({number: templates[number % len(templates)][updates:] for number in few(documents)}, rng, at)


def few(documents: int) -> range:
    """Return the documents that are edited again."""
    return range(0, documents, 100)


def _mixed(conversations: dict[int, list[Edited]], rng: random.Random, at: int) -> Iterator[Entry]:
    origin = encode_origin("documents", "bus", "tcp://10.0.0.1:4000")
    waiting = [(number, iter(items)) for number, items in conversations.items()]
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
    return made(f"documents-{documents}-{updates}-more", lambda draft: journal(draft, entries(documents, updates)))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:8]


def compaction(task: dict[str, Any]) -> None:
    """Compact with Spark, cold and warm; then again after a hundredth more updates, in a hundredth of the documents."""
    from nngkit.spark.jobs.packing import COLUMNS
    from nngkit.spark.jobs.snapshots import advance
    from nngkit.spark.reading.batches import map_batches

    folder = recorded(task)
    middle = task["documents"] * task["updates"]
    end = middle + len(few(task["documents"])) * task["updates"]
    begun = time.perf_counter()
    with spark(task) as session:

        def updates(first: int, last: int) -> Any:  # as `nngkit spark run documents`
            ends = {"startingOffsets": json.dumps({"0": first}), "endingOffsets": json.dumps({"0": last})}
            return partial(map_batches, session, str(folder), columns=COLUMNS, **ends)

        for number in range(2):
            out = f"{folder}.snapshots"
            shutil.rmtree(out, ignore_errors=True)
            with clock() as took:
                advance(session, updates(0, middle), {0: middle}, out)
            if not number:
                cold, with_start = took[0], time.perf_counter() - begun
        cold_again = None
        for _ in range(2):
            for kind in ("snapshots", "progress"):
                shutil.rmtree(f"{out}/{kind}/generation=2", ignore_errors=True)
            with clock() as again:
                advance(session, updates(middle, end), {0: end}, out)
            cold_again = cold_again or again[0]
        touched = session.read.parquet(f"{out}/snapshots/generation=2").count()
    report(
        seconds=took[0],
        cold_seconds=cold,
        with_start=with_start,
        per_second=middle / took[0],
        again_seconds=again[0],
        again_cold=cold_again,
        again_part=again[0] / took[0],
        again_times=touched,
    )


def sequential(task: dict[str, Any]) -> None:
    """Compact in one process, a transaction for each document; end the benchmark if Spark's snapshots differ.

    It trusts the order of the journal, which Spark's job does not: it compares numbers and dependencies.
    """
    from nngkit.journal import open_journal

    folder = recorded(task)
    middle = task["documents"] * task["updates"]
    journal = open_journal(folder)
    begun = time.perf_counter()
    docs = applied(journal.read_batches(0, end=middle, columns=["key", "value"]), {})
    snapshots = {key: doc.get_update() for key, doc in docs.items()}
    took = time.perf_counter() - begun
    assert len(snapshots) == task["documents"]
    applied(journal.read_batches(0, start=middle, columns=["key", "value"]), docs)
    found = newest(Path(f"{folder}.snapshots"), (1, 2))
    if wrong := differences(found, docs):
        raise AssertionError(f"Spark's snapshots differ from the updates applied in order: {wrong[0]}")
    if len(found) != len(docs):
        raise AssertionError(f"{len(docs) - len(found)} documents have no snapshot")
    report(seconds=took, with_start=took, per_second=middle / took)


def newest(folder: Path, generations: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Return the newest snapshot of each document. Raises AssertionError if a generation has two of one."""
    from pyarrow import parquet

    found: dict[str, dict[str, Any]] = {}
    for generation in generations:
        rows = [
            row
            for path in sorted((folder / "snapshots" / f"generation={generation}").glob("*.parquet"))
            for row in parquet.ParquetFile(path).read(columns=["doc", "snapshot", "held"]).to_pylist()
        ]
        by_name = {row["doc"]: row for row in rows}
        if len(by_name) < len(rows):
            raise AssertionError(f"generation {generation} has {len(rows) - len(by_name)} documents twice")
        found |= by_name
    return found


def differences(found: dict[str, dict[str, Any]], docs: dict[bytes, Doc[Any]]) -> list[str]:
    """Return the documents whose snapshot is not their text, has updates held back, or should not exist."""
    expected = {key.decode(): _digest(str(doc.get("body", type=Text))) for key, doc in docs.items()}
    wrong = []
    for name, row in found.items():
        doc = Doc[Any]()
        doc.apply_update(row["snapshot"])
        if row["held"] or _digest(str(doc.get("body", type=Text))) != expected.get(name, b""):
            wrong.append(name)
    return wrong


def applied(batches: Iterator[Any], docs: dict[bytes, Doc[Any]]) -> dict[bytes, Doc[Any]]:
    """Apply updates to documents, in one transaction each; return the documents."""
    found: dict[bytes, list[bytes]] = {}
    for batch in batches:
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            found.setdefault(key, []).append(value)
    for key, updates in found.items():
        doc = docs.setdefault(key, Doc())
        with doc.transaction():
            for update in updates:
                doc.apply_update(update)
    return docs
