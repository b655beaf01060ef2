"""A record's headers as columns: what each of the names means, in one place.

==========  ==========================================================================================
``id``      bytes: what makes the record that record; two with one id are one, sent twice
``sent``    8 bytes, big-endian, signed: microseconds since 1970 on the sender's clock
``seq``     8 bytes, big-endian: the sender's own count of what it sent on this topic
``from``    UTF-8: what the sender calls itself; where there is none, its address stands for it
``origin``  bytes, ``epoch`` 8 bytes, ``seq`` 8 bytes, ``deps`` CBOR: those of a document's update, or
            ``versions`` CBOR and ``deps``: those of many as one (docs/wire.md)
==========  ==========================================================================================
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nngkit.errors import ConfigError

__all__ = ["header", "need", "number", "sender", "sent"]


def need(rows: DataFrame, *columns: str) -> None:
    """Refuse rows without these columns, before Spark does in its own words."""
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        hint = ": read with includeHeaders=true" if "headers" in missing else ""
        raise ConfigError("columns", f"there is no {' and no '.join(missing)}{hint}", missing)


def header(name: str) -> Column:
    """The header of that name, the first if there are several; null if there is none. Binary."""
    return F.expr(f"try_element_at(filter(headers, h -> h.key = '{name}'), 1).value")


def number(value: Column) -> Column:
    """8 bytes, big-endian, as a bigint; null for anything else, and for what is over 2**63 - 1."""
    whole = F.conv(F.hex(value), 16, 10).try_cast("bigint")
    return F.when(F.octet_length(value) == 8, whole)


def sent() -> Column:
    """When the sender says it sent the record."""
    return F.timestamp_micros(number(header("sent")))


def sender() -> Column:
    """Who sent it: by its own name, else by its address."""
    return F.coalesce(header("from").cast("string"), F.col("peer"), F.lit("unknown"))
