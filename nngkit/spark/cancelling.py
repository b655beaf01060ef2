"""Work on a Spark session that Ctrl-C cancels, and that leaves the session as it is.

::

    rows = cancellable(spark, "query 1", lambda: spark.sql("...").collect())

A call into Java cannot be interrupted: the main thread would wait for Spark, or leave the connection in the middle of
an answer. So the work runs in a thread of its own, whose Spark jobs are one group.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from nngkit.errors import Broken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECK: Final = 0.1  # seconds between two looks for a signal, which wakes no thread

T = TypeVar("T")


class Cancelled(Broken):
    """The work was cancelled by SIGINT."""


def cancellable(spark: SparkSession, group: str, work: Callable[[], T]) -> T:
    """Return the result of `work`, or raise its error; to be called in the main thread.

    On SIGINT, its Spark jobs are cancelled, and Cancelled is raised when it has ended. `group`: a name of its own.
    """
    from pyspark import InheritableThread

    found: list[T] = []
    failed: list[Exception] = []

    def body() -> None:
        spark.sparkContext.setJobGroup(group, "nngkit", interruptOnCancel=True)
        try:
            found.append(work())
        except Exception as error:
            failed.append(error)

    cancelled = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: cancelled.set())
    try:
        thread = InheritableThread(target=body, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(CHECK)
            if cancelled.is_set():  # again and again: the next job may not have begun when the first was cancelled
                spark.sparkContext.cancelJobGroup(group)
    finally:
        signal.signal(signal.SIGINT, before)
    if cancelled.is_set():
        raise Cancelled("cancelled")
    if failed:
        raise failed[0]
    return found[0]
