"""Rows from a journal to Spark by `format("nng")`, compared with Spark's own Parquet reader on the same files."""

from __future__ import annotations

from typing import Any

from _spark import clock, journal, made, messages, spark

from _child import report


def read(task: dict[str, Any]) -> None:
    """Read all columns of all rows and drop them; report the second of two runs, when the JVM is warm."""
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
        # all rows were read
        assert rows.count() == task["rows"]
    report(per_second=task["rows"] / took[0], seconds=took[0])
