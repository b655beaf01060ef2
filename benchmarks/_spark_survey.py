"""Availability and flaps from survey rows, by Spark and, independently, by DuckDB; the results are compared.

The rows are Parquet with the columns of availability.observations, or a journal with the JSON of a daemon, which both
decode. Both read the same files and write their results as Parquet. DuckDB's queries are independent SQL, not a
translation of the job.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from _spark import clock, made, spark
from pyarrow import compute

from _child import report
from nngkit.journal.schema import SCHEMA

TURNS = 3  # of both queries: the first is cold, the best of the others is reported
PIECE = 1_000_000  # rows of a file
PROVIDERS = 500
BEGUN = 1_700_000_000_000_000  # microseconds

AS_SEALED: dict[str, Any] = {  # as the journal's segments
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["topic", "partition", "protocol", "peer", "key"],
    "write_statistics": ["topic", "partition", "offset", "timestamp"],
}

DUCK = {
    "availability": """
        select time_bucket(interval '1 hour', moment, timestamp '1970-01-01') as start, service, provider, zone,
               count(*) as rounds, sum(up::int) as answered
        from seen group by all""",
    "flaps": """
        select time_bucket(interval '1 hour', moment, timestamp '1970-01-01') as start, service, provider, zone,
               count(*) as flaps
        from (select *, lag(up) over (partition by service, provider, zone, daemon order by moment, round) as before
              from seen)
        where before and not up group by all""",
}


DECODED = """
    select told.name as service, told.address as provider, coalesce(told.zone, '') as zone,
           coalesce(told.daemon, '') as daemon, "timestamp" as "at", told.round as round,
           told.state in ('up', 'draining') as up, case when told.misses = 0 then told.rtt end as seconds
    from (select "timestamp", json_transform(decode(value)::json, '{{"round": "BIGINT", "daemon": "VARCHAR",
                 "name": "VARCHAR", "address": "VARCHAR", "zone": "VARCHAR", "state": "VARCHAR",
                 "misses": "INTEGER", "rtt": "DOUBLE"}}') as told
          from '{}/partition-00000/*.parquet' where protocol = 'survey')
    where told.name is not null and told.address is not null and told.state is not null
      and told.round is not null and told.misses is not null"""


def rounds(draft: Path, total: int) -> None:
    """Write rounds of 500 providers, a second apart, mostly up with rare spells of being down."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    draft.mkdir(parents=True)
    rng = np.random.default_rng(6)
    down = np.zeros(PROVIDERS, dtype=bool)
    done = 0
    while done < total:
        rows = min(PIECE, total - done)
        number = np.arange(done, done + rows)
        provider, round_ = number % PROVIDERS, number // PROVIDERS
        change = rng.random(rows)
        up = np.empty(rows, dtype=bool)
        for begin in range(0, rows, PROVIDERS):  # a provider's state depends on the previous round
            end = min(begin + PROVIDERS, rows)
            who = provider[begin:end]
            down[who] = np.where(down[who], change[begin:end] > 0.2, change[begin:end] < 0.002)
            up[begin:end] = ~down[who]
        seconds = np.where(up, rng.gamma(2.0, 0.004, rows), np.nan)
        table = pa.table(
            {
                "service": pa.array(np.char.add("service-", (provider % 25).astype(str)).tolist(), pa.string()),
                "provider": pa.array(np.char.add("tcp://10.0.0.1:", provider.astype(str)).tolist(), pa.string()),
                "zone": pa.array(np.char.add("zone-", (provider % 3).astype(str)).tolist(), pa.string()),
                "daemon": pa.repeat("d", rows),
                "at": pa.array(BEGUN + round_ * 1_000_000 + provider, pa.int64()).cast(pa.timestamp("us", "UTC")),
                "round": pa.array(round_, pa.int64()),
                "up": pa.array(up),
                "seconds": pa.array(seconds, pa.float64(), from_pandas=True),
            }
        )
        parquet.write_table(table, draft / f"{done:012}.parquet", compression="zstd")
        done += rows


def recorded(draft: Path, observed: Path) -> None:
    """Write a journal with the records that `nngkit discoverd --journal` makes of these observations.

    Its segments are written as Parquet, and listed by `rebuild_manifest`: a log would take ten times as long.
    """
    from pyarrow import parquet

    from nngkit.journal.files import folder_of, segment_name
    from nngkit.journal.writing.partition import Partition
    from nngkit.journal.writing.rebuild import rebuild_manifest
    from nngkit.journal.writing.segmentfile import END, FIRST, METADATA, ROW_GROUP

    Partition.open(draft).close()
    first = 0
    for file in sorted(observed.glob("*.parquet")):
        batches = list(parquet.ParquetFile(file).iter_batches(ROW_GROUP))
        end = first + sum(batch.num_rows for batch in batches)
        schema = SCHEMA.with_metadata({METADATA: b"1", FIRST: b"%d" % first, END: b"%d" % end})
        target = draft / folder_of(0) / segment_name(first, end)
        with parquet.ParquetWriter(target, schema, write_page_checksum=True, **AS_SEALED) as writer:
            for batch in batches:
                writer.write_batch(_records(batch, first))
                first += batch.num_rows
    rebuild_manifest(draft)


def _records(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return the observations as the journal's rows, with all fields of such a record."""
    at, up, number = batch.column("at"), batch.column("up"), batch.column("round").cast(pa.string())
    time_ = compute.binary_join_element_wise(at.cast(pa.timestamp("us")).cast(pa.string()), "Z", "")
    fields = {
        "daemon": _text(batch.column("daemon")),
        "round": number,
        "time": _text(time_),
        "name": _text(batch.column("service")),
        "address": _text(batch.column("provider")),
        "id": '"6f1d2c3b4a596877"',
        "epoch": "1",
        "version": '"1.4.2"',
        "zone": _text(batch.column("zone")),
        "priority": "8",
        "weight": "1.0",
        "tags": '["http","blue"]',
        "load": "0.25",
        "draining": "false",
        "state": compute.if_else(up, '"up"', '"down"'),
        "reason": compute.if_else(up, '"answered"', '"missed"'),
        "since": '"2023-11-14T22:13:20.000000Z"',
        "last_reply": _text(time_),
        "rtt": compute.fill_null(batch.column("seconds").cast(pa.string()), "null"),
        "misses": compute.if_else(up, "0", "8"),
        "stale": "false",
    }
    parts = [part for name, value in fields.items() for part in (f', "{name}": ', value)]
    value = compute.binary_join_element_wise("{" + parts[0][2:], *parts[1:], "}", "")
    rows = batch.num_rows
    return pa.RecordBatch.from_arrays(
        [
            batch.column("service").cast(pa.binary()),
            value.cast(pa.binary()),
            pa.repeat("discovery.providers", rows),
            pa.repeat(pa.scalar(0, pa.int32()), rows),
            pa.array(range(first, first + rows), pa.int64()),
            at,
            pa.nulls(rows, SCHEMA.field("headers").type),
            pa.repeat("survey", rows),
            pa.nulls(rows, pa.string()),
        ],
        schema=SCHEMA,
    )


def _text(column: pa.Array) -> pa.Array:
    return compute.binary_join_element_wise('"', column, '"', "")


def journal_of(task: dict[str, Any]) -> Path:
    observed = survey(task)
    return made(f"survey-journal-{task['rows']}", lambda draft: recorded(draft, observed))


def survey(task: dict[str, Any]) -> Path:
    return made(f"survey-{task['rows']}", lambda draft: rounds(draft, task["rows"]))


def _seen(session: Any, task: dict[str, Any]) -> tuple[Any, Path]:
    """Return the observations, and where they come from."""
    if task.get("json"):
        from nngkit.spark import scan
        from nngkit.spark.analytics.availability import observations

        folder = journal_of(task)
        return observations(scan(session, str(folder))), folder
    folder = survey(task)
    return session.read.parquet(str(folder)), folder


def spark_side(task: dict[str, Any]) -> None:
    """Run both queries with Spark, cold and warm; report with and without its start, and the bytes of a shuffle."""
    from nngkit.spark.analytics.availability import availability, flaps

    (journal_of if task.get("json") else survey)(task)  # made before the clock starts
    begun, took = time.perf_counter(), []
    with spark(task) as session:
        for _ in range(TURNS):
            before = _shuffled(session)
            with clock() as seconds:
                seen, folder = _seen(session, task)
                for name, job in (("availability", availability), ("flaps", flaps)):
                    job(seen, "1 hour").write.mode("overwrite").parquet(f"{folder}.{name}.spark")
            took.append(seconds[0])
            if len(took) == 1:
                with_start = time.perf_counter() - begun
        shuffled = _shuffled(session) - before
    report(seconds=min(took[1:]), cold_seconds=took[0], with_start=with_start, shuffle_mib=shuffled / (1 << 20))


def _shuffled(session: Any) -> int:
    """Return the bytes that the session's stages have written for shuffles so far."""
    context = session.sparkContext
    store, gateway = context._jsc.sc().statusStore(), context._gateway
    stages = store.stageList(
        None, False, False, gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()
    )
    return sum(stages.apply(number).shuffleWriteBytes() for number in range(stages.size()))


def duck_side(task: dict[str, Any]) -> None:
    """Run both queries with DuckDB, as often; end the benchmark if Spark, which ran before, has other results."""
    import duckdb

    folder = journal_of(task) if task.get("json") else survey(task)
    begun, took = time.perf_counter(), []
    duck = duckdb.connect()
    duck.execute("set TimeZone = 'UTC'")
    duck.execute(f"set threads = {task.get('threads', 2)}")
    source = DECODED.format(folder) if task.get("json") else f"select * from '{folder}/*.parquet'"
    duck.execute(f"""create view seen as select * exclude ("at"), "at"::timestamp as moment from ({source})""")
    for _ in range(TURNS):
        with clock() as seconds:
            for name, query in DUCK.items():
                duck.execute(f"copy ({query}) to '{folder}.{name}.duck.parquet' (format parquet)")
        took.append(seconds[0])
        if len(took) == 1:
            with_start = time.perf_counter() - begun
    _compare(duck, folder)
    report(seconds=min(took[1:]), cold_seconds=took[0], with_start=with_start)


def _compare(duck: Any, folder: Path) -> None:
    columns = {
        "availability": "start::timestamp as start, service, provider, zone, rounds::bigint, answered::bigint",
        "flaps": "start::timestamp as start, service, provider, zone, flaps::bigint",
    }
    for name, chosen in columns.items():
        ours = f"select {chosen} from '{folder}.{name}.spark/*.parquet'"
        theirs = f"select {chosen} from '{folder}.{name}.duck.parquet'"
        for one, other in ((ours, theirs), (theirs, ours)):
            different = duck.execute(f"select count(*) from ({one} except all {other})").fetchone()[0]
            if different:
                raise AssertionError(f"{different} rows of {name} differ")
        if not duck.execute(f"select count(*) from ({theirs})").fetchone()[0]:
            raise AssertionError(f"no rows of {name}: nothing was compared")
