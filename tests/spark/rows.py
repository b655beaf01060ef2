"""Hand-made rows with the columns of `format("nng")`."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nngkit.spark.reading.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def eight(number: int) -> bytes:
    return struct.pack(">q", number)


def micros(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def frame(spark: SparkSession, records: Sequence[dict[str, Any]]) -> DataFrame:
    """Make a DataFrame from records; missing fields get defaults, offsets count the records."""
    rows, several = [], any("journal" in record for record in records)
    for number, record in enumerate(records):
        headers = record.get("headers")
        rows.append(
            (
                record.get("key"),
                record.get("value", b"x"),
                record.get("topic", "t"),
                record.get("partition", 0),
                record.get("offset", number),
                record.get("timestamp", at(number)),
                1,
                None if headers is None else list(headers.items()),
                record.get("protocol", "sub"),
                record.get("peer"),
                *((record["journal"],) if several else ()),
            )
        )
    return spark.createDataFrame(rows, ddl(include_headers=True, include_journal=several))


def seen(
    service: str, provider: str, seconds: float, up: bool, reply: float | None = None, **more: Any
) -> dict[str, Any]:
    """Return the record of one provider in one survey round."""
    told = {"round": int(seconds), "name": service, "address": provider, "state": "up" if up else "down"}
    told |= {"misses": 0 if up else 8, "rtt": reply, **more}
    return {
        "key": service.encode(),
        "value": json.dumps(told).encode(),
        "topic": "discovery.providers",
        "protocol": "survey",
        "timestamp": at(seconds),
    }
