"""Availability of providers: up-intervals, flaps and response times, from the survey rounds recorded by a daemon.

::

    seen = observations(spark.read.format("nng").load("journal"))
    availability(seen, "1 hour").show()
    intervals(seen).where("not up").show()

An *observation* is one provider in one round: ``service, provider, zone, daemon, at, round, up, seconds``. Up means
that the daemon would resolve to it, so one missed survey is not a failure; ``seconds`` is that round's response time.
An *interval* is a maximal run of equal observations: it begins with its first one and ends where the next begins, or
with its last one if there is no next. A *flap* is a down observation after an up one. Each daemon has its own view, so
providers are followed for each daemon.

`availability` and `reply_times` can be streamed after `within_watermark`; `intervals_stream` streams the intervals that
have ended, with the state between batches kept by Spark.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from nngkit.spark.jobs.grouping import by_window, quantiles
from nngkit.spark.jobs.headers import need

if TYPE_CHECKING:
    import pandas as pd

SURVEY: Final = "survey"  # protocol of these records
FIELDS: Final = (  # the recorded JSON: fields of `nngkit discover --json`, plus round and daemon
    "round bigint, daemon string, name string, address string, zone string, state string, misses int, rtt double"
)
UP: Final = ("up", "draining")
WHERE: Final = ("service", "provider", "zone")
WHO: Final = (*WHERE, "daemon")
TASKS: Final = 8  # at least, to sort observations: 25 million rows in one task would be 2 GB, a whole JVM's memory


def observations(rows: DataFrame) -> DataFrame:
    """Decode the rows of the daemons' rounds. Values that are not such JSON are ignored."""
    need(rows, "value", "protocol", "timestamp")
    # A generator decodes a value once. Of `told.name`, `told.state` and so on, Spark makes a decoder each: a quarter of
    # the rate.
    told = F.inline(F.array(F.from_json(F.col("value").cast("string"), FIELDS)))
    return (
        rows.where(F.col("protocol") == SURVEY)
        .select(told, F.col("timestamp").alias("at"))
        # Records of state changes have nearly the same fields; only those of rounds have `misses`, also if it is 0.
        .where("name is not null and address is not null and state is not null")
        .where("round is not null and misses is not null")
        .select(
            F.col("name").alias("service"),
            F.col("address").alias("provider"),
            F.coalesce("zone", F.lit("")).alias("zone"),
            F.coalesce("daemon", F.lit("")).alias("daemon"),
            "at",
            "round",
            F.col("state").isin(*UP).alias("up"),
            F.when(F.col("misses") == 0, F.col("rtt")).alias("seconds"),
        )
    )


def within_watermark(seen: DataFrame, late: str = "1 minute") -> DataFrame:
    """Set a stream's watermark: later observations are dropped, older state is discarded."""
    return seen.withWatermark("at", late)


def availability(seen: DataFrame, window: str = "1 hour") -> DataFrame:
    """Return, by window, service, provider and zone, the rounds asked, the rounds answered, and their ratio."""
    asked = by_window(seen, "at", window, *WHERE, rounds=F.count("*"), answered=F.count_if("up"))
    return asked.withColumn("availability", F.col("answered") / F.col("rounds"))


def reply_times(seen: DataFrame, window: str = "1 hour") -> DataFrame:
    """Return, by window, service, provider and zone, the number of responses and their p50, p95, p99 in seconds."""
    return by_window(answered(seen), "at", window, *WHERE, **replies())


def answered(seen: DataFrame) -> DataFrame:
    """Return the observations with a response."""
    return seen.where("up and seconds is not null")


def replies() -> dict[str, Column]:
    """Return the figures of responses: their number, and p50, p95, p99 and the slowest in seconds."""
    return {"replies": F.count("*"), **quantiles("seconds"), "slowest": F.max("seconds")}


def _in_order(seen: DataFrame, who: Column) -> DataFrame:
    """Return `id`, `at`, `round`, `up`, `who`, and `was`: the previous observation's `up`, null for the first.

    Rows are shuffled and sorted by a number for the four strings, in a third less time. That two of n providers get the
    same number has the probability n**2 / 2**65: for a million of them 3 in 100 million.
    """
    narrow = seen.select(F.xxhash64(*WHO).alias("id"), "at", "round", "up", who.alias("who"))
    if int(seen.sparkSession.conf.get("spark.sql.shuffle.partitions") or 0) < TASKS:
        narrow = narrow.repartition(TASKS, "id")
    in_order = Window.partitionBy("id").orderBy("at", "round")
    return narrow.withColumn("was", F.lag("up").over(in_order))


def flaps(seen: DataFrame, window: str = "1 hour") -> DataFrame:
    """Return, by window, service, provider and zone, how often it went down. Batch only, as it needs history."""
    # A flap is a row that is not up: the rows that are up, most of them, are shuffled without their strings.
    down = _in_order(seen, F.when(~F.col("up"), F.struct(*WHERE))).where("was and not up")
    return by_window(down.select("at", "who.*"), "at", window, *WHERE, flaps=F.count("*"))


def intervals(seen: DataFrame) -> DataFrame:
    """Return the intervals of each service, provider, zone and daemon, and their number of rounds. Batch only."""
    of_one = Window.partitionBy("id")
    in_order = of_one.orderBy("at", "round")
    changes = (
        _in_order(seen, F.struct(*WHO))
        .withColumn("number", F.row_number().over(in_order))
        .withColumn("last", F.max("at").over(of_one))
        .withColumn("behind", F.count("*").over(of_one) + 1)
        .where("was is null or was != up")
    )
    following = of_one.orderBy("number")
    return (
        changes.withColumn("next", F.lead("at").over(following))
        .withColumn("until", F.lead("number").over(following))
        .select(
            "who.*",
            "up",
            F.col("at").alias("start"),
            F.coalesce("next", "last").alias("end"),
            (F.coalesce("until", "behind") - F.col("number")).alias("rounds"),
            F.col("next").isNotNull().alias("ended"),
        )
    )


# ---- the stream of intervals -----------------------------------------------------------------------------------------

INTERVAL: Final = (
    "service string, provider string, zone string, daemon string, "
    "up boolean, start timestamp, end timestamp, rounds bigint"
)
# Waiting observations are packed: Spark 4.3 cannot read a state schema with an array (it looks for "elementType").
STATE: Final = "up boolean, start bigint, rounds bigint, waiting binary"
_WAITING: Final = struct.Struct("<qq?")  # at, round, up


def intervals_stream(seen: DataFrame, late: str = "1 minute") -> DataFrame:
    """Stream the intervals, each once it has ended: those of `intervals` with ``ended``.

    Observations wait for the watermark, so that they are processed in time order.
    """
    return (
        within_watermark(seen, late)
        .groupBy(*WHO)
        .applyInPandasWithState(_ended, INTERVAL, STATE, "append", GroupStateTimeout.EventTimeTimeout)
    )


def _ended(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Process one provider's next batch."""
    import pandas as pd

    up, start, rounds, waiting = state.get if state.exists else (None, None, 0, b"")
    watermark = state.getCurrentWatermarkMs() * 1000
    held: list[tuple[int, int, bool]] = list(_WAITING.iter_unpack(waiting))
    for frame in frames:
        times = frame["at"].astype("datetime64[us]").astype("int64")
        held += zip(
            times.tolist(), frame["round"].fillna(0).astype("int64").tolist(), frame["up"].tolist(), strict=True
        )
    held.sort()
    ready = [each for each in held if each[0] <= watermark]
    held = held[len(ready) :]
    found = []
    for at, _round, is_up in ready:
        if up is not None and is_up != up:
            found.append((*key, up, _moment(start), _moment(at), rounds))
        if is_up != up:
            up, start, rounds = bool(is_up), at, 0
        rounds += 1
    state.update((up, start, rounds, b"".join(_WAITING.pack(*each) for each in held)))
    if held:  # resume when the watermark passes the first one, even without new data
        state.setTimeoutTimestamp(max(held[0][0] // 1000 + 1, state.getCurrentWatermarkMs() + 1))
    if found:
        yield pd.DataFrame(found, columns=[*WHO, "up", "start", "end", "rounds"])


def _moment(at: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=at)  # noqa: DTZ001 - pandas without zones is UTC here
