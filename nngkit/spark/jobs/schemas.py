"""Schemas of topics, from a sample: shares of CBOR, JSON, text and binary values, and the fields of maps. Batch only.

::

    schemas(rows).where("field is null").show()           # the kinds of each topic
    schemas(rows).where("topic = 'orders'").orderBy(F.desc("share")).show()

A value is ``json`` if it is a JSON object or array, ``cbor`` if it is a CBOR map or array (within the limits of
`nngkit.envelope`), else ``text`` if it is UTF-8 without control characters, else ``binary``; ``long`` if it has over
16 KiB, which are not examined. No value is both text and CBOR: a CBOR container begins with a byte with which no UTF-8
begins. A field is a path such as ``customer.name`` or ``lines[].price``.

The sample of a topic is its `SAMPLE` records with the lowest hash of partition and offset: the same ones each time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from nngkit.spark.jobs.headers import need

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE: Final = 1000  # records of a topic: a share of 50 % is accurate to 3 points, in 19 of 20 cases
LONGEST: Final = 16 * 1024  # bytes of an examined value: so a topic's sample takes at most 16 MB of a worker
FIELDS: Final = 200  # of a topic, most frequent first, and of a value: maps may have keys without end
DEPTH: Final = 6  # containers in one another whose fields are listed
FOUND: Final = "topic string, kind string, field string, type string"
CONTROL: Final = dict.fromkeys(set(range(32)) - {9, 10, 13})


def schemas(rows: DataFrame, sample: int = SAMPLE) -> DataFrame:
    """Return, by topic and kind, the share of sampled values; and that of each field and type of CBOR and JSON maps.

    A row without `field` is about the kind. `share` is of the topic's sampled records, `records` is how many it has.
    """
    need(rows, "value", "topic", "partition", "offset")
    some = F.substring("value", 1, LONGEST + 1)  # one more byte tells a long value
    topics = rows.groupBy("topic").agg(
        F.count("*").alias("records"), F.min_by(some, F.xxhash64("partition", "offset"), sample).alias("values")
    )
    values = topics.select("topic", F.explode("values").alias("value"))
    found = values.mapInArrow(_examined, FOUND).groupBy("topic", "kind", "field", "type").agg(F.count("*").alias("n"))
    frequent = Window.partitionBy("topic").orderBy(F.col("field").isNotNull(), F.desc("n"), "field", "type")
    listed = found.withColumn("place", F.row_number().over(frequent)).where(F.col("place") <= FIELDS)
    sizes = topics.select("topic", "records", F.size("values").cast("bigint").alias("sampled"))
    return listed.join(sizes, "topic").select(
        "topic", "kind", "field", "type", (F.col("n") / F.col("sampled")).alias("share"), "sampled", "records"
    )


def _examined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        rows: list[tuple[str, str, str | None, str | None]] = []
        for topic, value in zip(batch.column("topic").to_pylist(), batch.column("value").to_pylist(), strict=True):
            kind, content = kind_of(value)
            rows.append((topic, kind, None, None))
            rows += [(topic, kind, field, type_) for field, type_ in fields_of(content)]
        if rows:
            columns = [pa.array(each, pa.string()) for each in zip(*rows, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=["topic", "kind", "field", "type"])


def kind_of(value: bytes) -> tuple[str, Any]:
    """Return the kind of a value, and its content if that is JSON or CBOR."""
    from nngkit.envelope import decode
    from nngkit.errors import BadMessage, TooLarge

    if len(value) > LONGEST:
        return "long", None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        try:
            content = decode(value, what="value", limit=LONGEST)
        except (BadMessage, TooLarge):
            return "binary", None
        return ("cbor", content) if isinstance(content, dict | list) else ("binary", None)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return "json", json.loads(text)
        except (ValueError, RecursionError):
            pass
    return ("text" if text.translate(CONTROL) == text else "binary"), None


def fields_of(content: Any) -> list[tuple[str, str]]:
    """Return the fields of a map, or of the maps of an array, as paths, with their types; each once."""
    found: Counter[tuple[str, str]] = Counter()
    waiting = [("", content, 0)]
    while waiting and len(found) < FIELDS:
        path, each, depth = waiting.pop(0)
        if path:
            found[path, _type(each)] += 1
        if depth == DEPTH:
            continue
        if isinstance(each, Mapping):
            waiting += [(f"{path}.{name}" if path else name, inner, depth + 1) for name, inner in each.items()]
        elif isinstance(each, list):
            waiting += [(f"{path}[]", inner, depth + 1) for inner in each[:FIELDS]]
    return list(found)


def _type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "float"
        case str():
            return "text"
        case bytes():
            return "bytes"
        case list():
            return "array"
    return "map"
