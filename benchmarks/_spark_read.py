"""Rows from a journal through Spark: by `format("nng")`, and beside it Spark's own Parquet reader on the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from _spark import clock, journal, messages, spark


def _made(task: dict[str, Any]) -> Path:
    folder = Path(task["folder"], f"read-{task['rows']}")
    if not folder.exists():
        journal(folder, messages(task["rows"]))
    return folder


def read(task: dict[str, Any]) -> dict[str, float]:
    """All columns of all rows into Spark's own rows, and there dropped; the second of two times, when all is warm."""
    folder = _made(task)
    with spark(task) as session:
        for _ in range(2):
            if task["way"] == "parquet":
                rows = session.read.parquet(f"{folder}/partition-00000/*.parquet")
            else:
                reader = session.read.format("nng").option("minPartitions", "2")
                if task["way"] == "with headers":
                    reader = reader.option("includeHeaders", "true")
                if task["way"] == "two columns":
                    reader = reader.schema("topic string, timestamp timestamp")
                rows = reader.load(str(folder))
            with clock() as took:
                rows.write.format("noop").mode("overwrite").save()
        # and that they were all there
        assert rows.count() == task["rows"]
    return {"seconds": took[0], "rows_per_second": task["rows"] / took[0]}
