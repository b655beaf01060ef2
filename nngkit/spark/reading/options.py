"""Options of `format("nng")` for reading and writing: one table each, validated before anything starts. Pure.

::

    ReadOptions.of({"path": "journal", "startingOffsets": '{"0": 17}'}, streaming=True)

An unknown option is rejected with the closest known name. Spark itself would pass a misspelt `startingOffset` on
silently, and the query would begin at the wrong end.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from nngkit.errors import ConfigError
from nngkit.spark.reading.choice import Choice, choice
from nngkit.spark.reading.durations import seconds_of
from nngkit.spark.reading.positions import EARLIEST, LATEST, Positions, positions

READ: Final = {
    "path": "the journal: a folder, or a URI of shared storage; a pattern such as /data/* for several folders",
    "paths": "several journals, as load([...]) sets it: [path, ...], or {name: path}",
    "spool": "if the journal is a URI, the folder of a recorder's logs, the query's own or one to read with it",
    "startingOffsets": 'earliest, latest, or {"partition": offset}; -2 is earliest, -1 latest',
    "endingOffsets": 'latest, or {"partition": offset}; batch only',
    "startingTimestamp": "a time, ISO 8601 or milliseconds since 1970: begin at the first record from that time on",
    "endingTimestamp": "a time: end before the first record from that time on; batch only",
    "startingOffsetsByTimestamp": '{"partition": time}: begin each partition at its first record from that time on',
    "endingOffsetsByTimestamp": '{"partition": time}: end each before its first record from that time on; batch only',
    "startingOffsetsByTimestampStrategy": "if no record is that late: latest, begin at the end (default), or error",
    "subscribe": "topics, separated by commas (default: all)",
    "subscribePattern": "a regular expression that a topic matches as a whole",
    "assign": '{"topic": [partition, ...]}, or [partition, ...]: read only these',
    "keyPrefix": "text with which a record's key begins",
    "includeHeaders": "true: add the column headers",
    "includeSkipped": "true: add the column skipped, and a row for each damage that is skipped",
    "failOnDataLoss": "false: continue where records are missing, and report it on stderr (default: true)",
    "maxOffsetsPerTrigger": "maximum of offsets in one micro-batch, over all partitions",
    "minOffsetsPerTrigger": "wait for this many new offsets, over all partitions, or for maxTriggerDelay",
    "maxTriggerDelay": "longest wait for minOffsetsPerTrigger, such as 30s or 15m (default: 15m)",
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
    "withIds": "for push and pub: true to begin each message with its id (nngkit.spark.reading.ids.split)",
    "inFlight": "for req: maximum of pending requests (default: 16)",
    "recordsPerRequest": "for req: records in a request (default: 512)",
    "checkpointLocation": "Spark's",
}
RECORDING: Final = ("sub", "pull", "bus", "pair", "rep")
SINKS: Final = ("push", "pub", "req")
STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "listen",
    "dial",
    "protocol",
    "checkpointLocation",
)
MAX_DELAY: Final = 900.0  # seconds, as Kafka's source
ROWS_PER_TASK: Final = 400_000  # about a second's work of one core, well over a task's overhead of 0.1 s


class RecorderOptions(NamedTuple):
    """Configuration of a stream's own recorder."""

    protocol: str
    listen: str | None
    dial: str | None
    topic: str
    prefix: str


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Positions, Choice):
    """Validated read options. `max_delay`: seconds."""

    path: str
    spool: str | None = None
    include_headers: bool = False
    include_skipped: bool = False
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay: float = MAX_DELAY
    min_partitions: int = 1
    max_records: int = ROWS_PER_TASK
    listening: RecorderOptions | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], streaming: bool) -> ReadOptions:
        """Parse Spark's options. Raises ConfigError, which names the option."""
        given = known(options, READ)
        if not streaming:
            for name in STREAM_ONLY:
                if name in given:
                    raise ConfigError(name, "is for readStream only", given[name])
        listening = _listening(given)
        default = LATEST if streaming else EARLIEST  # as Kafka's source
        if listening:
            default = EARLIEST  # the journal belongs to the query: it begins when the query does
        most, least = _count(given, "maxOffsetsPerTrigger"), _count(given, "minOffsetsPerTrigger")
        if least is not None and most is not None and least > most:
            raise ConfigError("minOffsetsPerTrigger", f"{least} is above maxOffsetsPerTrigger, {most}", least)
        if "maxTriggerDelay" in given and least is None:
            raise ConfigError("maxTriggerDelay", "requires minOffsetsPerTrigger", given["maxTriggerDelay"])
        return cls(
            path=_path(given, listening is not None),
            spool=given.get("spool"),
            **vars(positions(given, streaming, default)),
            **vars(choice(given)),
            include_headers=flag(given, "includeHeaders", False),
            include_skipped=flag(given, "includeSkipped", False),
            fail_on_data_loss=flag(given, "failOnDataLoss", True),
            max_offsets=most,
            min_offsets=least,
            max_delay=_duration(given, "maxTriggerDelay", MAX_DELAY),
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
        given = known({name: value for name, value in options.items() if name.lower() != "path"}, WRITE)
        for name in ("dial", "protocol"):
            if not given.get(name):
                raise ConfigError(name, WRITE[name] + ": required")
        protocol = given["protocol"].lower()
        if protocol not in SINKS:
            raise ConfigError("protocol", f"{protocol!r} is not one of {', '.join(SINKS)}", protocol)
        for name, only in (("topic", "req"), ("inFlight", "req"), ("recordsPerRequest", "req")):
            if name in given and protocol != only:
                raise ConfigError(name, f"is for {only} only", given[name])
        with_ids = flag(given, "withIds", False)
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
    known(options, {**READ, **WRITE})


def host_and_port(address: str, what: str = "metrics") -> tuple[str, int]:
    """Parse host:port, or a port of 127.0.0.1. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigError(what, f"{address!r} is neither a port nor host:port", address)
    return host or "127.0.0.1", int(port)


def known(options: Mapping[str, str], table: Mapping[str, str]) -> dict[str, str]:
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


def _path(given: Mapping[str, str], listening: bool) -> str:
    path = given.get("path")
    if path is None and listening and "checkpointLocation" in given:
        path = given["checkpointLocation"].rstrip("/") + "/nng-journal"
    if not path:
        there = ", or checkpointLocation, to keep the journal there" if listening else ""
        raise ConfigError("path", f"name the journal, as in load('journal'){there}")
    return path


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """Return the option's value, true or false. Raises ConfigError."""
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


def _duration(given: Mapping[str, str], name: str, default: float) -> float:
    """Return seconds; a number alone is of milliseconds, as in Kafka's source."""
    text = given.get(name, "").strip()
    if not text:
        return default
    return seconds_of(f"{text}ms" if text.isdigit() else text, name)
