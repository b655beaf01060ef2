"""Decode a record's headers into columns; the meaning of each name.

==========  ==========================================================================================
``id``      bytes: identity of the record; two records with one id are duplicates
``sent``    8 bytes, big-endian, signed: send time in microseconds since 1970, by the sender's clock
``seq``     8 bytes, big-endian: sequence number of the sender on this topic
``from``    UTF-8: name of the sender; without it, its address is used
``number``  8 bytes, big-endian: of a device's record, the number of a request, and of its reply
``origin``  bytes, ``epoch`` 8 bytes, ``seq`` 8 bytes, ``deps`` CBOR: those of a document's update, or
            ``versions`` CBOR and ``deps``: those of a merge of many (docs/wire.md)
==========  ==========================================================================================
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nngkit.errors import ConfigError


def need(rows: DataFrame, *columns: str) -> None:
    """Reject rows without these columns with a clear error. Raises ConfigError."""
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        hint = ": read with includeHeaders=true" if "headers" in missing else ""
        raise ConfigError("columns", f"missing column {', '.join(missing)}{hint}", missing)


def header(name: str) -> Column:
    """Return the header of that name, the first of several; null if there is none. Binary."""
    return F.expr(f"try_element_at(filter(headers, h -> h.key = '{name}'), 1).value")


def number(value: Column) -> Column:
    """Convert 8 bytes, big-endian, to bigint; null for other lengths and above 2**63 - 1."""
    whole = F.conv(F.hex(value), 16, 10).try_cast("bigint")
    return F.when(F.octet_length(value) == 8, whole)


def sent() -> Column:
    """Return the time at which the sender sent the record."""
    return F.timestamp_micros(number(header("sent")))


def seconds_between(since: Column | str, until: Column | str) -> Column:
    """Return the seconds from one timestamp to another, exact in microseconds; negative if `until` is earlier.

    The difference of two timestamps as doubles is off by up to 0.24 us each.
    """
    return (F.unix_micros(until) - F.unix_micros(since)) / F.lit(1_000_000)


def sender() -> Column:
    """Return the sender: its name, else its address."""
    return F.coalesce(header("from").cast("string"), F.col("peer"), F.lit("unknown"))


def peer(rows: DataFrame) -> Column:
    """Return the sender, for rows that may lack `headers`."""
    return sender() if "headers" in rows.columns else F.coalesce("peer", F.lit("unknown"))
