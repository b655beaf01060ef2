"""Both ends of a read: `startingOffsets` and its kin, as values checked before anything starts. Pure.

::

    positions({"startingOffsetsByTimestamp": '{"0": 1700000000000}'}, streaming=True, default=LATEST)

    ===============================  ==========================================================================
    startingOffsets                  one position for all partitions, or an offset by partition
    startingTimestamp                one time for all partitions
    startingOffsetsByTimestamp       a time by partition; partitions that it does not name begin at the earliest
    endingOffsets and its kin        the same for the end; partitions that are not named end at the latest
    ===============================  ==========================================================================

At most one of the three is given for each end; Spark's Kafka source would silently take the more specific one.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from nngkit.errors import ConfigError
from nngkit.journal.record import EARLIEST as FIRST_TIME
from nngkit.journal.record import LATEST as LAST_TIME

LATEST: Final = -1  # as in the JSON of Kafka's source
EARLIEST: Final = -2
BY_PARTITION: Final = ("startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp")

Offsets = dict[int, int]
Times = dict[int, int]  # microseconds since 1970, by partition


@dataclass(frozen=True)
class Positions:
    """Both ends of a read. `starting` and `ending`: one position for all partitions, or offsets by partition.

    Times are microseconds, UTC. `strict`: a start time after the last record is an error; otherwise the partition
    begins at its end.
    """

    starting: int | Offsets = EARLIEST
    ending: int | Offsets = LATEST
    starting_time: int | None = None
    ending_time: int | None = None
    starting_times: Times | None = None
    ending_times: Times | None = None
    strict: bool = False


def positions(given: Mapping[str, str], streaming: bool, default: int) -> Positions:
    """Parse the options. `default`: where a read without any begins. Raises ConfigError, which names the option."""
    for side in ("starting", "ending"):
        names = [f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"]
        both = [name for name in names if name in given]
        if len(both) > 1:
            raise ConfigError(both[1], f"conflicts with {both[0]}; give one of them")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in given:
                raise ConfigError(name, "is for batch reads only: a stream has no end", given[name])
    starting = _offsets(given, "startingOffsets", default)
    if not streaming and starting == LATEST:
        raise ConfigError("startingOffsets", "a batch read that starts at the latest offset is always empty")
    ending = _offsets(given, "endingOffsets", LATEST)
    if ending == EARLIEST:
        raise ConfigError("endingOffsets", "a read that ends at the earliest offset is always empty")
    return Positions(
        starting,
        ending,
        _time(given, "startingTimestamp"),
        _time(given, "endingTimestamp"),
        _times(given, "startingOffsetsByTimestamp"),
        _times(given, "endingOffsetsByTimestamp"),
        _strict(given),
    )


def parse_time(text: str, what: str = "time") -> int:
    """Parse ISO 8601 (UTC without a zone) or milliseconds, as Kafka's source; return microseconds since 1970."""
    if text.strip().lstrip("-").isdigit():
        if not FIRST_TIME <= (found := int(text) * 1000) <= LAST_TIME:
            raise ConfigError(what, f"{text} ms since 1970 are not in the years 1 to 9999", text)
        return found
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(what, f"{text!r} is neither ISO 8601 nor milliseconds since 1970", text) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _strict(given: Mapping[str, str]) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    if name not in given:
        return False
    if "startingTimestamp" not in given and "startingOffsetsByTimestamp" not in given:
        raise ConfigError(name, "requires startingTimestamp or startingOffsetsByTimestamp", given[name])
    if (text := given[name].lower()) not in ("error", "latest"):
        raise ConfigError(name, f"{given[name]!r} is neither error nor latest", given[name])
    return text == "error"


def _offsets(given: Mapping[str, str], name: str, default: int) -> int | Offsets:
    if name not in given:
        return default
    text = given[name].strip()
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    found = {}
    for partition, offset in _by_partition(name, text, "an offset", 17, "neither earliest nor latest, nor ").items():
        if type(offset) is not int or not EARLIEST <= offset < 1 << 63:
            _refuse(name, text, f"has {str(partition)!r}: {offset!r}, not a partition and an offset")
        found[partition] = offset
    return found


def _times(given: Mapping[str, str], name: str) -> Times | None:
    if name not in given:
        return None
    text = given[name].strip()
    found = {}
    for partition, moment in _by_partition(name, text, "a time", 1700000000000, "not ").items():
        if type(moment) not in (int, str):
            _refuse(name, text, f"has {str(partition)!r}: {moment!r}, not a partition and a time")
        found[partition] = parse_time(str(moment), name)
    return found


def _by_partition(name: str, text: str, what: str, example: int, instead: str) -> dict[int, object]:
    """Parse JSON of the form {"partition": ...}."""
    try:
        value = json.loads(text)
    except ValueError:
        _refuse(name, text, f'is {instead}JSON like {{"0": {example}}}')
    if not isinstance(value, dict) or not value:
        _refuse(name, text, f'is not of the form {{"partition": {what.split()[1]}}}')
    for partition, each in value.items():
        if not (partition.isascii() and partition.isdigit()):
            _refuse(name, text, f"has {partition!r}: {each!r}, not a partition and {what}")
    return {int(partition): each for partition, each in value.items()}


def _refuse(name: str, text: str, why: str) -> NoReturn:
    raise ConfigError(name, f"{text!r} {why}", text) from None


def _time(given: Mapping[str, str], name: str) -> int | None:
    return parse_time(given[name], name) if name in given else None
