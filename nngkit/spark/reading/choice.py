"""Selection of records of a read: `subscribe`, `subscribePattern`, `assign` and `keyPrefix`. Pure.

::

    chosen = choice({"subscribePattern": "orders\\\\.(eu|us)", "keyPrefix": "user-"})
    chosen.takes(0)              # partition 0 is read
    chosen.filtered(batch)       # a pyarrow.RecordBatch without the other topics and keys

As in Spark's Kafka source, at most one of `subscribe`, `subscribePattern` and `assign` names topics. A journal's
partition holds all topics of its recorder, so `assign` may also be a list of partitions, with either of the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nngkit.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Choice:
    """Selected records; None means all. `assigned`: partitions, each with its topics, or None for all of them.

    A reader of files prunes by `topics` and partitions. `pattern` and `key_prefix` need the rows: the journal has
    statistics of offsets and times only.
    """

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: Mapping[int, tuple[str, ...] | None] | None = None
    key_prefix: bytes | None = None

    def takes(self, partition: int) -> bool:
        """Return True if the partition is read."""
        return self.assigned is None or partition in self.assigned

    def topics_of(self, partition: int) -> tuple[str, ...] | None:
        """Return the topics to read from a partition, before the pattern; None for all."""
        named = None if self.assigned is None else self.assigned.get(partition)
        return self.topics if named is None else named

    def check(self, partitions: Collection[int]) -> None:
        """Raise ConfigError if `assign` names a partition that the journal does not have."""
        gone = sorted((self.assigned or {}).keys() - {*partitions})
        if gone:
            there = ", ".join(map(str, partitions)) or "none"
            raise ConfigError("assign", f"the journal has no partition {gone[0]}; it has {there}", gone[0])

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that `filtered` needs."""
        return tuple(name for name, wanted in (("topic", self.pattern), ("key", self.key_prefix)) if wanted is not None)

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of matching topics and keys. `batch` has the `columns`."""
        import pyarrow as pa
        from pyarrow import compute

        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            names = compute.unique(batch.column("topic")).to_pylist()  # few: Python's `re` decides each once
            fitting = pa.array([name for name in names if matches(name)], pa.string())
            if len(fitting) < len(names):
                batch = batch.filter(compute.is_in(batch.column("topic"), value_set=fitting))
        if self.key_prefix is not None:
            batch = batch.filter(compute.starts_with(batch.column("key"), pattern=self.key_prefix))  # drops null
        return batch


def choice(given: Mapping[str, str]) -> Choice:
    """Parse the options. Raises ConfigError, which names the option."""
    topics, pattern = given.get("subscribe"), given.get("subscribePattern")
    assigned = _assigned(given["assign"]) if "assign" in given else None
    of_topics = ["assign"] if assigned and None not in assigned.values() else []
    of_topics += [name for name in ("subscribe", "subscribePattern") if name in given]
    if len(of_topics) > 1:
        raise ConfigError(of_topics[1], f"conflicts with {of_topics[0]}; give one of them")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            why = f"{pattern!r} is not a regular expression: {error}"
            raise ConfigError("subscribePattern", why, pattern) from None
    key = given.get("keyPrefix")
    if key == "":
        raise ConfigError("keyPrefix", "is empty: leave it out for all keys")
    names = None if topics is None else tuple(topic.strip() for topic in topics.split(","))
    return Choice(names, pattern, assigned, None if key is None else key.encode())


def _assigned(text: str) -> dict[int, tuple[str, ...] | None]:
    """Parse `{"topic": [partition, ...]}`, as Kafka's source, or `[partition, ...]`."""
    shown = 'is neither of the form {"topic": [0, 1]} nor [0, 1]'
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    lists = value.values() if isinstance(value, dict) else [value]
    if not value or not all(isinstance(each, list) and each for each in lists):
        raise ConfigError("assign", f"{text!r} {shown}", text)
    if not all(type(number) is int and number >= 0 for each in lists for number in each):
        raise ConfigError("assign", f"{text!r} {shown}: a partition is an integer from 0 on", text)
    if isinstance(value, list):
        return dict.fromkeys(value)
    numbers = sorted({number for each in lists for number in each})
    return {number: tuple(sorted(topic for topic in value if number in value[topic])) for number in numbers}
