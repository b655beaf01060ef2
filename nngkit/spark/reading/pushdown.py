"""Filters that Spark pushes down to a batch read: taken ones become options and bounds of the read.

::

    left = reader.pushFilters([EqualTo(("topic",), "orders"), GreaterThan(("offset",), 7), other])      # [other]

Opens nothing: the reader takes `options`, `only`, `lowest` and `highest` when it plans.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from nngkit.spark.reading.options import ReadOptions

NEVER_NULL = frozenset({"value", "topic", "partition", "offset", "timestamp", "timestampType", "protocol"})


class Pushdown:
    """Filters of one read."""

    options: ReadOptions
    only: frozenset[int] | None = None  # partitions
    lowest: int = 0
    highest: int = (1 << 63) - 1  # offsets before this

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters on topic, partition, offset and timestamp. Return the others, which Spark evaluates."""
        return [each for each in filters if not self._push(each)]

    def _push(self, each: Filter) -> bool:
        column = each.attribute[0] if len(getattr(each, "attribute", ())) == 1 else None  # type: ignore[attr-defined]
        if column is None:
            return False
        if isinstance(each, IsNotNull):
            return column in NEVER_NULL
        match column:
            case "topic":
                return self._push_topic(each)
            case "partition" | "offset":
                return self._push_number(column, each)
            case "timestamp":
                return self._push_time(each)
        return False

    def _push_topic(self, each: Filter) -> bool:
        if isinstance(each, (EqualTo, EqualNullSafe)):
            wanted = {each.value}
        elif isinstance(each, In):
            wanted = set(each.value)
        else:
            return False
        if not all(isinstance(topic, str) for topic in wanted):
            return False
        have = self.options.topics
        self.options = replace(
            self.options, topics=tuple(sorted(wanted if have is None else wanted.intersection(have)))
        )
        return True

    def _push_number(self, column: str, each: Filter) -> bool:
        value = getattr(each, "value", None)
        if column == "partition":
            if isinstance(each, (EqualTo, EqualNullSafe)) and type(value) is int:
                wanted = frozenset({value})
            elif isinstance(each, In) and all(type(one) is int for one in each.value):
                wanted = frozenset(each.value)
            else:
                return False
            self.only = wanted if self.only is None else self.only & wanted
            return True
        if type(value) is not int:
            return False
        low, high = self.lowest, self.highest
        if isinstance(each, (EqualTo, EqualNullSafe)):
            low, high = max(low, value), min(high, value + 1)
        elif isinstance(each, GreaterThan):
            low = max(low, value + 1)
        elif isinstance(each, GreaterThanOrEqual):
            low = max(low, value)
        elif isinstance(each, LessThan):
            high = min(high, value)
        elif isinstance(each, LessThanOrEqual):
            high = min(high, value + 1)
        else:
            return False
        self.lowest, self.highest = low, high
        return True

    def _push_time(self, each: Filter) -> bool:
        value = getattr(each, "value", None)
        if not isinstance(value, dt.datetime):
            return False
        if value.tzinfo is None:
            return False  # local time of the session: left to Spark
        at = (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        low, high = self.options.starting_time, self.options.ending_time
        if isinstance(each, (EqualTo, EqualNullSafe)):
            after, before = at, at + 1
        elif isinstance(each, (GreaterThan, GreaterThanOrEqual)):
            after, before = at + isinstance(each, GreaterThan), None
        elif isinstance(each, (LessThan, LessThanOrEqual)):
            after, before = None, at + isinstance(each, LessThanOrEqual)
        else:
            return False
        self.options = replace(
            self.options,
            starting_time=max((one for one in (low, after) if one is not None), default=None),
            ending_time=min((one for one in (high, before) if one is not None), default=None),
        )
        return True
