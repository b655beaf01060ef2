"""A journal as views of SQL: its records, and the result of each job.

::

    views = Views(spark, JobOptions("journal"))
    views.sql("SELECT topic, sum(messages) FROM rates GROUP BY topic").show()
    views.columns("rates")                      # [("start", "timestamp"), ...]

A view is made when a statement names it, from what the journal has then, and nothing is read before Spark runs the
statement. So all of them cost nothing that are not used. `from_cbor(value)`, CBOR as JSON text, is a function of these
statements.
"""

from __future__ import annotations

from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nngkit.errors import Broken, NotFound
from nngkit.spark.cancelling import cancellable
from nngkit.spark.registry import JOBS
from nngkit.spark.run import JobOptions, in_a_line, job_of, rows_of, short_reason
from nngkit.spark.sql_text import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

OWN: Final = {
    "journal": 'the records, with the columns of format("nng") and headers',
    "records": "the records with keys and values as text, null if not UTF-8, with sender and id",
    "observations": "each provider in each round of a discovery daemon",
    "peers": "senders, with first and last time, messages and topics",
    "requests": "requests that a device has recorded, with the time to their reply",
    "jobs": "ended jobs of clusters",
}
JOB_VIEWS: Final = {name.replace("-", "_"): name for name in JOBS if name not in ("documents", "report")}
VIEWS: Final = OWN | {view: JOBS[name].what for view, name in JOB_VIEWS.items()}
"""Views and what they contain."""


T = TypeVar("T")


class Views:
    """The views of one journal in one session. `options` limits them to topics and times, and gives windows and gap."""

    def __init__(self, spark: SparkSession, options: JobOptions) -> None:
        self._spark = spark
        self._options = options
        self._made: dict[str, DataFrame] = {}
        self._groups = (f"statement {number} of {id(self)}" for number in count())

    @cached_property
    def _rows(self) -> DataFrame:
        from nngkit.spark.jobs.cbor_text import register

        register(self._spark)
        return rows_of(self._spark, self._options)

    def sql(self, statement: str) -> DataFrame:
        """Run a statement. Raises Broken with a short reason: which name is unknown, and which there are."""
        from pyspark.errors import PySparkException

        used = [name for name in VIEWS if name in words(statement)]
        self._made.clear()
        self.__dict__.pop("_rows", None)  # segments that were planned for earlier statements may be merged and gone
        with in_a_line():
            try:
                for name in used:
                    self._frame(name)
                return self._spark.sql(statement)
            except PySparkException as error:
                raise Broken(self.reason(error, used)) from error

    def run(self, statement: str, use: Callable[[DataFrame], T]) -> T:
        """Return `use` of the statement's rows; in the main thread. Ctrl-C cancels both.

        Raises Cancelled, and Broken as `sql`.
        """
        from pyspark.errors import PySparkException

        with in_a_line():
            try:
                return cancellable(self._spark, next(self._groups), lambda: use(self.sql(statement)))
            except PySparkException as error:
                raise Broken(self.reason(error)) from error

    def columns(self, name: str) -> list[tuple[str, str]]:
        """Return names and types of a view's columns. Raises NotFound, and Broken if the journal cannot be read."""
        if name not in VIEWS:
            raise NotFound(f"no view {name!r}; there are {', '.join(VIEWS)}")
        with in_a_line():
            return self._frame(name).dtypes

    def reason(self, error: Any, used: list[str] | None = None) -> str:
        """Return what is wrong with a statement, in a line. `used`: the views that it names."""
        condition = error.getCondition() or ""
        told = error.getMessageParameters() or {}
        if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
            return f"no view {told.get('relationName', '?')}; there are {', '.join(VIEWS)}"
        if condition.startswith("UNRESOLVED_COLUMN"):
            known = [f"{name}: {', '.join(column for column, _ in self.columns(name))}" for name in used or ()]
            return f"no column {told.get('objectName', '?')}" + (f"; there are {'; '.join(known)}" if known else "")
        if condition.startswith("UNRESOLVED_ROUTINE"):
            return f"no function {told.get('routineName', '?')}"
        if condition == "PARSE_SYNTAX_ERROR":
            return f"syntax error at or near {told.get('error', '?')}{told.get('hint', '')}"
        return short_reason(error)

    def _frame(self, name: str) -> DataFrame:
        if name not in self._made:
            frame = self._own(name) if name in OWN else job_of(JOB_VIEWS[name], self._rows, self._options)
            frame.createOrReplaceTempView(name)
            self._made[name] = frame
        return self._made[name]

    def _own(self, name: str) -> DataFrame:
        from nngkit.spark.analytics.availability import observations
        from nngkit.spark.analytics.cluster import ended
        from nngkit.spark.analytics.requests import requests
        from nngkit.spark.analytics.sessions import peers

        made = {"observations": observations, "peers": peers, "requests": requests, "jobs": ended, "records": _records}
        return self._rows if name == "journal" else made[name](self._rows)


def _records(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    from nngkit.spark.jobs.headers import header, sender

    texts = {name: F.try_validate_utf8(F.col(name).cast("string")).alias(name) for name in ("key", "value")}
    return rows.select(
        "timestamp",
        "topic",
        texts["key"],
        texts["value"],
        F.octet_length("value").alias("size"),
        sender().alias("sender"),
        F.hex(header("id")).alias("id"),
        "protocol",
        "peer",
        "partition",
        "offset",
    )
