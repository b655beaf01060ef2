"""Rows from a journal through Spark: by `format("nng")`, and beside it Spark's own Parquet reader on the same files."""

from __future__ import annotations

from typing import Any

from _spark import clock, journal, made, messages, spark

from _child import say


def read(task: dict[str, Any]) -> None:
    """All columns of all rows into Spark's own rows, and there dropped; the second of two times, when all is warm."""
    folder = made(f"read-{task['rows']}", lambda draft: journal(draft, messages(task["rows"])))
    with spark(task) as session:
        for _ in range(2):
            if task["way"] == "Spark's own Parquet reader":
                rows = session.read.parquet(f"{folder}/partition-00000/*.parquet")
            else:
                reader = session.read.format("nng").option("minPartitions", "2")
                if task["way"] == "nng, with headers":
                    reader = reader.option("includeHeaders", "true")
                if task["way"] == "nng, two columns":
                    reader = reader.schema("topic string, timestamp timestamp")
                rows = reader.load(str(folder))
            with clock() as took:
                rows.write.format("noop").mode("overwrite").save()
        # and that they were all there
        assert rows.count() == task["rows"]
    say(per_second=task["rows"] / took[0], seconds=took[0])
