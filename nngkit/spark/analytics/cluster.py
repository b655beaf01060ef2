"""Work and hosts of clusters, from the records that their hosts and voters write (`nngkit.cluster.records`).

::

    jobs = ended(spark.read.format("nng").option("includeHeaders", "true").load("journal"))
    work(jobs, "1 hour").show()               # by worker and kind
    dead_letters(jobs).show()
    hosts(rows).show()                        # the reigns: each term's host, from when to when, and the gap after it

An ended job has ``cluster, host, id, kind, key, submitter, worker, outcome, error, text, tries, term, queued, started,
at, waited, ran, payload, result``: ``at`` is its end, ``waited`` the seconds from its submission to its last start,
``ran`` those from there to its end; both are null for a job that never started, and 0 if the host's clock was set back.
A *retry* is a try after the first one.

A record that cannot be read is left out, and counted by `unreadable`. All but `hosts` and `unreadable` can be streamed
with a watermark on `at`. Records with the same id are counted twice, unless quality.distinct has dropped them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from nngkit.spark.jobs.grouping import by_columns, by_window, quantiles
from nngkit.spark.jobs.headers import need, seconds_between

if TYPE_CHECKING:
    import pyarrow as pa

PROTOCOL: Final = "cluster"  # of these records
BATCH: Final = 65_536  # jobs of one Arrow batch: some 15 MB

ENDED: Final = (
    "cluster string, host string, id bigint, kind string, key binary, submitter string, worker string, outcome string, "
    "error string, text string, tries bigint, term bigint, queued timestamp, started timestamp, at timestamp, "
    "waited double, ran double, payload bigint, result bigint, bad string"
)
CHANGE: Final = "cluster string, term bigint, host string, at timestamp, why string, bad string"


def _of(rows: DataFrame, topic: str) -> DataFrame:
    need(rows, "value", "protocol", "topic")
    return rows.where((F.col("protocol") == PROTOCOL) & F.col("topic").endswith(f".{topic}")).select("value")


def decoded(rows: DataFrame) -> DataFrame:
    """Return the ended jobs, and a row for each unreadable record, whose column ``bad`` says why."""
    return _of(rows, "jobs").mapInArrow(_ends, ENDED)


def readable(decoded: DataFrame) -> DataFrame:
    """Return the ended jobs of `decoded`."""
    return decoded.where("bad is null").drop("bad")


def ended(rows: DataFrame) -> DataFrame:
    """Return the ended jobs. Unreadable records are left out."""
    return readable(decoded(rows))


def unreadable(rows: DataFrame, jobs: DataFrame | None = None) -> DataFrame:
    """Return the reasons why records of jobs and of hosts cannot be read, with the number of records. Batch only.

    `jobs`: the result of `decoded`, if there is one already.
    """
    changes = _of(rows, "hosts").mapInArrow(_changes, CHANGE)
    return (
        (decoded(rows) if jobs is None else jobs)
        .select("bad")
        .unionByName(changes.select("bad"))
        .where("bad is not null")
        .groupBy(F.col("bad").alias("why"))
        .agg(F.count("*").alias("records"))
    )


def _times(column: str) -> dict[str, Column]:
    """Return the mean and the quantiles of a column of seconds."""
    return {f"{column}_mean": F.avg(column), **quantiles(column, f"{column}_")}


def _retries() -> Column:
    return F.sum(F.greatest(F.col("tries") - 1, F.lit(0)))


def figures() -> dict[str, Column]:
    """Return the figures of `work`."""
    return {
        "jobs": F.count("*"),
        "done": F.count_if(F.col("outcome") == "result"),
        **{each: F.count_if(F.col("outcome") == each) for each in ("failed", "dead", "cancelled")},
        "busy": F.coalesce(F.sum("ran"), F.lit(0.0)),
        **_times("waited"),
        **_times("ran"),
        "tries": F.sum("tries"),
        "retries": _retries(),
    }


def work(jobs: DataFrame, window: str = "1 hour") -> DataFrame:
    """Return, by window, cluster, worker and kind: jobs by outcome, busy seconds, queue and run times, tries, retries.

    A job belongs to the window of its end, and to the worker of its last try; the worker of a job that never started
    is "".
    """
    return by_window(jobs, "at", window, "cluster", "worker", "kind", **figures())


def queue_times(jobs: DataFrame, window: str = "1 hour") -> DataFrame:
    """Return, by window, cluster and kind, the seconds from submission to the last start, of jobs that started."""
    waits = {"jobs": F.count("*"), **_times("waited"), "longest": F.max("waited")}
    return by_window(jobs.where("waited is not null"), "at", window, "cluster", "kind", **waits)


def retries(jobs: DataFrame, window: str = "1 hour") -> DataFrame:
    """Return, by window, cluster and kind, how many jobs were tried again, how often, and with which end."""
    again = F.col("tries") > 1
    return by_window(
        jobs,
        "at",
        window,
        *("cluster", "kind"),
        jobs=F.count("*"),
        retried=F.count_if(again),
        retries=_retries(),
        most_tries=F.max("tries"),
        done_after_retry=F.count_if(again & (F.col("outcome") == "result")),
        dead=F.count_if(F.col("outcome") == "dead"),
    )


def dead_letters(jobs: DataFrame) -> DataFrame:
    """Return the jobs without a result that were not cancelled: dead letters, and those whose error allows no retry."""
    names = "at cluster id kind key submitter worker outcome error text tries term queued"
    return jobs.where(F.col("outcome").isin("dead", "failed")).select(*names.split())


def hosts(rows: DataFrame, jobs: DataFrame | None = None) -> DataFrame:
    """Return the reigns: (cluster, term, host, start, end, ended, seconds, gap, jobs, why). Batch only.

    A reign begins when the first node reports the host, and ends when the first node reports its loss; or, if none
    did, when the next begins. A loss counts only if neither a report of the host nor the end of a job follows it in
    that term: a voter that was cut off for a while also reports one. ``gap``: seconds without a host until the next
    reign, null if there is none or no loss was reported. A reign that has not ended ends with its last sign of life.
    ``jobs``: jobs that ended under it. Times are those of the nodes' clocks.

    `jobs`: the result of `ended`, if there is one already.
    """
    changes = _of(rows, "hosts").mapInArrow(_changes, CHANGE).where("bad is null").drop("bad")
    which = ("cluster", "term", "host")
    span = {"start": F.min("at"), "last": F.max("at")}
    signs = by_columns(changes.where("host is not null"), *which, **span, jobs=F.lit(0).cast("bigint"))
    worked = by_columns(ended(rows) if jobs is None else jobs, *which, **span, jobs=F.count("*"))
    both = signs.unionByName(worked)
    reigns = by_columns(both, *which, start=F.min("start"), last=F.max("last"), jobs=F.sum("jobs"))
    losses = changes.where("host is null").select("cluster", "term", F.col("at").alias("lost"), "why")
    later = reigns.select(*which, "last").join(losses, ["cluster", "term"]).where("lost >= last")
    first_loss = by_columns(later, *which, loss=F.min(F.struct("lost", "why")))
    following = F.lead("start").over(Window.partitionBy("cluster").orderBy("term", "start", "host"))
    end = F.least("loss.lost", "next")  # of those that are not null
    until = F.coalesce(F.col("end"), F.col("last"))
    return (
        reigns.withColumn("next", following)
        .join(first_loss, list(which), "left")
        .withColumn("end", end)
        .select(
            *which,
            "start",
            until.alias("end"),
            F.col("end").isNotNull().alias("ended"),
            _seconds("start", until).alias("seconds"),
            F.when(F.col("loss").isNotNull() & F.col("next").isNotNull(), _seconds("end", F.col("next"))).alias("gap"),
            "jobs",
            F.col("loss.why").alias("why"),
        )
    )


def _seconds(since: str, until: Column) -> Column:
    return F.greatest(seconds_between(since, until), F.lit(0.0))


# ---- in the workers --------------------------------------------------------------------------------------------------


def _ends(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode records of ended jobs."""
    from nngkit.cluster.records import EndedJob, parse_ends
    from nngkit.errors import BadMessage, TooLarge

    names = ("cluster", "host", *EndedJob._fields, "bad")
    columns: list[list[Any]] = [[] for _ in names]
    for batch in batches:
        for value in batch.column("value").to_pylist():
            try:
                found = parse_ends(value)
            except (BadMessage, TooLarge) as error:
                for column in columns[:-1]:
                    column.append(None)
                columns[-1].append(str(error))
            else:
                rows = len(found.columns[0])
                columns[0] += [found.cluster] * rows
                columns[1] += [found.host] * rows
                for column, read in zip(columns[2:-1], found.columns, strict=True):
                    column += read
                columns[-1] += [None] * rows
            if len(columns[0]) >= BATCH:
                yield _ends_batch(dict(zip(names, columns, strict=True)))
                columns = [[] for _ in names]
    if columns[0]:
        yield _ends_batch(dict(zip(names, columns, strict=True)))


def _ends_batch(columns: dict[str, list[Any]]) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    queued, started, finished = (pa.array(columns[name], pa.float64()) for name in ("queued", "started", "finished"))
    started = pc.if_else(pc.equal(started, 0.0), pa.scalar(None, pa.float64()), started)

    def times(name: str) -> Any:
        return _moments({"queued": queued, "started": started, "at": finished}[name])

    def seconds(since: Any, until: Any) -> Any:
        return pc.max_element_wise(pc.subtract(until, since), 0.0, skip_nulls=False)

    arrays = {
        "waited": seconds(queued, started),
        "ran": seconds(started, finished),
        **{name: times(name) for name in ("queued", "started", "at")},
    }
    kinds = {"key": pa.binary(), **dict.fromkeys(("id", "tries", "term", "payload", "result"), pa.int64())}
    fields = [part.split()[0] for part in ENDED.split(", ")]
    return pa.RecordBatch.from_arrays(
        [arrays[name] if name in arrays else pa.array(columns[name], kinds.get(name, pa.string())) for name in fields],
        names=fields,
    )


def _moments(seconds: Any) -> Any:
    """Convert seconds since 1970 to timestamps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pc.round(pc.multiply(seconds, 1e6)).cast(pa.int64())
    return whole.cast(pa.timestamp("us", tz="UTC"))


def _changes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode records of hosts."""
    import pyarrow as pa
    from msgspec.structs import astuple

    from nngkit.cluster.records import parse_host_change
    from nngkit.errors import BadMessage, TooLarge

    for batch in batches:
        found: list[tuple[Any, ...]] = []
        for value in batch.column("value").to_pylist():
            try:
                found.append((*astuple(parse_host_change(value)), None))
            except (BadMessage, TooLarge) as error:
                found.append((None, None, None, None, None, str(error)))
        if found:
            cluster, term, host, at, why, bad = zip(*found, strict=True)
            texts = [pa.array(each, pa.string()) for each in (cluster, host, why, bad)]
            yield pa.RecordBatch.from_arrays(
                [texts[0], pa.array(term, pa.int64()), texts[1], _moments(pa.array(at, pa.float64())), *texts[2:]],
                names=[part.split()[0] for part in CHANGE.split(", ")],
            )
