"""Several journals as one table or stream, with the column `journal`.

::

    spark.read.format("nng").load(["/data/eu", "/data/us"])
    spark.readStream.format("nng").option("startingOffsets", '{"eu": {"0": 17}, "us": {"0": -2}}').load("/data/*")
    spark.readStream.format("nng").option("paths", '{"eu": "/mnt/1/journal", "us": "/mnt/2/journal"}').load()

Each journal keeps its partitions, so `journal`, `partition` and `offset` identify a record. Offsets have the form of
Kafka's source, with the journal in place of the topic. A reader here has a reader of one journal for each, and adds
the column; it shares a limit on micro-batches between all partitions.
"""

from __future__ import annotations

import glob
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    InputPartition,
    IsNotNull,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from nngkit.errors import ConfigError, NotFound
from nngkit.journal.files import JOURNAL
from nngkit.spark.reading.one import BatchReader, Slice, StreamReader, default_limit
from nngkit.spark.reading.options import READ, ReadOptions, known
from nngkit.spark.reading.plan import Pace, from_json, limited, to_json
from nngkit.spark.reading.positions import BY_PARTITION
from nngkit.spark.reading.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("nngkit.spark")

PATTERN: Final = frozenset("*?[")
OF_ONE: Final = ("spool", "listen", "dial")  # options that concern one journal

Nested = dict[str, dict[str, int]]
Flat = dict[tuple[str, int], int]


def journals_of(options: Mapping[str, str]) -> dict[str, dict[str, str]] | None:
    """Return the read options of each journal by its name; None if the options name a single one.

    A name is the last part of the path, or given: it is in rows and checkpoints, and a URI may hold a password.
    Raises ConfigError.
    """
    paths = _paths({name.lower(): value for name, value in options.items()})
    if paths is None:
        return None
    given = known(options, READ)
    for name in OF_ONE:
        if name in given:
            raise ConfigError(name, "is for a single journal", given[name])
    common = {name: value for name, value in given.items() if name not in ("path", "paths", *BY_PARTITION)}
    found = {name: common | {"path": path} for name, path in paths.items()}
    for option in BY_PARTITION:
        by_journal = _by_journal(given, option, paths)
        for name, value in by_journal.items():
            found[name][option] = value
        if by_journal and option.startswith("starting"):
            for name in found.keys() - by_journal.keys():
                found[name]["startingOffsets"] = "earliest"  # as partitions that are not named
    return found


def _paths(given: Mapping[str, str]) -> dict[str, str] | None:
    if "paths" in given:
        if "path" in given:
            raise ConfigError("paths", "conflicts with path; give one of them")
        return _listed(given["paths"])
    path = given.get("path", "")
    if not PATTERN & set(path) or Path(path).exists():
        return None
    if "://" in path:
        raise ConfigError("path", "patterns are for folders of this machine; list URIs in `paths`")
    found = sorted(each for each in glob.glob(path) if Path(each, JOURNAL).exists())
    if not found:
        raise ConfigError("path", f"no journal matches {path}", path)
    return _named(found)


def _listed(text: str) -> dict[str, str]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    each = value.values() if isinstance(value, dict) else value
    if not value or not isinstance(value, (dict, list)) or not all(isinstance(path, str) and path for path in each):
        raise ConfigError("paths", f'{text!r} is neither a list of paths nor {{"name": "path"}}', text)
    return value if isinstance(value, dict) else _named(value)


def _named(paths: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        name = path.rstrip("/").rpartition("/")[2]
        if name in found:
            why = f'two journals are named {name}: give names, as in paths = {{"eu": "...", "us": "..."}}'
            raise ConfigError("paths", why, name)
        found[name] = path
    return found


def _by_journal(given: Mapping[str, str], option: str, names: Iterable[str]) -> dict[str, str]:
    """Return the option's value for each journal that it concerns."""
    if option not in given:
        return {}
    text = given[option]
    if text.strip().lower() in ("earliest", "latest"):
        return dict.fromkeys(names, text)
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise ConfigError(option, f'{text!r} is not of the form {{"journal": {{"partition": ...}}}}', text)
    unknown = sorted({*value} - {*names})
    if unknown:
        raise ConfigError(option, f"there is no journal {unknown[0]}; there are {', '.join(names)}", unknown[0])
    return {name: json.dumps(each) for name, each in value.items()}


class Part(InputPartition):
    """Task of one journal."""

    def __init__(self, journal: str, task: InputPartition) -> None:
        super().__init__((journal, task))


@contextmanager
def _naming(journal: str) -> Iterator[None]:
    """Name the journal in errors about its options."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.what, f"journal {journal}: {error.why}", error.value) from error


def _within(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns to read from a journal; at least one, which counts the rows."""
    return tuple(name for name in columns if name != "journal") or ("offset",)


def _tasks(readers: Mapping[str, Any], tasks: Mapping[str, Sequence[InputPartition]]) -> list[InputPartition]:
    found: list[InputPartition] = [Part(name, each) for name in readers for each in tasks.get(name, ()) if each.value]
    return found or [Slice(None)]


def _rows(readers: Mapping[str, Any], columns: tuple[str, ...], task: InputPartition) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if task.value is None:
        return
    journal, inner = task.value
    schema = arrow_schema(columns)
    for batch in readers[journal].read(inner):
        name = pa.repeat(pa.scalar(journal, pa.string()), batch.num_rows)
        arrays = [name if each == "journal" else batch.column(each) for each in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class ManyBatchReader(DataSourceReader):
    """Reads several journals as one table."""

    def __init__(self, journals: Mapping[str, Mapping[str, str]], columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.readers: dict[str, BatchReader] = {}
        for name, given in journals.items():
            with _naming(name):
                self.readers[name] = BatchReader(ReadOptions.of(given, streaming=False), _within(columns))

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters on journal, topic, partition, offset and timestamp. Return the others."""
        others = [each for each in filters if getattr(each, "attribute", None) != ("journal",)]
        kept = [list(reader.pushFilters(others)) for reader in self.readers.values()]  # the same for each
        return kept[0] + [each for each in filters if each not in others and not self._push(each)]

    def _push(self, each: Filter) -> bool:
        if isinstance(each, IsNotNull):
            return True
        if isinstance(each, (EqualTo, EqualNullSafe)):
            wanted = {each.value}
        elif isinstance(each, In):
            wanted = {*each.value}
        else:
            return False
        self.readers = {name: reader for name, reader in self.readers.items() if name in wanted}
        return True

    def partitions(self) -> list[InputPartition]:
        tasks = {}
        for name, reader in self.readers.items():
            with _naming(name):
                tasks[name] = reader.partitions()
        return _tasks(self.readers, tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self.readers, self.columns, partition)


class ManyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads several journals as one stream: offsets are {journal: {partition: next offset to read}}.

    The journals are found when a query starts. One that the checkpoint does not know is read from its start.
    """

    def __init__(self, journals: Mapping[str, Mapping[str, str]], columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.readers: dict[str, StreamReader] = {}
        for name, given in journals.items():
            with _naming(name):
                self.readers[name] = StreamReader(ReadOptions.of(given, streaming=True), _within(columns))
        self.options = next(iter(self.readers.values())).options
        self._pace = Pace(self.options.min_offsets, self.options.max_delay)
        self._told: set[str] = set()  # journals reported as gone

    def initialOffset(self) -> Nested:
        found = {}
        for name, reader in self.readers.items():
            with _naming(name):
                found[name] = reader.initialOffset()
        return found

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self.options)

    def prepareForTriggerAvailableNow(self) -> None:
        self._pace = Pace(None, 0)
        for reader in self.readers.values():
            reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: Nested, limit: ReadLimit) -> Nested:
        self._check(start)
        first: Flat = {}
        ends: Flat = {}
        for name, reader in self.readers.items():
            begun, there = reader.reach(from_json(start.get(name, {})))
            first |= {(name, partition): offset for partition, offset in begun.items()}
            ends |= {(name, partition): offset for partition, offset in there.items()}
        if not isinstance(limit, ReadAllAvailable) and self._pace.waits(first, ends, time.monotonic()):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limited(first, ends, limit.max_rows)
        found = {name: {part: end for (of, part), end in ends.items() if of == name} for name in self.readers}
        if isinstance(limit, ReadMaxRows):
            found = {name: self.readers[name].over_lost(each) for name, each in found.items()}
        gone = {name: offsets for name, offsets in start.items() if name not in self.readers}
        return gone | {name: to_json(each) for name, each in found.items()}

    def _check(self, offsets: Nested) -> None:
        """Report journals of the checkpoint that are not among the paths. Raises NotFound."""
        for name in sorted(offsets.keys() - self.readers.keys() - self._told):
            why = f"the checkpoint has offsets of the journal {name}, which is not among {', '.join(self.readers)}"
            if self.options.fail_on_data_loss:
                raise NotFound(f"{why}. With failOnDataLoss=false the query continues without it")
            self._told.add(name)
            log.warning("%s; continuing without it", why)

    def reportLatestOffset(self) -> Nested:
        return {name: reader.reportLatestOffset() for name, reader in self.readers.items()}

    def partitions(self, start: Nested, end: Nested) -> list[InputPartition]:
        self._check(end)
        tasks = {}
        for name, reader in self.readers.items():
            if name in end:
                tasks[name] = reader.partitions(start.get(name, {}), end[name])
        return _tasks(self.readers, tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self.readers, self.columns, partition)

    def stop(self) -> None:
        """Stop nothing: only the stream of a single journal has a recorder."""
