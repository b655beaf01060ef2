"""Spark integration: a journal as a table and as a stream, a sink, and jobs that analyse recorded traffic.

::

    import nngkit.spark

    nngkit.spark.register(spark)                              # an existing session
    spark.read.format("nng").load("journal")
    spark.readStream.format("nng").load("journal")
    nngkit.spark.table(spark, "lake/events")                  # a table of `nngkit journal export`
    rows.write.format("nng").option("protocol", "push").option("dial", "tcp://host:7000").mode("append").save()

::

    pure     options  plan  ids  schema            options, offset ranges and their split into tasks
    shells   source  sink  worker  own_recorder    Spark's data source API, its workers; a stream's own recorder
             session  java  doctor  cluster        what Spark needs to run, here and elsewhere
             lakehouse                             Iceberg and Delta tables of a journal
    jobs/                                          DataFrame -> DataFrame

Only this package imports PySpark, and only when one of its names is used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.spark.lakehouse import table
    from nngkit.spark.session import register, session

__all__ = ["register", "session", "table"]


if not TYPE_CHECKING:  # a type checker that sees `__getattr__` accepts any name

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module = "lakehouse" if name == "table" else "session"
        found: object = getattr(import_module(f"nngkit.spark.{module}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
