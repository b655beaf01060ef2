"""A job run on a journal: what `nngkit spark run` does, and a program may.

::

    batch(spark, "rates", JobOptions("journal", window="1 minute")).show()
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nngkit.errors import Broken, ConfigError
from nngkit.spark.jobs.registry import JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, Observation, SparkSession

__all__ = ["JobOptions", "SkipCount", "batch", "in_a_line", "rows_of", "stream", "stream_of"]

LOOK: Final = 1  # second between two looks at whether a signal has come

ENDINGS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class JobOptions:
    """Which part of which journal, and what to do with it. Times as the options of `format("nng")` take them.

    `skip_missing`: go on where records are damaged or gone.
    """

    journal: str
    topics: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    window: str = "1 hour"
    output: str | None = None
    late: str = "1 minute"
    skip_missing: bool = False


class SkipCount:
    """Count of the records that `JobOptions.skip_missing` leaves out of a batch job, observed in what the job reads."""

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

    def say(self, rows: int) -> None:
        """Set the count, where the job has counted itself."""
        self._rows = rows

    @property
    def rows(self) -> int:
        """The count, once the job has run; records that the job did not read are not in it."""
        if self._rows is not None:
            return self._rows
        return 0 if self._seen is None else int(self._seen.get["rows"])


@contextmanager
def in_a_line() -> Iterator[None]:
    """Raise Spark's exceptions as Broken, with the one line that names the cause; nngkit's own line if there is one."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        ours = [line.partition(": ")[2] for line in lines if line.startswith("nngkit.errors.")]
        raise Broken(ours[-1] if ours else (lines or [type(error).__name__])[0]) from error


def rows_of(spark: SparkSession, asked: JobOptions, streaming: bool = False, **more: str) -> DataFrame:
    """Return the journal's rows, headers included."""
    given = {"includeHeaders": "true", **more}
    if asked.skip_missing:
        given["failOnDataLoss"] = "false"
    if asked.topics:
        given["subscribe"] = ",".join(asked.topics)
    if asked.since:
        given["startingTimestamp"] = asked.since
    elif streaming:
        given.setdefault("startingOffsets", "earliest")
    if asked.until and not streaming:
        given["endingTimestamp"] = asked.until
    reader: Any = spark.readStream if streaming else spark.read
    found: DataFrame = reader.format("nng").options(**given).load(asked.journal)
    return found


def batch(spark: SparkSession, name: str, asked: JobOptions, skips: SkipCount | None = None) -> DataFrame | None:
    """Run the job. Return its result; None if it has been written to `asked.output`.

    `skips`: told how many records are left out, with `asked.skip_missing`.
    """
    if name == "documents":
        _compact(spark, asked, skips)
        return None
    if name == "report":
        from nngkit.spark.jobs.report import write

        assert asked.output is not None
        skipped = write(rows_of(spark, asked, includeSkipped="true"), Path(asked.output), _name_of(asked.journal))
        if skips is not None:
            skips.say(skipped)
        return None
    job = JOBS[name]
    result = _apply(name, job.function, _observed(spark, asked, skips), asked)
    if asked.output is None:
        return result
    result.write.mode("errorifexists").parquet(asked.output)
    return None


def _observed(spark: SparkSession, asked: JobOptions, skips: SkipCount | None, **more: str) -> DataFrame:
    if skips is None or not asked.skip_missing:
        return rows_of(spark, asked, streaming=False, **more)
    return skips.observed(rows_of(spark, asked, streaming=False, includeSkipped="true", **more))


def _name_of(journal: str) -> str:
    """Return the name of the journal's folder. Nothing else of a URI is shown, as it may hold a password."""
    return journal.rstrip("/").rpartition("/")[2] if "://" in journal else Path(journal).absolute().resolve().name


def _apply(name: str, function: str, rows: DataFrame, asked: JobOptions) -> DataFrame:
    from nngkit.spark.jobs.availability import observations
    from nngkit.spark.jobs.documents import updates

    job = JOBS[name]
    given = {"rows": lambda each: each, "seen": observations, "updates": updates}[job.given](rows)
    if function == "intervals_stream":
        return _function(name, function)(given, asked.late)
    if rows.isStreaming:
        given = given.withWatermark(job.watermark, asked.late)
    call = _function(name, function)
    return call(given, asked.window) if job.windowed else call(given)


def _function(name: str, function: str) -> Callable[..., DataFrame]:
    found: Callable[..., DataFrame] = getattr(import_module(f"nngkit.spark.jobs.{JOBS[name].module}"), function)
    return found


def _compact(spark: SparkSession, asked: JobOptions, skips: SkipCount | None) -> None:
    """Add what is new since the folder's snapshots were written."""
    import json

    from nngkit.journal import open_journal
    from nngkit.spark.jobs.snapshots import advance, progress

    assert asked.output is not None
    if asked.since or asked.until:
        raise ConfigError("--from", "documents goes on from where --output has come to; it takes no times")
    journal = open_journal(asked.journal)
    ends = {partition: journal.end(partition) for partition in journal.partitions()}
    begun = progress(spark, asked.output).offsets
    if all(begun.get(partition, -1) == end for partition, end in ends.items()):
        return
    starts = {str(partition): begun.get(partition, -2) for partition in ends}
    until = {str(partition): end for partition, end in ends.items()}
    rows = _observed(spark, asked, skips, startingOffsets=json.dumps(starts), endingOffsets=json.dumps(until))
    advance(spark, rows, ends, asked.output)


def stream_of(spark: SparkSession, name: str, asked: JobOptions) -> DataFrame:
    """Return the job's results as a stream; it starts when it is written."""
    return _apply(name, JOBS[name].stream, rows_of(spark, asked, streaming=True), asked)


def stream(spark: SparkSession, name: str, asked: JobOptions) -> int:
    """Write the job's results to `asked.output` until SIGINT or SIGTERM. Return 128 plus the signal's number."""
    assert asked.output is not None
    result = stream_of(spark, name, asked)
    caught: list[int] = []
    before = {each: signal.signal(each, lambda number, _frame: caught.append(number)) for each in ENDINGS}
    query = (
        result.writeStream.format("parquet")
        .outputMode("append")
        .option("path", asked.output)
        .option("checkpointLocation", f"{asked.output}/_checkpoint")
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
