"""Options of `format("nng")` for reading and writing: one table each, validated before anything starts. Pure.

::

    ReadOptions.of({"path": "journal", "startingOffsets": '{"0": 17}'}, streaming=True)

An unknown option is rejected with the closest known name. Spark itself would pass a misspelt `startingOffset` on
silently, and the query would begin at the wrong end.
"""

from __future__ import annotations

import datetime as dt
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from nngkit.errors import ConfigError

__all__ = [
    "EARLIEST",
    "LATEST",
    "READ",
    "WRITE",
    "ReadOptions",
    "RecorderOptions",
    "WriteOptions",
    "check_names",
    "parse_time",
]

LATEST: Final = -1  # as in the JSON of Kafka's source
EARLIEST: Final = -2

READ: Final = {
    "path": "the journal: a folder, or a URI of shared storage",
    "spool": "if the journal is a URI, the folder of a recorder's logs, the query's own or one to read with it",
    "startingOffsets": 'earliest, latest, or {"partition": offset}; -2 is earliest, -1 latest',
    "endingOffsets": 'latest, or {"partition": offset}; batch only',
    "startingTimestamp": "a time, ISO 8601 or milliseconds since 1970: begin at the first record from that time on",
    "endingTimestamp": "a time: end before the first record from that time on; batch only",
    "subscribe": "topics, separated by commas (default: all)",
    "includeHeaders": "true: add the column headers",
    "includeSkipped": "true: add the column skipped, and a row for each damage that is skipped",
    "failOnDataLoss": "false: continue where records are missing, and report it on stderr (default: true)",
    "maxOffsetsPerTrigger": "maximum of offsets in one micro-batch, over all partitions",
    "minPartitions": "minimum of tasks that a read is split into",
    "maxRecordsPerPartition": "maximum of records a task",
    "checkpointLocation": "with listen or dial: the query's checkpoint; the journal is kept there",
    "listen": "an address: start a recorder that listens there",
    "dial": "an address: start a recorder that dials it",
    "protocol": "of that recorder: sub, pull, bus, pair or rep",
    "topic": "of that recorder: the topic's name (default: the protocol's)",
    "prefix": "of that recorder, for sub: the subscription (default: all messages)",
}
WRITE: Final = {
    "dial": "the address of the receiver",
    "protocol": "push, pub, or req: acknowledged, by a recorder's rep",
    "topic": "for req: the topic, without a column of that name (default: the recorder's)",
    "timeout": "seconds for a message to be accepted (default: 30)",
    "query": "for batch writes: the name from which message ids are made (default: a random one)",
    "withIds": "for push and pub: true to begin each message with its id (nngkit.spark.ids.split)",
    "inFlight": "for req: maximum of pending requests (default: 16)",
    "recordsPerRequest": "for req: records in a request (default: 512)",
    "checkpointLocation": "Spark's",
}
RECORDING: Final = ("sub", "pull", "bus", "pair", "rep")
SINKS: Final = ("push", "pub", "req")
ROWS_PER_TASK: Final = 400_000  # about a second's work of one core, well over a task's overhead of 0.1 s

Offsets = dict[int, int]


class RecorderOptions(NamedTuple):
    """Configuration of a stream's own recorder."""

    protocol: str
    listen: str | None
    dial: str | None
    topic: str
    prefix: str


@dataclass(frozen=True)
class ReadOptions:
    """Validated read options. `starting` and `ending`: one position for all partitions, or offsets by partition."""

    path: str
    spool: str | None = None
    starting: int | Offsets = EARLIEST
    ending: int | Offsets = LATEST
    starting_time: int | None = None  # microseconds, UTC
    ending_time: int | None = None
    topics: tuple[str, ...] | None = None
    include_headers: bool = False
    include_skipped: bool = False
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    min_partitions: int = 1
    max_records: int = ROWS_PER_TASK
    listening: RecorderOptions | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], streaming: bool) -> ReadOptions:
        """Parse Spark's options. Raises ConfigError, which names the option."""
        given = _known(options, READ)
        if not streaming:
            for name in ("maxOffsetsPerTrigger", "listen", "dial", "protocol", "checkpointLocation"):
                if name in given:
                    raise ConfigError(name, "is for readStream only", given[name])
        else:
            for name in ("endingOffsets", "endingTimestamp"):
                if name in given:
                    raise ConfigError(name, "is for batch reads only: a stream has no end", given[name])
        listening = _listening(given)
        path = given.get("path")
        if path is None and listening and "checkpointLocation" in given:
            path = given["checkpointLocation"].rstrip("/") + "/nng-journal"
        if not path:
            raise ConfigError(
                "path",
                "name the journal, as in load('journal')"
                + (", or checkpointLocation, to keep the journal there" if listening else ""),
            )
        if "startingOffsets" in given and "startingTimestamp" in given:
            raise ConfigError("startingTimestamp", "conflicts with startingOffsets; give one of them")
        if "endingOffsets" in given and "endingTimestamp" in given:
            raise ConfigError("endingTimestamp", "conflicts with endingOffsets; give one of them")
        default = LATEST if streaming else EARLIEST  # as Kafka's source
        if listening:
            default = EARLIEST  # the journal belongs to the query: it begins when the query does
        starting = _offsets(given, "startingOffsets", default)
        if not streaming and starting == LATEST:
            raise ConfigError("startingOffsets", "a batch read that starts at the latest offset is always empty")
        ending = _offsets(given, "endingOffsets", LATEST)
        if ending == EARLIEST:
            raise ConfigError("endingOffsets", "a read that ends at the earliest offset is always empty")
        topics = given.get("subscribe")
        return cls(
            path=path,
            spool=given.get("spool"),
            starting=starting,
            ending=ending,
            starting_time=_time(given, "startingTimestamp"),
            ending_time=_time(given, "endingTimestamp"),
            topics=tuple(topic.strip() for topic in topics.split(",")) if topics is not None else None,
            include_headers=_flag(given, "includeHeaders", False),
            include_skipped=_flag(given, "includeSkipped", False),
            fail_on_data_loss=_flag(given, "failOnDataLoss", True),
            max_offsets=_count(given, "maxOffsetsPerTrigger"),
            min_partitions=_count(given, "minPartitions") or 1,
            max_records=_count(given, "maxRecordsPerPartition") or ROWS_PER_TASK,
            listening=listening,
        )


@dataclass(frozen=True)
class WriteOptions:
    """Validated write options."""

    dial: str
    protocol: str
    topic: str | None = None
    timeout: float = 30.0  # seconds
    query: str | None = None
    with_ids: bool = False
    in_flight: int = 16
    per_request: int = 512

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse Spark's options. Raises ConfigError, which names the option."""
        lowered = {name.lower() for name in options}
        if "listen" in lowered:
            raise ConfigError(
                "listen",
                "Spark writes from several processes, of which only one could listen: dial a listener, or a device",
            )
        given = _known({name: value for name, value in options.items() if name.lower() != "path"}, WRITE)
        for name in ("dial", "protocol"):
            if not given.get(name):
                raise ConfigError(name, WRITE[name] + ": required")
        protocol = given["protocol"].lower()
        if protocol not in SINKS:
            raise ConfigError("protocol", f"{protocol!r} is not one of {', '.join(SINKS)}", protocol)
        for name, only in (("topic", "req"), ("inFlight", "req"), ("recordsPerRequest", "req")):
            if name in given and protocol != only:
                raise ConfigError(name, f"is for {only} only", given[name])
        with_ids = _flag(given, "withIds", False)
        if with_ids and protocol == "req":
            raise ConfigError("withIds", "is for push and pub; req always has ids")
        try:
            timeout = float(given.get("timeout", "30"))
        except ValueError:
            timeout = 0.0
        if not 0 < timeout < 1e6:
            raise ConfigError("timeout", f"{given['timeout']!r} is not a number of seconds", given["timeout"])
        return cls(
            dial=given["dial"],
            protocol=protocol,
            topic=given.get("topic"),
            timeout=timeout,
            query=given.get("query"),
            with_ids=with_ids,
            in_flight=_count(given, "inFlight") or 16,
            per_request=_count(given, "recordsPerRequest") or 512,
        )


def check_names(options: Mapping[str, str]) -> None:
    """Reject unknown option names; Spark asks for the columns before it says whether to read or to write."""
    _known(options, {**READ, **WRITE})


def parse_time(text: str, what: str = "time") -> int:
    """Parse ISO 8601 (UTC without a zone) or milliseconds, as Kafka's source; return microseconds since 1970."""
    if text.strip().lstrip("-").isdigit():
        return int(text) * 1000
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(what, f"{text!r} is neither ISO 8601 nor milliseconds since 1970", text) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _known(options: Mapping[str, str], table: Mapping[str, str]) -> dict[str, str]:
    """Return the options under the table's names; names are case-insensitive."""
    spelt = {name.lower(): name for name in table}
    given = {}
    for name, value in options.items():
        if name.lower() not in spelt:
            near = difflib.get_close_matches(name.lower(), spelt, n=1)
            hint = f"did you mean {spelt[near[0]]}?" if near else f"known are {', '.join(table)}"
            raise ConfigError(name, f"unknown option; {hint}", value)
        given[spelt[name.lower()]] = value
    return given


def _listening(given: Mapping[str, str]) -> RecorderOptions | None:
    """Return the configuration of the stream's own recorder, if requested."""
    wanted = [name for name in ("listen", "dial") if name in given]
    if not wanted:
        for name in ("protocol", "topic", "prefix", "checkpointLocation"):
            if name in given:
                raise ConfigError(name, "is for the query's own recorder, which requires listen or dial", given[name])
        return None
    protocol = given.get("protocol", "").lower()
    if protocol not in RECORDING:
        raise ConfigError("protocol", f"{wanted[0]} requires one of {', '.join(RECORDING)}", protocol)
    if "prefix" in given and protocol != "sub":
        raise ConfigError("prefix", "is for sub only", given["prefix"])
    return RecorderOptions(
        protocol, given.get("listen"), given.get("dial"), given.get("topic", protocol), given.get("prefix", "")
    )


def _offsets(given: Mapping[str, str], name: str, default: int) -> int | Offsets:
    if name not in given:
        return default
    text = given[name].strip()

    def refuse(why: str) -> NoReturn:
        raise ConfigError(name, f"{text!r} {why}", text) from None

    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    try:
        value = json.loads(text)
    except ValueError:
        refuse('is neither earliest nor latest, nor JSON like {"0": 17}')
    if not isinstance(value, dict) or not value:
        refuse('is not of the form {"partition": offset}')
    found = {}
    for partition, offset in value.items():
        if not partition.isdigit() or type(offset) is not int or not EARLIEST <= offset < 1 << 63:
            refuse(f"has {partition!r}: {offset!r}, not a partition and an offset")
        found[int(partition)] = offset
    return found


def _time(given: Mapping[str, str], name: str) -> int | None:
    return parse_time(given[name], name) if name in given else None


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(name, f"{given[name]!r} is neither true nor false", given[name])
    return text == "true"


def _count(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    text = given[name]
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 63):
        raise ConfigError(name, f"{text!r} is not an integer above 0", text)
    return int(text)
