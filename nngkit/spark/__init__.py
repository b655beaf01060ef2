"""The journal in Spark: a table, a stream, a place to write to, and jobs that answer what people ask of traffic.

::

    import nngkit.spark

    nngkit.spark.register(spark)                              # a session of yours
    spark.read.format("nng").load("journal")
    spark.readStream.format("nng").load("journal")
    rows.write.format("nng").option("protocol", "push").option("dial", "tcp://host:7000").mode("append").save()

::

    pure     options  plan  ids  schema        what may be asked for, which offsets that is, how to split them
    shells   source  sink  worker  recording   Spark's data source API, its workers; a stream's own recorder
             session  java  doctor  cluster    what Spark needs to run, here and elsewhere
    jobs/                                      DataFrame -> DataFrame

Only this room imports PySpark, and only once something of it is asked for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.spark.session import register, session

__all__ = ["register", "session"]


if not TYPE_CHECKING:  # a type checker that sees it takes every name for one of ours

    def __getattr__(name: str) -> object:
        """Bring in one of the late names."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found: object = getattr(import_module("nngkit.spark.session"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
