"""Spark integration: a journal as a table and as a stream, a sink, and jobs that analyse recorded traffic.

::

    import nngkit.spark

    nngkit.spark.register(spark)                              # an existing session
    spark.read.format("nng").load("journal")
    nngkit.spark.scan(spark, "journal")                       # the same rows, faster: see sealed.py
    nngkit.spark.map_batches(spark, "journal", function, "n int", columns=["value"])    # past Java: see batches.py
    spark.readStream.format("nng").load("journal")
    nngkit.spark.table(spark, "lake/events")                  # a table of `nngkit journal export`
    rows.write.format("nng").option("protocol", "push").option("dial", "tcp://host:7000").mode("append").save()
    rows.writeStream.foreachBatch(nngkit.spark.to_delta("/data/orders")).option("checkpointLocation", "c").start()

::

    pure     options  positions  choice  plan      options: where a read begins, which records; its split into tasks
             ids  schema                           message ids, columns
    shells   source  one  many  pushdown  sink  worker    Spark's data source API: one journal, several, filters
             own_recorder  progress  tables        a stream's own recorder; its progress; Delta tables it writes to
             sealed  batches                       batch reads: by Spark's Parquet reader, by a function in Python
             session  java  doctor  cluster        what Spark needs to run, here and elsewhere
             hadoop                                small files on Spark's storage
             lakehouse                             Iceberg and Delta tables of a journal
    jobs/                                          DataFrame -> DataFrame

Only this package imports PySpark, and only when one of its names is used.
"""

from nngkit.lazy import lazily
from nngkit.spark.session import register, session  # now, or a later import of that module would replace the function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.spark.lakehouse import table
    from nngkit.spark.reading.batches import map_batches
    from nngkit.spark.reading.sealed import scan
    from nngkit.spark.tables import to_delta

__all__ = ["map_batches", "register", "scan", "session", "table", "to_delta"]

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__,
        {"lakehouse": "table", "reading.batches": "map_batches", "reading.sealed": "scan", "tables": "to_delta"},
    )
