"""Who was up when: up-intervals, flaps, availability and reply times, from the rounds that a discovery daemon recorded.

::

    seen = observations(spark.read.format("nng").load("journal"))
    availability(seen, "1 hour").show()
    intervals(seen).where("not up").show()

An *observation* is one provider in one round: ``service, provider, zone, daemon, at, round, up, seconds``. Up is whom
the daemon would name to a caller, so one missed survey is not a failure; ``seconds`` is a reply of that very round. An
*interval* is a longest row of observations that agree: it begins with its first one and ends where the next begins, or
with its last one where none does. A *flap* is an observation that is down where the one before was up. Daemons see for
themselves, so providers are followed for each daemon.

`availability` and `reply_times` are streams too, with `within_watermark`; `intervals_stream` is the stream of intervals
that have ended, with the state between batches kept by Spark.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from nngkit.spark.jobs.headers import need

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "availability",
    "flaps",
    "intervals",
    "intervals_stream",
    "observations",
    "reply_times",
    "within_watermark",
]

SURVEY: Final = "survey"  # the protocol of such records
TOLD: Final = (  # what the recorder writes of a provider: the fields of `nngkit discover --json`, and round and daemon
    "round bigint, daemon string, name string, address string, zone string, state string, misses int, rtt double"
)
UP: Final = ("up", "draining")
WHO: Final = ("service", "provider", "zone", "daemon")
ACCURACY: Final = 10_000  # of percentiles: their rank is off by 1/10,000 of the rows at most


def observations(rows: DataFrame) -> DataFrame:
    """The rows of the daemons' rounds, taken apart. A value that is no such JSON is left out."""
    need(rows, "value", "protocol", "timestamp")
    told = F.from_json(F.col("value").cast("string"), TOLD)
    return (
        rows.where(F.col("protocol") == SURVEY)
        .select(told.alias("told"), F.col("timestamp").alias("at"))
        # A daemon's changes are told in nearly the same words; only who was surveyed has misses, if none.
        .where("told.name is not null and told.address is not null and told.state is not null")
        .where("told.round is not null and told.misses is not null")
        .select(
            F.col("told.name").alias("service"),
            F.col("told.address").alias("provider"),
            F.coalesce("told.zone", F.lit("")).alias("zone"),
            F.coalesce("told.daemon", F.lit("")).alias("daemon"),
            "at",
            F.col("told.round").alias("round"),
            F.col("told.state").isin(*UP).alias("up"),
            F.when(F.col("told.misses") == 0, F.col("told.rtt")).alias("seconds"),
        )
    )


def within_watermark(seen: DataFrame, late: str = "1 minute") -> DataFrame:
    """For a stream: what comes later than that is left out, and what is older need not be remembered."""
    return seen.withWatermark("at", late)


def availability(seen: DataFrame, window: str = "1 hour") -> DataFrame:
    """By window, service, provider, zone: rounds asked, rounds answered, and their share."""
    return (
        seen.groupBy(F.window("at", window).alias("w"), "service", "provider", "zone")
        .agg(F.count("*").alias("rounds"), F.count_if("up").alias("answered"))
        .select(
            F.col("w.start").alias("start"),
            F.col("w.end").alias("end"),
            "service",
            "provider",
            "zone",
            "rounds",
            "answered",
            (F.col("answered") / F.col("rounds")).alias("availability"),
        )
    )


def reply_times(seen: DataFrame, window: str = "1 hour") -> DataFrame:
    """By window, service, provider, zone: replies, and their p50, p95, p99 in seconds."""
    quantiles = F.percentile_approx("seconds", [0.5, 0.95, 0.99], ACCURACY)
    return (
        seen.where("up and seconds is not null")
        .groupBy(F.window("at", window).alias("w"), "service", "provider", "zone")
        .agg(F.count("*").alias("replies"), quantiles.alias("q"), F.max("seconds").alias("slowest"))
        .select(
            F.col("w.start").alias("start"),
            F.col("w.end").alias("end"),
            "service",
            "provider",
            "zone",
            "replies",
            *(F.col("q")[index].alias(name) for index, name in enumerate(("p50", "p95", "p99"))),
            "slowest",
        )
    )


def _changes(seen: DataFrame) -> DataFrame:
    """Each observation with what the one before it said; null for the first."""
    before = Window.partitionBy(*WHO).orderBy("at", "round")
    return seen.withColumn("was", F.lag("up").over(before))


def flaps(seen: DataFrame, window: str = "1 hour") -> DataFrame:
    """By window, service, provider, zone: how often it went down. Batch only, as it looks at what was before."""
    return (
        _changes(seen)
        .where("was and not up")
        .groupBy(F.window("at", window).alias("w"), "service", "provider", "zone")
        .agg(F.count("*").alias("flaps"))
        .select(F.col("w.start").alias("start"), F.col("w.end").alias("end"), "service", "provider", "zone", "flaps")
    )


def intervals(seen: DataFrame) -> DataFrame:
    """By service, provider, zone, daemon: from when to when it was up, or down, and in how many rounds. Batch only."""
    in_order = Window.partitionBy(*WHO).orderBy("at", "round")
    number = F.sum(F.when(F.col("was") == F.col("up"), 0).otherwise(1)).over(in_order)
    parts = (
        _changes(seen)
        .withColumn("number", number)
        .groupBy(*WHO, "number")
        .agg(
            F.first("up").alias("up"),  # the same in all of them
            F.min("at").alias("start"),
            F.max("at").alias("last"),
            F.count("*").alias("rounds"),
        )
    )
    following = F.lead("start").over(Window.partitionBy(*WHO).orderBy("number"))
    return parts.withColumn("next", following).select(
        *WHO,
        "up",
        "start",
        F.coalesce("next", "last").alias("end"),
        "rounds",
        F.col("next").isNotNull().alias("ended"),
    )


# ---- the stream of intervals -----------------------------------------------------------------------------------------

INTERVAL: Final = (
    "service string, provider string, zone string, daemon string, "
    "up boolean, start timestamp, end timestamp, rounds bigint"
)
# What waits is packed: Spark 4.3 cannot read the schema of a state with an array in it (it looks for "elementType").
STATE: Final = "up boolean, start bigint, rounds bigint, waiting binary"
_WAITING: Final = struct.Struct("<qq?")  # at, round, up


def intervals_stream(seen: DataFrame, late: str = "1 minute") -> DataFrame:
    """A stream's intervals, each once it has ended: those of `intervals` where ``ended``.

    Observations wait until the watermark has passed them, so that they are taken in order of their time.
    """
    return (
        within_watermark(seen, late)
        .groupBy(*WHO)
        .applyInPandasWithState(_ended, INTERVAL, STATE, "append", GroupStateTimeout.EventTimeTimeout)
    )


def _ended(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """One provider's next batch."""
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
    if held:  # come back when the watermark has passed the first of them, even if nobody says anything more
        state.setTimeoutTimestamp(max(held[0][0] // 1000 + 1, state.getCurrentWatermarkMs() + 1))
    if found:
        yield pd.DataFrame(found, columns=[*WHO, "up", "start", "end", "rounds"])


def _moment(at: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=at)  # noqa: DTZ001 - pandas without zones is UTC here
