"""Run a job on a journal, as `nngkit spark run` does.

::

    batch(spark, "rates", JobOptions("journal", window="1 minute")).show()
"""

from __future__ import annotations

import re
import signal
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from nngkit.errors import Broken, ConfigError
from nngkit.spark.registry import JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, Observation, SparkSession

LOOK: Final = 1  # second between checks for a signal

UNREADABLE: Final = re.compile(r"FAILED_READ_FILE.*reading file file:(?://)?(\S+?)\.?(?:\s|$)")
ENDINGS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class JobOptions:
    """Journal, range and parameters of a job. Times as in the options of `format("nng")`.

    `skip_missing`: continue where records are damaged or missing.
    """

    journal: str
    topics: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    window: str = "1 hour"
    output: str | None = None
    late: str = "1 minute"
    skip_missing: bool = False
    gap: str = "5 minutes"


class SkipCount:
    """Number of records that `JobOptions.skip_missing` leaves out of a batch job, observed while it reads."""

    def __init__(self) -> None:
        self._rows: int | None = None
        self._seen: Observation | None = None

    def observed(self, rows: DataFrame) -> DataFrame:
        """Return `rows`, read with includeSkipped, without the rows that stand for damage."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        self._seen = Observation()
        counted = rows.observe(self._seen, F.coalesce(F.sum("skipped"), F.lit(0)).alias("rows"))
        return counted.where("skipped is null").drop("skipped")

    def set(self, rows: int) -> None:
        """Set the count, for a job that counts itself."""
        self._rows = rows

    @property
    def rows(self) -> int:
        """Number of skipped records, once the job has run; excludes records that it did not read."""
        if self._rows is not None:
            return self._rows
        return 0 if self._seen is None else int(self._seen.get["rows"])


@contextmanager
def in_a_line() -> Iterator[None]:
    """Convert Spark's exceptions to Broken, with `short_reason`."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:  # which is how PySpark reports that Spark's Parquet reader failed
        raise Broken(_unreadable(str(error))) from error
    except PySparkException as error:
        raise Broken(short_reason(error)) from error


def short_reason(error: Exception) -> str:
    """Return the line of Spark's exception that names the cause; nngkit's own line if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("nngkit.errors.")]
    return ours[-1] if ours else (lines or [type(error).__name__])[0]


def _unreadable(text: str) -> str:
    """Return the line that names the file, with its cause; the first line of another failure."""
    from nngkit.journal.selection import ADVICE

    lines = [line.strip() for line in text.splitlines() if line.strip()]
    file = next((found[1] for line in lines if (found := UNREADABLE.search(line))), None)
    if file is None:
        return lines[0] if lines else "Spark failed"
    causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    cause = causes[-1].partition(": ")[2] or causes[-1] if causes else "unreadable"
    return f"{unquote(file)}: {cause}; {ADVICE}"


def rows_of(spark: SparkSession, options: JobOptions, streaming: bool = False, **more: str) -> DataFrame:
    """Return the journal's rows, headers included."""
    given = {"includeHeaders": "true", **more}
    if options.skip_missing:
        given["failOnDataLoss"] = "false"
    if options.topics:
        given["subscribe"] = ",".join(options.topics)
    if options.since:
        given["startingTimestamp"] = options.since
    elif streaming:
        given.setdefault("startingOffsets", "earliest")
    if options.until and not streaming:
        given["endingTimestamp"] = options.until
    if not streaming:
        from nngkit.spark.reading.sealed import scan

        return scan(spark, options.journal, **given)
    reader: Any = spark.readStream.format("nng").options(**given)
    found: DataFrame = reader.load(options.journal)
    return found


def batch(spark: SparkSession, name: str, options: JobOptions, skips: SkipCount | None = None) -> DataFrame | None:
    """Run the job. Return its result; None if it has been written to `options.output`.

    `skips`: receives the number of records left out with `options.skip_missing`.
    """
    if name == "documents":
        _compact(spark, options, skips)
        return None
    if name == "report":
        from nngkit.spark.analytics.report import write

        assert options.output is not None
        skipped = write(rows_of(spark, options, includeSkipped="true"), Path(options.output), _name_of(options.journal))
        if skips is not None:
            skips.set(skipped)
        return None
    result = job_of(name, _observed(spark, options, skips), options)
    if options.output is None:
        return result
    result.write.mode("errorifexists").parquet(options.output)
    return None


def job_of(name: str, rows: DataFrame, options: JobOptions) -> DataFrame:
    """Return the result of a job that is a DataFrame, lazily: all but `documents` and `report`."""
    return _apply(name, JOBS[name].function, rows, options)


def _observed(spark: SparkSession, options: JobOptions, skips: SkipCount | None, **more: str) -> DataFrame:
    if skips is None or not options.skip_missing:
        return rows_of(spark, options, streaming=False, **more)
    return skips.observed(rows_of(spark, options, streaming=False, includeSkipped="true", **more))


def _name_of(journal: str) -> str:
    """Return the name of the journal's folder. The rest of a URI is not shown, as it may hold a password."""
    from nngkit.journal.files import shown

    return (
        shown(journal).rstrip("/").rpartition("/")[2] if "://" in journal else Path(journal).absolute().resolve().name
    )


def _apply(name: str, function: str, rows: DataFrame, options: JobOptions) -> DataFrame:
    from nngkit.spark.analytics.availability import observations
    from nngkit.spark.analytics.cluster import ended
    from nngkit.spark.jobs.documents import updates

    job = JOBS[name]
    prepared = {"rows": lambda each: each, "seen": observations, "updates": updates, "ended": ended}
    given = prepared[job.given](rows)
    call: Callable[..., DataFrame] = getattr(import_module(f"nngkit.spark.{job.module}"), function)
    if function == "intervals_stream":
        return call(given, options.late)
    if rows.isStreaming:
        given = given.withWatermark(job.watermark, options.late)
    if job.gapped:
        return call(given, options.gap)
    return call(given, options.window) if job.windowed else call(given)


def _compact(spark: SparkSession, options: JobOptions, skips: SkipCount | None) -> None:
    """Add the updates recorded since the folder's snapshots were written."""
    import json

    from nngkit.journal import open_journal
    from nngkit.spark.jobs.documents import Apply, of_rows
    from nngkit.spark.jobs.packing import COLUMNS
    from nngkit.spark.jobs.snapshots import advance, progress
    from nngkit.spark.reading.batches import BatchFunction, map_batches

    assert options.output is not None
    if options.since or options.until:
        raise ConfigError("--from", "documents resumes where --output ends; it takes no times")
    journal = open_journal(options.journal)
    ends = {partition: journal.end(partition) for partition in journal.partitions()}
    begun = progress(spark, options.output).offsets
    if all(begun.get(partition, -1) == end for partition, end in ends.items()):
        return
    starts = {str(partition): begun.get(partition, -2) for partition in ends}
    until = {str(partition): end for partition, end in ends.items()}
    between = {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(until)}
    if options.skip_missing:  # the rows tell how many were skipped
        apply: Apply = of_rows(_observed(spark, options, skips, **between))
    else:
        topics = {"subscribe": ",".join(options.topics)} if options.topics else {}

        def apply(function: BatchFunction, schema: str) -> DataFrame:
            return map_batches(spark, options.journal, function, schema, columns=COLUMNS, **topics, **between)

    advance(spark, apply, ends, options.output)


def stream_of(spark: SparkSession, name: str, options: JobOptions) -> DataFrame:
    """Return the job's results as a stream; it starts when it is written."""
    from nngkit.spark.reading.progress import counted

    if options.skip_missing:
        rows = counted(rows_of(spark, options, streaming=True, includeSkipped="true"))
    else:
        rows = rows_of(spark, options, streaming=True)
    return _apply(name, JOBS[name].stream, rows, options)


def stream(spark: SparkSession, name: str, options: JobOptions, metrics: str | None = None) -> int:
    """Write the job's results to `options.output` until SIGINT or SIGTERM. Return 128 plus the signal's number.

    `metrics`: host:port at which Prometheus finds the stream's progress.
    """
    from nngkit.spark.reading.progress import Progress, serve

    progress = Progress()
    spark.streams.addListener(progress)
    try:
        with nullcontext() if metrics is None else serve(progress, metrics):
            return _until_signal(stream_of(spark, name, options), name, options)
    finally:
        spark.streams.removeListener(progress)


def _until_signal(result: DataFrame, name: str, options: JobOptions) -> int:
    assert options.output is not None
    caught: list[int] = []
    before = {each: signal.signal(each, lambda number, _frame: caught.append(number)) for each in ENDINGS}
    query = (
        result.writeStream.format("parquet")
        .queryName(name)
        .outputMode("append")
        .option("path", options.output)
        .option("checkpointLocation", f"{options.output}/_checkpoint")
        .start()
    )
    try:
        while not caught and not query.awaitTermination(LOOK):
            pass
    finally:
        query.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + caught[0] if caught else 0
