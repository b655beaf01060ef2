"""Spark session configured for one machine: Java, Python, addresses, and the `nng` format registered.

::

    from nngkit.spark import session

    with session("local[2]") as spark:
        spark.read.format("nng").load("journal").groupBy("topic").count().show()

For an existing session, `nngkit.spark.register(spark)` suffices.
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

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"  # off by default; Spark then rejects this source's reader
# Spark's default runs other programs (stat, chmod) on each checkpoint file, as PySpark has no native library: 140 ms
# a micro-batch, 30 ms with this one. Both write a scratch file and rename it, which on a disk is equivalent.
CHECKPOINTS: Final = "spark.sql.streaming.checkpointFileManagerClass"
HOME: Final = "127.0.0.1"
PACKAGES: Final = {  # packages imported here and in workers, and the extra that installs them
    "pyspark": "spark",
    "pandas": "spark",
    "pyarrow": "spark",
    "packaging": "spark",
    "prometheus_client": "spark",
    "google_crc32c": "spark",
    "pycrdt": "documents",
}
SMALL: Final = {
    # For little data. A report on a demo's journal took 40 s of CPU, half of it compiling code that ran once: Java's
    # second compiler, and Spark's code for each query. Without them 21 s. Over millions of rows they pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.codegen.wholeStage": "false",
}


def environment(
    master: str = "local", java: Source | None = None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables to set before PySpark starts Java; those set already are kept.

    `java`: use only the one from there. With a local `master`, everything stays on loopback: a machine whose own
    name does not resolve, as in many containers, would keep Spark from starting.

    Raises ConfigError if there is no Java.
    """
    wanted = {"JAVA_HOME": str(home_for_spark(find_java(environ, java)))}
    if "PYSPARK_PYTHON" not in environ:
        wanted["PYSPARK_PYTHON"] = sys.executable
    if is_local(master) and "SPARK_LOCAL_IP" not in environ:
        wanted["SPARK_LOCAL_IP"] = HOME
    return wanted


def is_local(master: str) -> bool:
    """Return True if driver and workers are one process."""
    return master == "local" or master.startswith("local[")


def settings(master: str) -> dict[str, str]:
    """Return Spark's settings for this master."""
    common = {
        PUSHDOWN: "true",
        "spark.sql.session.timeZone": "UTC",  # reports must not depend on the local time zone
        "spark.ui.showConsoleProgress": "false",  # it would mix with nngkit's output
    }
    if not is_local(master):
        return common
    # the default of 200 partitions means 200 tasks and Python workers, for work that two cores do
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
    """Raise ConfigError, naming the extra, unless Spark's packages and `more` of PACKAGES are installed."""
    for name, extra in PACKAGES.items():
        if (extra == "spark" or name in more) and find_spec(name) is None:
            raise ConfigError("Spark", f"{name} is not installed: pip install 'nngkit[{extra}]'")


def register(spark: SparkSession) -> None:
    """Register `format("nng")` in this session and enable its filter pushdown. Raises ConfigError as `session`."""
    check_packages()
    from nngkit.spark.reading.source import NngDataSource

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
    """Run a new session; stop it at the end. `conf` is added to `settings`, and takes precedence.

    `master` None: use that of spark-submit, which runs this program and provides Java and addresses.

    Raises ConfigError if PySpark or Java is missing, or if a session exists, as its settings would apply.
    """
    check_packages()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise ConfigError("session", "a session exists already; pass it to nngkit.spark.register")
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
