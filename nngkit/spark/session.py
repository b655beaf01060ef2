"""A Spark session with what a run on one machine needs set: Java, Python, addresses, and the `nng` format registered.

::

    from nngkit.spark import session

    with session("local[2]") as spark:
        spark.read.format("nng").load("journal").groupBy("topic").count().show()

With a session of your own, `nngkit.spark.register(spark)` is all that is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from nngkit.errors import ConfigError
from nngkit.spark.java import Source, find_java, home_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PUSHDOWN", "SMALL", "check_packages", "environment", "register", "session", "settings"]

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"  # off by default, and Spark then refuses our reader
# Spark's own choice asks other programs (stat, chmod) about each file of a checkpoint, as it brings no native library:
# 140 ms of each micro-batch, and 30 with this one. Both write beside and rename, which on a disk is the same.
CHECKPOINTS: Final = "spark.sql.streaming.checkpointFileManagerClass"
HOME: Final = "127.0.0.1"
PACKAGES: Final = {  # what is imported here, and in workers; and the extra that brings it
    "pyspark": "spark",
    "pandas": "spark",
    "pyarrow": "spark",
    "packaging": "spark",
    "google_crc32c": "journal",
    "pycrdt": "documents",
}
SMALL: Final = {
    # For little data. Over a demo's journal a report cost 40 s of CPU, half of it spent on compiling what ran once:
    # Java's second compiler, and Spark's code for each query. Without them, 21 s. Over millions of rows they pay.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.codegen.wholeStage": "false",
}


def environment(
    master: str = "local", java: Source | None = None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What PySpark has to find in the environment before it starts its Java; what is set there already stays.

    `java`: take only the one from there. For a local `master`, everything stays on the loopback: a machine whose own
    name resolves to nothing, as in many a container, would keep Spark from starting.

    Raises ConfigError where there is no Java.
    """
    wanted = {"JAVA_HOME": str(home_for_spark(find_java(environ, java)))}
    if "PYSPARK_PYTHON" not in environ:
        wanted["PYSPARK_PYTHON"] = sys.executable
    if is_local(master) and "SPARK_LOCAL_IP" not in environ:
        wanted["SPARK_LOCAL_IP"] = HOME
    return wanted


def is_local(master: str) -> bool:
    """Whether driver and workers are one process."""
    return master == "local" or master.startswith("local[")


def settings(master: str) -> dict[str, str]:
    """Spark's settings for a run with this master."""
    common = {
        PUSHDOWN: "true",
        "spark.sql.session.timeZone": "UTC",  # times of day in a report are not to depend on who made it
        "spark.ui.showConsoleProgress": "false",  # it writes into our own output
    }
    if not is_local(master):
        return common
    # 200 partitions, the default, are 200 tasks and Python workers for what two cores do
    cores = str(_cores(master))
    return common | {
        "spark.ui.enabled": "false",
        "spark.driver.host": HOME,
        "spark.driver.bindAddress": HOME,
        "spark.sql.shuffle.partitions": cores,
        "spark.default.parallelism": cores,
        CHECKPOINTS: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    }


def _cores(master: str) -> int:
    text = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(text) if text.isdigit() else (os.cpu_count() or 1) if text == "*" else 1


def check_packages(*more: str) -> None:
    """Raise ConfigError, which names the extra, unless Spark's packages are installed, and `more` of PACKAGES."""
    for name, extra in PACKAGES.items():
        if (extra == "spark" or name in more) and find_spec(name) is None:
            raise ConfigError("Spark", f"{name} is not installed: pip install 'nngkit[{extra}]'")


def register(spark: SparkSession) -> None:
    """Make `format("nng")` known to this session, and let it have its filters. Raises ConfigError as `session`."""
    check_packages()
    from nngkit.spark.source import NngDataSource

    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(NngDataSource)


@contextmanager
def session(
    master: str | None = "local[*]",
    name: str = "nngkit",
    conf: Mapping[str, str] | None = None,
    java: Source | None = None,
    log_level: str = "ERROR",
) -> Iterator[SparkSession]:
    """A session of its own, stopped at the end. `conf` is added to `settings`, and wins.

    `master` None: what spark-submit, which runs this, was told; Java and addresses are then its business.

    Raises ConfigError where PySpark or Java is missing, or where a session is running already: its settings would win.
    """
    check_packages()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise ConfigError("session", "there is one already; give it to nngkit.spark.register")
    builder = SparkSession.builder.appName(name)
    if master is not None:
        os.environ.update(environment(master, java))
        builder = builder.master(master)
    for key, value in {**settings(master or "submitted"), **(conf or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel(log_level)
        register(spark)
        yield spark
    finally:
        spark.stop()
