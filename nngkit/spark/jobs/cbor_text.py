"""CBOR values as JSON text, for Spark's own functions of JSON.

::

    rows.select(from_cbor("value", "name string, size bigint").alias("order")).select("order.*")
    register(spark)                                                # then in SQL:
    spark.sql("SELECT from_json(from_cbor(value), 'name string') FROM journal")

CBOR is decoded with the limits of `nngkit.envelope`: no tags, text as keys, 32 levels. Byte strings become base64,
which Spark reads back as ``binary``. Values that are no such CBOR become null.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from nngkit.envelope import decode
from nngkit.errors import BadMessage, TooLarge

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

LONGEST: Final = 1 << 20  # bytes: the largest message that a socket takes by default


def from_cbor(column: Column | str, schema: str | None = None) -> Column:
    """Return the values as JSON text, or, with a schema in Spark's DDL, as a struct; null for anything else than CBOR.

    Null, too, for values over 1 MiB.
    """
    text: Column = _udf()(column)
    return text if schema is None else F.from_json(text, schema)


def register(spark: SparkSession) -> None:
    """Make `from_cbor(value)` a function of SQL, which returns JSON text."""
    spark.udf.register("from_cbor", _udf())


def _udf() -> Any:
    return arrow_udf(_texts, "string")  # type: ignore[call-overload]  # the kind is in the annotations


def _texts(values: pa.Array) -> pa.Array:
    return pa.array([None if each is None else json_of(each) for each in values.to_pylist()], pa.string())


def json_of(value: bytes) -> str | None:
    """Return the JSON text of a CBOR value; None if it cannot be decoded."""
    try:
        found = decode(value, what="value", limit=LONGEST)
    except (BadMessage, TooLarge):
        return None
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"), default=_base64)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
