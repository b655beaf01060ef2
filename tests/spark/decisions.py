"""Histories of the pure modules of spark, journal and lakehouse, for test_decisions.py."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from nngkit import envelope
from nngkit.cli.journal.spark_table import cell, fit, plain, table
from nngkit.documents.versions import EPOCHS, EPOCHS_KEPT, EditStream, Versions, to_wire
from nngkit.errors import NngkitError
from nngkit.journal import record as records
from nngkit.lakehouse.plan import Commit, File, Listed, decide
from nngkit.spark.analytics.charts import Bar, lines, ticks, timeline, times
from nngkit.spark.jobs.causal import Update, in_order
from nngkit.spark.jobs.columns import eights, headers_of, numbers, read_vectors
from nngkit.spark.jobs.recorded_order import Edits, Entries, find
from nngkit.spark.reading import plan
from nngkit.spark.reading.choice import choice
from nngkit.spark.reading.options import ReadOptions, WriteOptions, host_and_port
from nngkit.spark.reading.positions import parse_time

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SIZES: Final = (1, 2, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, EPOCHS, EPOCHS + 1, 0)


def said(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return what a call returns, or the error that it raises."""
    try:
        return call(*arguments, **named)
    except (NngkitError, ValueError) as error:
        return type(error).__name__, str(error)


def reads(seed: int) -> Iterator[Any]:
    """Plan reads of partitions of which parts have expired or were lost."""
    rng = Random(seed)
    pace = plan.Pace((None, 20, 60)[seed], 4.0)
    for _ in range(250):
        kept = {}
        for partition in range(rng.randrange(1, 4)):
            start = rng.randrange(60)
            end = start + rng.randrange(60)
            lost = tuple(
                (at, at + rng.randrange(1, 20)) for at in rng.sample(range(start, end + 1), rng.choice((0, 1)))
            )
            kept[partition] = plan.Available(start, end, lost)
        first = rng.randrange(80)
        wanted = plan.OffsetRange(0, first, first + rng.randrange(60))
        yield said(plan.checked, wanted, kept[0], "j", fail=rng.random() < 0.2)
        yield plan.without_lost(wanted, kept[0]), [str(each) for each in plan.lost_in(wanted, kept[0])]
        yield [plan.over_lost(offset, kept[0]) for offset in range(first, first + 9)]
        asked = rng.choice((-1, -2, 7, {0: -1}, {0: 5, 1: -2}, {4: 1}))
        yield (starts := said(plan.resolve, asked, kept, "startingOffsets", rng.choice((-1, -2))))
        if isinstance(starts, dict):
            yield said(plan.begin_within, starts, kept, "j"), plan.from_json(plan.to_json(starts))
        moments = {rng.randrange(4): rng.randrange(100) * 10**6}
        yield said(plan.at_times, moments, kept, "t", lambda _, time: time // 10**6, strict=rng.random() < 0.7)
        ends = {partition: each.end for partition, each in kept.items()}
        begins = {partition: each.start for partition, each in kept.items() if rng.random() < 0.9}
        yield plan.limited(begins, ends, rng.choice((1, 2, 10, 40, 100)))
        now = _ / 2
        yield pace.waits(begins, ends, now), pace.last
        ranges = [plan.OffsetRange(partition, each.start, each.end) for partition, each in kept.items()]
        yield plan.split(ranges, rng.choice((1, 7, 40, 1000)), rng.choice((0, 1, 4, 50)))


OFFSETS: Final = (
    *("earliest", "Latest", "{}", '{"0": -3}', '{"0": -2}', '{"0": 5, "1": -1}', '{"x": 1}', "[1]", "?", '{"0": "1"}'),
    *('{"0": true}', f'{{"0": {1 << 63}}}', f'{{"0": {(1 << 63) - 1}}}'),
)
MOMENTS: Final = ("0", "-5", "2026-01-02T03:04:05.5", "2026-01-02T03:04:05+02:00", "soon", "99999999999999999")
BY_TIME: Final = ('{"0": 1000}', '{"0": "2026-01-02", "1": 5}', '{"0": 1.5}', '{"0": null}', "{}")
READ: Final[dict[str, tuple[str, ...]]] = {
    **{f"{side}Offsets": OFFSETS for side in ("starting", "ending")},
    **{f"{side}Timestamp": MOMENTS for side in ("starting", "ending")},
    **{f"{side}OffsetsByTimestamp": BY_TIME for side in ("starting", "ending")},
    "startingOffsetsByTimestampStrategy": ("error", "latest", "Error", "x"),
    "subscribe": ("a, b", "a"),
    "subscribePattern": ("a.*", "("),
    "assign": ("[0, 2]", '{"a": [0], "b": [0, 1]}', "[]", "{}", "[-1]", "[true]", "5", '{"a": []}', "?"),
    "keyPrefix": ("k", ""),
    "includeHeaders": ("true", "False", "1"),
    "includeSkipped": ("true", "x"),
    "failOnDataLoss": ("false", "TRUE"),
    "maxOffsetsPerTrigger": ("1", "10", "0", "x", str(1 << 63), str((1 << 63) - 1)),
    "minOffsetsPerTrigger": ("1", "10", "11"),
    "maxTriggerDelay": ("5m", "1500", " ", "x", "1h 30m"),
    "minPartitions": ("3", "0"),
    "maxRecordsPerPartition": ("7", "-1"),
    "listen": ("tcp://h:1",),
    "dial": ("tcp://h:2",),
    "protocol": ("sub", "PULL", "push", "req", "pub"),
    "topic": ("t",),
    "prefix": ("p.",),
    "checkpointLocation": ("c/", "d"),
    "spool": ("s",),
    "pathh": ("x",),
}
WRITE: Final[dict[str, tuple[str, ...]]] = {
    "dial": ("tcp://h:2", ""),
    "protocol": ("push", "REQ", "pub", "sub"),
    "topic": ("t",),
    "timeout": ("5", "0", "1e6", "x", "999999"),
    "query": ("q",),
    "withIds": ("true", "false", "x"),
    "inFlight": ("3", "0"),
    "recordsPerRequest": ("9",),
    "path": ("p",),
    "listen": ("tcp://h:1",),
}


def options(seed: int) -> Iterator[Any]:
    """Parse options of reads and writes, most of them one or two."""
    rng = Random(seed)
    for _ in range(350):
        names = rng.sample(sorted(READ), rng.choice((0, 1, 1, 1, 2, 2, 3)))
        given = {name: rng.choice(READ[name]) for name in names} | ({"path": "j"} if rng.random() < 0.8 else {})
        streaming = rng.random() < 0.6
        found = said(ReadOptions.of, given, streaming=streaming)
        yield given, sorted(vars(found).items(), key=repr) if isinstance(found, ReadOptions) else found
        names = rng.sample(sorted(WRITE), rng.choice((0, 1, 1, 2)))
        given = {name: rng.choice(WRITE[name]) for name in names}
        given |= {"dial": "tcp://h:2", "protocol": rng.choice(("req", "req", "push"))} if rng.random() < 0.8 else {}
        yield given, said(WriteOptions.of, given)
    for text in ("1", ":65535", "65536", "h:9", "[::1]:9", "h", ":"):
        yield said(host_and_port, text)
    for text in (*MOMENTS, "-62135596800000", "-62135596800001", "253402300799999", "253402300800000"):
        yield said(parse_time, text)
    for text in READ["assign"]:
        some = said(choice, {"assign": text} | ({"subscribePattern": "a|c"} if text == "[0, 2]" else {}))
        if not isinstance(some, tuple):
            yield some.columns, [(some.takes(n), some.topics_of(n)) for n in range(3)], said(some.check, [0, 1])
    rows = pa.RecordBatch.from_pylist([{"topic": t, "key": k} for t in ("a", "b", "c") for k in (b"k1", b"x", None)])
    for given in ({"subscribePattern": "a|c"}, {"keyPrefix": "k"}, {"subscribePattern": ".", "keyPrefix": "x"}, {}):
        yield choice(given).columns, choice(given).filtered(rows).to_pylist()


def causes(seed: int) -> Iterator[Any]:
    """Order updates that came in any order; in one case of three, of more streams than a version vector lists."""
    rng = Random(seed)
    for case in range(40):
        count = EPOCHS_KEPT + 2 if case % 3 == 0 else rng.randrange(1, 4)
        streams = [EditStream(bytes([number]) * 8, 1 + number % 2) for number in range(min(count, 200))]
        have: Versions = {}
        updates = []
        for _ in range(rng.randrange(1, 14)):
            if rng.random() < 0.15:
                updates.append(Update(None, 0, 0, dict(have), b"merge", {rng.choice(streams): rng.randrange(1, 5)}))
                continue
            stream = rng.choice(streams)
            first = have.get(stream, 0) + rng.choice((1, 1, 1, 1, 2, 0))
            last = first + rng.choice((0, 0, 1))
            deps = {
                one: have[one] + (rng.random() < 0.1)
                for one in rng.sample(list(have), min(len(have), rng.randrange(3)))
            }
            updates.append(Update(stream, first, last, deps, b"%d" % len(updates)))
            have[stream] = max(last, have.get(stream, 0))
        rng.shuffle(updates)
        before = dict.fromkeys(streams, 1) if case % 3 == 0 else {}
        for each in rng.sample(list(before), min(len(before), 3)):
            del before[each]
        found = in_order(updates, before)
        yield [(one.update, one.first) for one in found.ready], [(one.update, one.first) for one in found.held]
        yield sorted(found.versions.items())[:9], len(found.versions)


def recorded(seed: int) -> Iterator[Any]:
    """Find the documents in order, among such whose updates are doubled, missing or late."""
    rng = Random(seed)
    for _ in range(120):
        rows: list[tuple[int, int, int, bool]] = []
        deps: list[tuple[int, int, int]] = []
        versions: list[tuple[int, int, int]] = []
        docs = rng.randrange(1, 4)
        for document in range(docs):
            have: dict[int, int] = {}
            for _ in range(rng.randrange(8)):
                row = len(rows)
                if rng.random() < (0.06 if have else 0.3):
                    rows.append((document, -1, 0, False))
                    versions += [(row, stream, rng.randrange(1, 4)) for stream in range(rng.randrange(3))]
                    have |= {which: last for place, which, last in versions if place == row}
                    if rng.random() < 0.1:
                        deps.append((row, 0, 1))
                    continue
                one = rng.randrange(3)
                at = have.get(one, 0) + rng.choices((1, 0, 2, -1), (12, 2, 0.5, 0.5))[0]
                rows.append((document, one, at, rng.random() < 0.02))
                if have and rng.random() < 0.5:
                    other = rng.choice(list(have))
                    deps.append((row, other, have[other] + rng.choices((0, 1, -1), (12, 1, 4))[0]))
                have[one] = max(at, have.get(one, 0))
        columns = [np.array(each, dtype=np.int64) for each in zip(*rows, strict=True)] or [
            np.zeros(0, dtype=np.int64)
        ] * 4
        doc, stream, number, refused = columns
        edits = Edits(doc, stream, number, refused.astype(bool))
        entries = [
            Entries(*(np.array([each[place] for each in some], dtype=np.int64) for place in range(3)))
            for some in (deps, versions)
        ]
        found = find(edits, docs, *entries)
        yield [each.tolist() for each in found]


def columns(seed: int) -> Iterator[Any]:
    """Read columns of version vectors, headers and numbers, some of them damaged."""
    rng = Random(seed)
    for case in range(60):
        data: list[bytes | None] = []
        for _ in range(rng.randrange(1, 9)):
            streams = [
                EditStream(bytes([rng.randrange(3)] * 8), rng.choice(SIZES[:-2])) for _ in range(rng.randrange(4))
            ]
            wire = to_wire({stream: rng.choice(SIZES[:-2]) for stream in streams})
            body = envelope.encode([list(each) for each in wire])
            match rng.randrange(9):
                case 0:
                    data.append(rng.choice((None, b"", b"\xa0", b"\x00", body[:-1], body + b"\0")))
                case 1 if body:
                    at = rng.randrange(len(body))
                    data.append(body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :])
                case 2 if wire:
                    data.append(envelope.encode([list(each) for each in (*wire, wire[0])]))
                case 3 if wire:
                    data.append(
                        envelope.encode([[wire[0][0], *rng.choice(((0, 1), (1, 0), (EPOCHS + 1, 1), (1, EPOCHS + 1)))]])
                    )
                case _:
                    data.append(body)
        column = pa.array(data, pa.large_binary() if case % 2 else pa.binary())[rng.randrange(2) :]
        yield [each.tolist() for each in read_vectors(column)]
        words = [
            rng.choice((None, b"1234567", b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), rng.randbytes(8)))
            for _ in range(5)
        ]
        some = pa.array(words, pa.binary())[rng.randrange(3) :]
        yield numbers(some).tolist(), [each.tolist() for each in eights(some)]
        named = [[(rng.choice("abc"), rng.randbytes(2)) for _ in range(rng.randrange(4))] for _ in range(6)]
        yield [each.to_pylist() for each in headers_of(pa.array(named, HEADERS)[rng.randrange(3) :], "a", "c", "none")]
    for empty in (pa.array([], pa.binary()), pa.array([None], pa.binary())):
        yield [each.tolist() for each in read_vectors(empty)], numbers(empty).tolist()


def plots(seed: int) -> Iterator[Any]:
    """Draw values over time, and when services were up."""
    rng = Random(seed)
    yield timeline([Bar("moment", [(5.0, 5.0, seed == 0)])]), timeline([Bar("nothing", [])]), lines({}, "s")
    spans = (0.0, 1.0, 59.0, 60.0, 3600.0, 86_400.0, 7 * 86_400.0, 90 * 86_400.0, 3e7, 4e8, 7e9, 9e10)
    for case in range(60):
        low = rng.choice((0.0, 1.75e9, 1.7672e9, -9e8, 1.7e9 + 86_399.5)) + rng.choice((0.0, 0.5, 3.0))
        high = low + rng.choice(spans)
        if high < 2.5e11:
            yield times(low, high), times(low, high, rng.choice((2, 3)))
        bottom = rng.choice((0.0, -5.0, 3.3, 1e6))
        yield ticks(
            bottom,
            bottom + rng.choice((0.0, 1e-6, 0.6, 1.0, 5.0, 6.0, 7.0, 12.0, 1e9, float("inf"))),
            rng.choice((5, 6)),
        )
        if high < 2.5e11:
            values = (0.0, 1.0, -2.0, 999.0, 1000.0, 1e6, 2e9, 5.25)
            series = {
                f"<{name}>" + "x" * rng.choice((0, 156, 157, 158)): [
                    (low + (high - low) * rng.random(), rng.choice(values)) for _ in range(rng.choice((0, 1, 2, 5)))
                ]
                for name in range(rng.choice((0, 1, 2, 8, 9)))
            }
            if case % 7 == 0:
                series = {"flat": [(low, 0.0), (high, 0.0)]}
            yield lines(series, "messages/s")
            bars = [
                Bar(
                    f"&{name}",
                    [(low, low + rng.random(), rng.random() < 0.5), (low, high, True)][: rng.randrange(3)],
                    "1 %",
                )
                for name in range(rng.randrange(4))
            ]
            yield timeline(bars)


VALUES: Final = (
    *(
        None,
        True,
        False,
        0,
        -5,
        10**12,
        1.5,
        1e-9,
        123_456.789,
        "text",
        "漢字" * 6,
        "\x1b[2J\u202e",
        "x" * 60,
        "e\u0301",
    ),
    *(
        b"\0\xff",
        bytes(40),
        bytes(41),
        [1, [b"x"]],
        (1, None),
        {"a": b"x", 5: dt.datetime.fromisoformat("2026-01-02")},
        Random,
        "-" * 8,
    ),
    *(
        dt.datetime.fromisoformat("2026-01-02T03:04"),
        dt.datetime.fromisoformat("2026-01-02T03:04:05"),
        dt.datetime.fromisoformat("2026-01-02T03:04:05.6"),
    ),
    dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC),
)


def tables(seed: int) -> Iterator[Any]:
    """Format tables of all kinds of values, for terminals of any width."""
    rng = Random(seed)
    for value in VALUES:
        yield cell(value), plain(value)
    numbers_, moments = [each for each in VALUES if type(each) in (int, float)], VALUES[-4:-1]
    for _ in range(120):
        count, rows = rng.randrange(1, 6), rng.randrange(5)
        kinds = [rng.choice((VALUES[:-4], numbers_, moments, ("a", None), (1, 2.5, None))) for _ in range(count)]
        content = [[rng.choice(kind) for kind in kinds] for _ in range(rows)]
        head = [rng.choice(("topic", "n", "漢字", "a\tb", "messages of all")) for _ in range(count)]
        yield table(head, content, rng.choice((None, 1, 8, 20, 40, 80)), bold=rng.random() < 0.2)
        widths = [rng.randrange(1, 20) for _ in range(count)]
        yield fit(widths, [min(each, 8) for each in widths], rng.choice((1, 9, 10, 20, 40)))


def exports(seed: int) -> Iterator[Any]:
    """Plan exports of journals that have merged, retired and lost segments."""
    rng = Random(seed)

    def cut(edges: list[int], partition: int, ends: tuple[str, ...]) -> list[File]:
        return [File(partition, a, b, b - a, f"{partition}-{a}-{b}{rng.choice(ends)}") for a, b in pairwise(edges)]

    for _ in range(250):
        there: list[File] = []
        journal, offsets = {}, {}
        for partition in range(rng.randrange(1, 3)):
            edges = sorted(rng.sample(range(0, 60, 5), rng.randrange(5)))
            there += (old := cut(edges, partition, (".parquet", ".pending.parquet")))
            more = edges + ([edges[-1] + 5, edges[-1] + 20] if edges and rng.random() < 0.6 else [])
            kept = [edge for edge in more if rng.random() < 0.75][rng.choice((0, 0, 1)) :]
            segments = cut(sorted(kept), partition, (".parquet",))
            if segments and rng.random() < 0.05:
                segments[0] = File(partition, segments[0].first, segments[0].end, 1, "other")
            end = max([each.end for each in (*segments, *old)], default=0) + rng.choice((0, 0, 0, -10))
            offsets[partition] = old[-1].end if old else 0
            if rng.random() < 0.97:
                journal[partition] = Listed(kept[0] if kept else 0, end, tuple(segments))
        if rng.random() < 0.1:
            there = there[1:]
        found = said(decide, there, journal, offsets, follow=rng.random() < 0.5)
        yield found
        if not isinstance(found, tuple):
            yield [(each, each.changes_rows) for each in found.commits(offsets)]
    yield Commit((), (), {}).changes_rows


def journal(seed: int) -> Iterator[Any]:
    """Walk, search and mend logs whose bytes are damaged or cut off."""
    rng = Random(seed)
    for case in range(60):
        first, salt = rng.choice((0, 7, 65_530, (1 << 32) - 3)), 99
        origin = records.encode_origin("topic", "sub", rng.choice((None, "tcp://h:1")))
        log, places, time = b"head", [4], 1000
        for number in range(12):
            time += rng.choice((0, 5, -2))
            headers = records.encode_headers({} if rng.random() < 0.5 else [("n", b"v"), ("n", b"")])
            key = rng.choice((None, b"", b"key"))
            log += records.frame(first + number, time, origin, key, headers, rng.randbytes(number % 4), salt=salt)
            places.append(len(log))
        damaged = bytearray(log)
        if case % 3:
            damaged[rng.randrange(4, len(log))] ^= 1 << rng.randrange(8)
        data = bytes(damaged)[: rng.choice((len(log), rng.randrange(4, len(log))))]
        start = rng.randrange(12)
        stop = rng.choice((None, places[min(12, start + 3)], places[min(12, start + 3)] - 1))
        stop = None if stop is None else min(stop, len(data))
        found = records.walk(
            data, places[start], offset=first + start, salt=salt, stop=stop, most=rng.choice((1, 3, 99))
        )
        yield found.rows, found.position, found.fault
        yield records.walk(data, 4, offset=first + rng.randrange(2), salt=salt).fault
        for row in found.rows[:1]:
            yield records.decode_origin(row[2]), records.decode_headers(row[4])
            cut = rng.randrange(len(row[2]))
            yield said(records.decode_origin, row[2][:cut]), said(records.decode_headers, row[4][:-1])
        yield records.resume(data, places[start], offset=first + start, salt=salt)
        yield records.seek(
            data,
            4,
            offset=first,
            first=first + rng.randrange(9),
            end=first + rng.choice((5, 12, 13)),
            stop=len(data),
            time=time,
        )
        head = records.LogHeader(case, salt, first, time).encode()
        synced = records.Head(salt, first, first + 12, len(log)).encode()
        at = rng.randrange(len(head))
        yield said(records.LogHeader.decode, head + log), said(records.Head.decode, synced)
        yield said(records.LogHeader.decode, head[:at] + bytes((head[at] ^ 1,)) + head[at + 1 :])
        yield said(records.LogHeader.decode, head[:at]), said(records.Head.decode, synced[:-1])
        yield said(records.Head.decode, synced[: at % 36] + b"!" + synced[at % 36 + 1 :])
