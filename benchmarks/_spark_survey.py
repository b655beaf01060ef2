"""Availability and flaps from survey rows, by Spark and, independently, by DuckDB; the results are compared.

The rows are Parquet with the columns of availability.observations; both read the same files and write their results as
Parquet. DuckDB's queries are independent SQL, not a translation of the job.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from _spark import clock, made, spark

from _child import report

PIECE = 1_000_000  # rows of a file
PROVIDERS = 500
BEGUN = 1_700_000_000_000_000  # microseconds

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


def survey(task: dict[str, Any]) -> Path:
    return made(f"survey-{task['rows']}", lambda draft: rounds(draft, task["rows"]))


def spark_side(task: dict[str, Any]) -> None:
    """Run both queries with Spark; report with and without its start."""
    from nngkit.spark.jobs.availability import availability, flaps

    folder, begun = survey(task), time.perf_counter()
    took = 0.0
    with spark(task) as session:
        seen = session.read.parquet(str(folder))
        for name, job in (("availability", availability), ("flaps", flaps)):
            with clock() as seconds:
                job(seen, "1 hour").write.mode("overwrite").parquet(f"{folder}.{name}.spark")
            took += seconds[0]
    report(seconds=took, with_start=time.perf_counter() - begun)


def duck_side(task: dict[str, Any]) -> None:
    """Run both queries with DuckDB; end the benchmark if Spark, which ran before, has other results."""
    import duckdb

    folder, begun = survey(task), time.perf_counter()
    duck = duckdb.connect()
    duck.execute("set TimeZone = 'UTC'")
    duck.execute(f"set threads = {task.get('threads', 2)}")
    duck.execute(
        f"""create view seen as select * exclude ("at"), "at"::timestamp as moment from '{folder}/*.parquet'"""
    )
    for name, query in DUCK.items():
        duck.execute(f"copy ({query}) to '{folder}.{name}.duck.parquet' (format parquet)")
    took = time.perf_counter() - begun
    columns = {
        "availability": "start::timestamp as start, service, provider, zone, rounds::bigint, answered::bigint",
        "flaps": "start::timestamp as start, service, provider, zone, flaps::bigint",
    }
    for name, chosen in columns.items():
        ours = f"select {chosen} from '{folder}.{name}.spark/*.parquet'"
        theirs = f"select {chosen} from '{folder}.{name}.duck.parquet'"
        for one, other in ((ours, theirs), (theirs, ours)):
            different = duck.execute(f"select count(*) from ({one} except all {other})").fetchone()[0]  # type: ignore[index]
            if different:
                raise AssertionError(f"{different} rows of {name} differ")
        if not duck.execute(f"select count(*) from ({theirs})").fetchone()[0]:  # type: ignore[index]
            raise AssertionError(f"no rows of {name}: nothing was compared")
    report(seconds=took, with_start=took)
